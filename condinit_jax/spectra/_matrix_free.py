"""Condition numbers of linear maps too large for any square matrix, by their products alone.

The largest singular value comes from a block Lanczos iteration, the smallest from LOBPCG with a
preconditioner on the shorter side of the map. Neither squares the map, and each value comes with
the measured residual of its triplet.
"""

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
    from_extremes,
)
from condinit_jax.spectra._davidson import Extreme, extreme_singular_value
from condinit_jax.spectra._linear_map import BlockMap, LinearMap
from condinit_jax.spectra._lobpcg import (
    Smallest,
    TallMap,
    identity,
    smallest_singular_value,
)

BLOCK = 8
LARGEST_BLOCK = 2
LARGEST_STEPS = 40
ITERATIONS = 500

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
    check_search(tolerance, iterations, block)
    dtype = jnp.result_type(float)
    rtol = check_rtol(rtol, max(linear.rows, linear.columns), dtype)
    key = jax.random.key(0) if key is None else key
    by_rows = linear.rows <= linear.columns - nullity
    tall = tall_map(linear, by_rows, precondition, project, nullity)
    dim = linear.rows if by_rows else linear.columns
    start = jax.random.normal(key, (dim, block), dtype)
    find = jax.jit(lambda start: extremes(tall, start, rtol, tolerance, iterations))
    largest, smallest = jax.device_get(find(start))
    found = FoundExtremes(largest, smallest, dim - tall.nullity, dtype.name)
    return extremes_record(found, min(linear.rows, linear.columns), rtol, tolerance)


def tall_map(
    linear: LinearMap,
    by_rows: bool,
    precondition: BlockMap | None,
    project: BlockMap | None,
    nullity: int,
) -> TallMap:
    if by_rows:
        return TallMap(linear.rmatvec, linear.matvec, precondition)
    return TallMap(linear.matvec, linear.rmatvec, precondition, project or identity, nullity)


def extremes(
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


def extremes_record(
    found: FoundExtremes, size: int, rtol: float, tolerance: float, rounding: float = 0.0
) -> ConditionNumber:
    """The record of what was found in a matrix known to `rounding`, beside that of products."""
    largest, smallest = found.largest, found.smallest
    sigma_max, sigma_min = float(largest.sigma), float(smallest.sigma)
    if smallest.exhausted:  # what was found counts as zero, and bounds nothing
        sigma_min = math.nan
    above = min(float(largest.residual) / max(sigma_max, TINY), float(largest.change))
    below = float(smallest.error)
    reached = below <= tolerance and not smallest.exhausted
    failed = ""
    if smallest.exhausted:
        failed = (
            f"not converged: all {int(smallest.zeros)} vectors of the block found singular values "
            "of zero, and the smallest of the others is not known"
        )
    elif not reached:
        failed = (
            f"not converged after {int(smallest.steps)} iterations: kappa is a lower bound "
            f"(residual {float(smallest.residual):.0e} of sigma_min)"
        )
    elif above > tolerance:
        failed = f"sigma_max not converged after {LARGEST_STEPS} steps: kappa is a lower bound"
    return from_extremes(
        sigma_max,
        sigma_min,
        rank=found.dim - int(smallest.zeros) if reached else None,
        size=size,
        rtol=rtol,
        method="matrix_free",
        dtype=found.dtype,
        rounding=rounding + math.sqrt(found.dim) * float(np.finfo(found.dtype).eps),
        error=above + below,
        failed=failed,
    )


def check_search(tolerance: float, iterations: int, block: int) -> None:
    if not 0 < tolerance < 1:
        raise UserError(f"tolerance = {tolerance}: must be between 0 and 1")
    if iterations < 1:
        raise UserError(f"iterations = {iterations}: must be at least 1")
    if block < 2:
        raise UserError(f"block = {block}: must be at least 2")
