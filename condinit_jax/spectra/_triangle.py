"""Singular values of J by an orthogonal reduction of it, which keeps all digits.

J (or J^T) is absorbed in blocks by QR decompositions. What is left is a triangular factor: its
singular values are J's, and it preconditions the Davidson iteration on J where two are enough.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

from condinit_jax.spectra._davidson import Extreme
from condinit_jax.spectra._factors import factors, jacobian_columns, of_tokens, slices
from condinit_jax.spectra._head import Head
from condinit_jax.spectra._null_space import NullSpace
from condinit_jax.spectra._score_columns import has_score_columns, score_columns
from condinit_jax.spectra._tall_side import (
    Side,
    largest_value,
    null_part,
    smallest_value,
    tall_side,
)


class Extremes(NamedTuple):
    """The two ends of a spectrum."""

    largest: Extreme
    smallest: Extreme


@functools.partial(jax.jit, static_argnames=("side", "by_scores", "blocks"))
def triangle(
    head: Head,
    null: NullSpace | None,
    scale: float,
    *,
    side: Side,
    by_scores: bool,
    blocks: int,
) -> Float[Array, "size size"]:
    """R of the QR decomposition of J^T (side "rows") or J ("columns"), J in blocks.

    Args:
        head: A head of reduced width, float64.
        null: On the column side, null directions to give the singular value `scale`, or None.
        scale: That value.
        side: Which of the two.
        by_scores: On the row side, whether to take fewer columns (`_score_columns`).
        blocks: In how many parts J is built and absorbed; more take less memory and more time.

    Returns:
        (n, n) upper triangular, n the rows or columns of J. Its singular values are J's.
    """
    parts = factors(head)
    pieces: list[Callable[[], Array]]
    if side == "columns":
        pieces = [
            functools.partial(jacobian_columns, of_tokens(parts, rows))
            for rows in slices(len(parts.tokens), blocks)
        ]
        if null is not None:
            eye = jnp.eye(sum(kernel.size for kernel in head.kernels), dtype=head.tokens.dtype)
            pieces.append(lambda: scale * null_part(head, null, eye))
    elif by_scores:
        found = score_columns(head, parts, blocks)
        if blocks == 1:
            found = [jnp.concatenate(found, axis=1)]
        pieces = [functools.partial(lambda columns: columns.T, columns) for columns in found]
    else:
        widths = zip(
            slices(parts.tokens.shape[1], blocks),
            slices(parts.context.shape[1], blocks),
            strict=True,
        )
        pieces = [
            functools.partial(lambda q, k: jacobian_columns(parts, q, k).T, query, context)
            for query, context in widths
        ]
    upper: Array | None = None
    for piece in pieces:
        rows = piece() if upper is None else jnp.concatenate([upper, piece()])
        upper = jnp.linalg.qr(rows, mode="r")
    assert upper is not None
    return upper


@functools.partial(jax.jit, static_argnames=("side",))
def triangle_extremes(
    head: Head,
    null: NullSpace | None,
    upper: Float[Array, "size size"],
    scale: float,
    tolerance: float,
    *,
    side: Side,
) -> Extremes:
    """Extreme singular values of J with the help of its triangular factor.

    Args:
        head: A head of reduced width, float64.
        null: As for `triangle`.
        upper: What `triangle` gave, square.
        scale: As for `triangle`.
        tolerance: On the relative change.
        side: As for `triangle`.

    Returns:
        The extremes.
    """
    # Products with J cost less than those with its factor, and do not know the factor's rounding.
    tall = tall_side(head, side, null, scale)
    largest = largest_value(tall, upper.dtype, tolerance)
    # A zero on the diagonal would make the preconditioner infinite.
    diagonal = jnp.diagonal(upper)
    floor = jnp.finfo(upper.dtype).eps * largest.sigma
    raised = jnp.where(jnp.abs(diagonal) < floor, floor - diagonal, 0.0)
    factor = upper + jnp.diag(raised)

    def solve(columns: Array) -> Array:
        half = jax.lax.linalg.triangular_solve(
            factor, columns, left_side=True, lower=False, transpose_a=True
        )
        return jax.lax.linalg.triangular_solve(factor, half, left_side=True, lower=False)

    return Extremes(largest, smallest_value(tall, solve, upper.dtype, tolerance))


def small_values(head: Head) -> Float[np.ndarray, " values"]:
    """Every singular value of J for a small head, largest first, by LAPACK on the host.

    Args:
        head: Host arrays of reduced width, float64.

    Returns:
        (min(rows, columns),).
    """
    # NumPy needs no compilation, which would take a hundred times as long as the values do.
    jacobian: Any
    if has_score_columns(head):
        jacobian = np.concatenate(score_columns(head, factors(head)), axis=1)
    elif head.query_map is None and head.key_map is None:
        jacobian = _small_jacobian(head)
    else:
        jacobian = np.asarray(_compiled_jacobian(head))
    tall = jacobian if jacobian.shape[0] >= jacobian.shape[1] else jacobian.T
    with _blas().limit(limits=1, user_api="blas"):
        # Threads that wait for one another over a small matrix take longer than one of them alone.
        return np.linalg.svd(np.linalg.qr(tall, mode="r"), compute_uv=False)


@functools.cache
def _blas() -> ThreadpoolController:
    """The linear algebra libraries of this process, looked for once: that takes milliseconds."""
    return ThreadpoolController()


def _small_jacobian(head: Head) -> Float[Array, "rows columns"]:
    return jacobian_columns(factors(head))


_compiled_jacobian = jax.jit(_small_jacobian)


@jax.jit
def triangle_values(upper: Float[Array, "size size"]) -> Float[Array, " size"]:
    """Every singular value of a triangular matrix."""
    return jnp.linalg.svd(upper, compute_uv=False)
