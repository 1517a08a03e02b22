"""Condition numbers of linear maps too large for any square matrix, by their products alone.

The largest singular value comes from a block Lanczos iteration, the smallest from LOBPCG with a
preconditioner on the shorter side of the map. Neither squares the map, and each value comes with
the measured residual of its triplet.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.spectra._condition_number import (
    ConditionNumber,
    check_rtol,
    from_values,
    precision_warning,
)
from condinit_jax.spectra._davidson import Extreme, extreme_singular_value
from condinit_jax.spectra._head import Head, head_output
from condinit_jax.spectra._linear_map import LinearMap, linear_map
from condinit_jax.spectra._lobpcg import (
    BlockMap,
    Smallest,
    TallMap,
    identity,
    smallest_singular_value,
)
from condinit_jax.spectra._null_space import NullSpace, null_space, project_out
from condinit_jax.spectra._preconditioner import (
    column_preconditioner,
    join_kernels,
    row_preconditioner,
    split_kernels,
)

BLOCK = 8
LARGEST_BLOCK = 2
LARGEST_STEPS = 40
ITERATIONS = 500

PAIRS = 2**22
"""Query-key pairs of the products that run at once."""

TINY = float(np.finfo(np.float64).tiny)


class FoundExtremes(NamedTuple):
    """The two ends of a spectrum, and what they were found in.

    Attributes:
        largest: The largest singular value.
        smallest: The smallest that does not count as zero.
        dim: Dimensions of the shorter side, less those of the null space known beforehand.
        dtype: Of the arithmetic.
    """

    largest: Extreme
    smallest: Smallest
    dim: int
    dtype: str


def matrix_free_condition_number(
    linear: LinearMap,
    *,
    tolerance: float = 1e-6,
    iterations: int = ITERATIONS,
    key: Array | None = None,
    rtol: float | None = None,
    block: int = BLOCK,
    precondition: BlockMap | None = None,
    project: BlockMap | None = None,
    nullity: int = 0,
) -> ConditionNumber:
    """The condition number of any matrix given by its products, from its two extremes.

    Works on the rows, with J J^T in mind, where there are no more rows than columns without null
    directions known beforehand, else on the columns; `precondition` and `project` are of that side.

    Args:
        linear: The matrix J; see `linear_map`. Its products take JAX's default floats: float64
            where x64 is enabled, else float32.
        tolerance: On the relative error of kappa.
        iterations: For each extreme; the largest takes 40 steps at most.
        key: Of the random start; None for a fixed one.
        rtol: singular values up to `rtol * sigma_max` count as zero; None takes the longer side of
            J times the dtype's epsilon.
        block: Vectors per iteration; up to `block - 1` zeros that were not known are seen through.
        precondition: (n, k) -> (n, k), symmetric positive definite, near the inverse of J J^T (or
            J^T J). It decides how many iterations are needed, never what the answer is.
        project: (n, k) -> (n, k), orthogonal projector beside null vectors known beforehand; on
            columns only.
        nullity: how many dimensions it removes.

    Returns:
        The record. `error` estimates the relative error of kappa: for each extreme, half its
        relative residual r or r^2 over the gap to the next value found, whichever is less, plus
        rounding. The residual, |J v - sigma u| and |J^T u - sigma v| together and relative to
        sigma, is measured; it proves that some singular value lies that near to sigma. It does not
        prove that none is smaller: that the next value found is the next one, and that the start
        had a part along every vector, is likely and not certified. Without convergence kappa is a
        lower bound, since sigma_min is bounded from above by the value on any vector; it is NaN
        where all vectors of the block went to zeros. `rank` is None unless sigma_min converged.

    Raises:
        UserError: if `tolerance`, `iterations`, `block` or `rtol` is out of range.

    Example:
        >>> import jax.numpy as jnp
        >>> from condinit_jax.spectra._linear_map import LinearMap
        >>> matrix = jnp.diag(jnp.linspace(1.0, 3.0, 30))
        >>> linear = LinearMap(lambda x: matrix @ x, lambda x: matrix.T @ x, 30, 30)
        >>> round(matrix_free_condition_number(linear).kappa, 3)
        3.0
    """
    _check(tolerance, iterations, block)
    dtype = jnp.result_type(float)
    rtol = check_rtol(rtol, max(linear.rows, linear.columns), dtype)
    key = jax.random.key(0) if key is None else key
    by_rows = linear.rows <= linear.columns - nullity
    tall = _tall(linear, by_rows, precondition, project, nullity)
    dim = linear.rows if by_rows else linear.columns
    start = jax.random.normal(key, (dim, block), dtype)
    find = jax.jit(lambda start: _extremes(tall, start, rtol, tolerance, iterations))
    largest, smallest = jax.device_get(find(start))
    found = FoundExtremes(largest, smallest, dim - tall.nullity, dtype.name)
    return _record(found, min(linear.rows, linear.columns), rtol, tolerance)


def matrix_free_spectrum(
    head: Head,
    *,
    tolerance: float = 1e-6,
    iterations: int = ITERATIONS,
    key: Array | None = None,
    rtol: float | None = None,
    block: int = BLOCK,
    preconditioned: bool = True,
    size: int | None = None,
) -> ConditionNumber:
    """The condition number of one head's Jacobian by products with it alone.

    Call it in `float64()`, with a head of shortened width (see `reduce_width`): then its size is
    what decides on rows or columns. `jacobian_spectrum(method="matrix_free")` does both.

    Args:
        head: One head, host arrays.
        tolerance: See `matrix_free_condition_number`, as for what follows.
        iterations: See there.
        key: See there.
        rtol: See there.
        block: See there.
        preconditioned: False to go without, to compare.
        size: of the record; None takes min(rows, columns) of this head's Jacobian.

    Returns:
        The record, method "matrix_free"; see `matrix_free_condition_number` for what `error` says.

    Raises:
        UserError: if `tolerance`, `iterations`, `block` or `rtol` is out of range.

    Example:
        >>> import numpy as np
        >>> from condinit_jax.spectra import Head
        >>> from condinit_jax.spectra._precision import float64
        >>> rng = np.random.default_rng(0)
        >>> with float64():
        ...     head = Head(rng.normal(size=(8, 8)), *rng.normal(size=(3, 8, 4)) / 8**0.5)
        ...     record = matrix_free_spectrum(head)
        >>> record.rank, record.converged
        (32, True)
    """
    rows, columns = _shape(head)
    rtol = check_rtol(rtol, max(rows, columns), jnp.result_type(float))
    found = head_extremes(
        head, tolerance=tolerance, iterations=iterations, key=key, rtol=rtol, block=block,
        preconditioned=preconditioned,
    )  # fmt: skip
    return _record(found, min(rows, columns) if size is None else size, rtol, tolerance)


def head_extremes(
    head: Head,
    *,
    tolerance: float,
    iterations: int,
    key: Array | None,
    rtol: float,
    block: int,
    preconditioned: bool,
) -> FoundExtremes:
    """What `matrix_free_spectrum` makes its record of, with residuals and steps."""
    _check(tolerance, iterations, block)
    rows, columns = _shape(head)
    null, nullity = null_space(head) or (None, 0)
    by_rows = rows <= columns - nullity
    if by_rows:
        null, nullity = None, 0
    dim = rows if by_rows else columns
    key = jax.random.key(0) if key is None else key
    dtype = jnp.result_type(float)
    start = jax.random.normal(key, (dim, block), dtype)
    largest, smallest = jax.device_get(
        _head_extremes(
            head, null, start, rtol, tolerance, by_rows=by_rows, nullity=nullity,
            iterations=iterations, preconditioned=preconditioned,
        )
    )  # fmt: skip
    return FoundExtremes(largest, smallest, dim - nullity, dtype.name)


def _shape(head: Head) -> tuple[int, int]:
    """Rows and columns of the Jacobian."""
    return len(head.tokens) * head.value.shape[1], sum(kernel.size for kernel in head.kernels)


@functools.partial(jax.jit, static_argnames=("by_rows", "nullity", "preconditioned"))
def _head_extremes(
    head: Head,
    null: NullSpace | None,
    start: Array,
    rtol: float,
    tolerance: float,
    *,
    by_rows: bool,
    nullity: int,
    iterations: int,
    preconditioned: bool,
) -> tuple[Extreme, Smallest]:
    """Both extremes of a head's Jacobian."""
    shapes = [kernel.shape for kernel in head.kernels]
    linear = linear_map(
        functools.partial(head_output, head),
        head.kernels,
        batch_size=max(1, PAIRS // (len(head.tokens) * len(head.keys_from))),
    )
    precondition = project = None
    if preconditioned:
        precondition = (row_preconditioner if by_rows else column_preconditioner)(head)
    if null is not None:

        def project(columns: Array) -> Array:
            return join_kernels(project_out(null, split_kernels(columns, shapes)))

    tall = _tall(linear, by_rows, precondition, project, nullity)
    return _extremes(tall, start, rtol, tolerance, iterations)


def _tall(
    linear: LinearMap,
    by_rows: bool,
    precondition: BlockMap | None,
    project: BlockMap | None,
    nullity: int,
) -> TallMap:
    if by_rows:
        return TallMap(linear.rmatvec, linear.matvec, precondition)
    return TallMap(linear.matvec, linear.rmatvec, precondition, project or identity, nullity)


def _extremes(
    tall: TallMap,
    start: Array,
    rtol: float,
    tolerance: float,
    iterations: int,
) -> tuple[Extreme, Smallest]:
    largest = extreme_singular_value(
        tall.forward,
        tall.adjoint,
        tall.project(start[:, : min(LARGEST_BLOCK, max(len(start) // 2, 1))]),
        largest=True,
        steps=LARGEST_STEPS,
        tolerance=tolerance / 10,
    )
    floor = rtol * largest.sigma
    return largest, smallest_singular_value(
        tall, start, floor, tolerance=tolerance / 2, iterations=iterations
    )


def _record(found: FoundExtremes, size: int, rtol: float, tolerance: float) -> ConditionNumber:
    largest, smallest = found.largest, found.smallest
    sigma_max, sigma_min = float(largest.sigma), float(smallest.sigma)
    if sigma_max == 0:
        return dataclasses.replace(
            from_values(np.zeros(1, found.dtype), rtol=rtol, size=size, method="matrix_free"),
            singular_values=None,
        )
    if smallest.exhausted:  # what was found counts as zero, and bounds nothing
        sigma_min = math.nan
    kappa = sigma_max / sigma_min
    above = min(float(largest.residual) / max(sigma_max, TINY), float(largest.change))
    below = float(smallest.error)
    reached = below <= tolerance and not smallest.exhausted
    converged = reached and above <= tolerance
    error = above + below + math.sqrt(found.dim) * float(np.finfo(found.dtype).eps) * kappa
    rank = found.dim - int(smallest.zeros) if reached else None
    if smallest.exhausted:
        warning = (
            f"not converged: all {int(smallest.zeros)} vectors of the block found singular values "
            "of zero, and the smallest of the others is not known"
        )
    elif not reached:
        warning = (
            f"not converged after {int(smallest.steps)} iterations: kappa is a lower bound "
            f"(residual {float(smallest.residual):.0e} of sigma_min)"
        )
    elif not converged:
        warning = f"sigma_max not converged after {LARGEST_STEPS} steps: kappa is a lower bound"
    else:
        warning = precision_warning(error)
    return ConditionNumber(
        kappa=kappa,
        sigma_max=sigma_max,
        sigma_min=sigma_min,
        rank=rank,
        size=size,
        dropped=None if rank is None else size - rank,
        rtol=rtol,
        method="matrix_free",
        dtype=found.dtype,
        error=error,
        converged=converged,
        warning=warning,
    )


def _check(tolerance: float, iterations: int, block: int) -> None:
    if not 0 < tolerance < 1:
        raise UserError(f"tolerance = {tolerance}: must be between 0 and 1")
    if iterations < 1:
        raise UserError(f"iterations = {iterations}: must be at least 1")
    if block < 2:
        raise UserError(f"block = {block}: must be at least 2")
