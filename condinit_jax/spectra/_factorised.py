"""Extreme singular values of a head's Jacobian with the help of a triangular factor.

Two factors serve: Cholesky's of the Gram matrix, cheap but of half the digits, and the R of a QR
decomposition of J or J^T, which has all of them. Either only preconditions the Davidson iteration
on J itself.
"""

import functools
import itertools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from threadpoolctl import ThreadpoolController

from condinit_jax.spectra._davidson import Apply, Extreme, extreme_singular_value
from condinit_jax.spectra._factors import factors, jacobian_columns, of_tokens
from condinit_jax.spectra._gram import column_gram, row_gram
from condinit_jax.spectra._head import Head, head_output, project
from condinit_jax.spectra._null_space import NullSpace, project_out
from condinit_jax.spectra._preconditioner import join_kernels, split_kernels
from condinit_jax.spectra._score_columns import has_score_columns, score_columns

Side = Literal["rows", "columns"]
"""On which side of J the square matrix stands: J J^T or J^T J."""

BLOCK = 2
"""Columns per step of the iterations: pairs of equal values do no harm."""

LARGEST_STEPS = 30
SMALLEST_STEPS = 24


class Survey(NamedTuple):
    """What is known of a spectrum before anything is factorised.

    Attributes:
        largest: The largest singular value.
        smallest_at_most: An upper bound of the smallest one on the row side.
    """

    largest: Extreme
    smallest_at_most: Float[Array, ""]


class Extremes(NamedTuple):
    """The two ends of a spectrum."""

    largest: Extreme
    smallest: Extreme


class _Map(NamedTuple):
    """T with T^T T = the Gram matrix of the side: J^T, or J with its null space filled in."""

    forward: Apply
    adjoint: Apply
    size: int


def _map(head: Head, side: Side, null: NullSpace | None = None, scale: Array | float = 1) -> _Map:
    """Products with J, by differentiating the head.

    On the column side J's known null directions are given the singular value `scale`. That lies
    between the extremes, so that these stay what they are.
    """
    shapes = [kernel.shape for kernel in head.kernels]
    sizes = [kernel.size for kernel in head.kernels]
    edges = [0, sizes[0], sizes[0] + sizes[1], sum(sizes)]

    def output(flat: Array) -> Array:
        parts = [flat[a:b] for a, b in itertools.pairwise(edges)]
        kernels = tuple(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True))
        return head_output(head, kernels).reshape(-1)  # type: ignore[arg-type]  # three of them

    at = jnp.concatenate([kernel.reshape(-1) for kernel in head.kernels])
    _, forward = jax.linearize(output, at)
    transpose = jax.linear_transpose(forward, at)
    jvp = jax.vmap(forward, in_axes=1, out_axes=1)
    vjp = jax.vmap(lambda cotangent: transpose(cotangent)[0], in_axes=1, out_axes=1)
    if side == "rows":
        return _Map(vjp, jvp, head.tokens.shape[0] * head.value.shape[1])
    if null is None:
        return _Map(jvp, vjp, sum(sizes))
    rows = head.tokens.shape[0] * head.value.shape[1]

    def filled(columns: Array) -> Array:
        return jnp.concatenate([jvp(columns), scale * _null_part(head, null, columns)])

    def filled_adjoint(columns: Array) -> Array:
        return vjp(columns[:rows]) + scale * _null_part(head, null, columns[rows:])

    return _Map(filled, filled_adjoint, sum(sizes))


def _null_part(head: Head, null: NullSpace, columns: Array) -> Float[Array, "columns block"]:
    """The part of parameter vectors that J is known not to see; an orthogonal projection."""
    shapes = [kernel.shape for kernel in head.kernels]
    return columns - join_kernels(project_out(null, split_kernels(columns, shapes)))


def _start(size: int, dtype: jnp.dtype) -> Array:
    # The answer does not depend on where the iteration starts, so that a fixed start is no loss.
    return jax.random.normal(jax.random.key(0), (size, BLOCK), dtype)


def _largest(mapping: _Map, dtype: jnp.dtype, tolerance: float) -> Extreme:
    return extreme_singular_value(
        mapping.forward,
        mapping.adjoint,
        _start(mapping.size, dtype),
        largest=True,
        steps=LARGEST_STEPS,
        tolerance=tolerance,
    )


def _smallest(mapping: _Map, solve: Apply, dtype: jnp.dtype, tolerance: float) -> Extreme:
    return extreme_singular_value(
        mapping.forward,
        mapping.adjoint,
        _start(mapping.size, dtype),
        largest=False,
        precondition=solve,
        steps=SMALLEST_STEPS,
        tolerance=tolerance,
    )


@jax.jit
def survey(head: Head, tolerance: float) -> Survey:
    """The largest singular value of J, and a bound of the smallest that says what to expect.

    Where tokens are nearly equal, or every query attends to the same mixture of them, the mixed
    tokens P Y are nearly dependent, and J is small along their least left singular vector: its
    rows there bound the smallest singular value from above.

    Args:
        head: A head of reduced width, float64.
        tolerance: On the largest value.

    Returns:
        The survey.
    """
    mapping = _map(head, "rows")
    parts = project(head)
    left, _, _ = jnp.linalg.svd(parts.weights @ head.keys_from, full_matrices=True)
    eye = jnp.eye(head.value.shape[1], dtype=left.dtype)
    rows = mapping.forward(jnp.kron(left[:, -1:], eye))
    values = jnp.linalg.svd(jnp.linalg.qr(rows, mode="r"), compute_uv=False)
    return Survey(_largest(mapping, left.dtype, tolerance), values[-1])


@functools.partial(jax.jit, static_argnames=("side", "factor_dtype", "key_slices"))
def gram_smallest(
    head: Head,
    null: NullSpace | None,
    sigma_max: float,
    shift: float,
    tolerance: float,
    *,
    side: Side,
    factor_dtype: str = "float64",
    key_slices: int = 1,
) -> Extreme:
    """The smallest singular value of J by a Cholesky factor of its Gram matrix.

    Args:
        head: A head of reduced width, float64.
        null: On the column side, what J is known not to see, or None.
        sigma_max: The largest singular value.
        shift: Added to the diagonal, relative to sigma_max^2, so that the factor exists.
        tolerance: On the relative change.
        side: Which Gram matrix.
        factor_dtype: dtype of the Gram matrix and its factor; that of J and of the answer is
            float64 whatever it is.
        key_slices: See `row_gram`.

    Returns:
        The value; NaN where the shifted Gram matrix is not positive definite in `factor_dtype`.
    """
    parts = jax.tree.map(lambda part: part.astype(factor_dtype), factors(head))
    gram = row_gram(parts, key_slices) if side == "rows" else column_gram(parts)
    if null is not None:
        eye = jnp.eye(len(gram), dtype=head.tokens.dtype)
        gram = gram + (sigma_max**2 * _null_part(head, null, eye)).astype(gram.dtype)
    diagonal = jnp.arange(len(gram))
    gram = gram.at[diagonal, diagonal].add(jnp.asarray(shift * sigma_max**2, gram.dtype))
    lower = jax.lax.linalg.cholesky(gram, symmetrize_input=False)

    def solve(columns: Array) -> Array:
        # Their length is of no interest, and float32 would not hold a small one's square.
        columns = columns / jnp.max(jnp.abs(columns), axis=0)
        half = jax.lax.linalg.triangular_solve(
            lower, columns.astype(lower.dtype), left_side=True, lower=True
        )
        return jax.lax.linalg.triangular_solve(
            lower, half, left_side=True, lower=True, transpose_a=True
        ).astype(columns.dtype)

    return _smallest(_map(head, side, null, sigma_max), solve, head.tokens.dtype, tolerance)


@functools.partial(jax.jit, static_argnames=("side", "key_slices"))
def gram_values(head: Head, *, side: Side, key_slices: int = 1) -> Float[Array, " values"]:
    """Every singular value of J as the root of an eigenvalue of its Gram matrix, largest first.

    Those below 1e-8 of the largest are noise.
    """
    parts = factors(head)
    gram = row_gram(parts, key_slices) if side == "rows" else column_gram(parts)
    values = jax.lax.linalg.eigh(gram, symmetrize_input=False)[1]
    return jnp.sqrt(jnp.maximum(values, 0.0))[::-1]


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
            for rows in _ranges(len(parts.tokens), blocks)
        ]
        if null is not None:
            eye = jnp.eye(sum(kernel.size for kernel in head.kernels), dtype=head.tokens.dtype)
            pieces.append(lambda: scale * _null_part(head, null, eye))
    elif by_scores:
        found = score_columns(head, parts, blocks)
        if blocks == 1:
            found = [jnp.concatenate(found, axis=1)]
        pieces = [functools.partial(lambda columns: columns.T, columns) for columns in found]
    else:
        widths = zip(
            _ranges(parts.tokens.shape[1], blocks),
            _ranges(parts.context.shape[1], blocks),
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


def _ranges(count: int, parts: int) -> list[slice]:
    edges = [count * step // parts for step in range(parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


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
    mapping = _map(head, side, null, scale)
    largest = _largest(mapping, upper.dtype, tolerance)
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

    return Extremes(largest, _smallest(mapping, solve, upper.dtype, tolerance))


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
