"""The condition number of one head's Jacobian by products with it alone."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.spectra._condition_number import ConditionNumber, check_rtol
from condinit_jax.spectra._davidson import Extreme
from condinit_jax.spectra._head import Head, head_output
from condinit_jax.spectra._linear_map import linear_map
from condinit_jax.spectra._lobpcg import Smallest
from condinit_jax.spectra._matrix_free import (
    BLOCK,
    ITERATIONS,
    FoundExtremes,
    check_search,
    extremes,
    extremes_record,
    tall_map,
)
from condinit_jax.spectra._null_space import NullSpace, null_space, project_out
from condinit_jax.spectra._preconditioner import (
    column_preconditioner,
    join_kernels,
    row_preconditioner,
    split_kernels,
)

PAIRS = 2**22
"""Query-key pairs of the products that run at once."""


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
    rounding: float = 0.0,
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
        rounding: how well the Jacobian is known beforehand, relative to its norm.

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
    return extremes_record(
        found, min(rows, columns) if size is None else size, rtol, tolerance, rounding
    )


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
    check_search(tolerance, iterations, block)
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

    tall = tall_map(linear, by_rows, precondition, project, nullity)
    return extremes(tall, start, rtol, tolerance, iterations)
