r"""Approximate inverses of a head's Gram matrix that cost little, for iterations on J itself.

With M_i, N_i, q_i, P as in `_factors`, block (i, j) of J J^T is

    (x_i . x_j) M_i M_j^T + (q_i . q_j) N_i N_j^T + ((P Y)_i . (P Y)_j) I,

v x v. The value term alone is (P Y)(P Y)^T (x) I; its inverse is no help where attention is near
uniform, since the rows of P Y are then nearly equal and what tells them apart is the first term. So
the row preconditioner is block Jacobi over value coordinates, all three terms exact: rotated to the
eigenvectors of sum_i |x_i|^2 M_i M_i^T, each value coordinate has an N x N matrix, and what couples
different coordinates is left out. Each is factorised once; v N^2 numbers are held.

On columns, J^T J has a null space (see `_null_space`) and its diagonal blocks, one per kernel, are
sums over tokens of Kronecker products. The column preconditioner takes each for one such product,
by partial traces; the value kernel's is exact.

Where they fail, by one run of `benchmarks/matrix_free.py` (at most 500 iterations, tolerance 1e-6):

- Rows, LayerNormed Gaussian tokens, D = 192, d = 64: they converge for every initialization tried
  at 64 and 128 tokens, in 10 to 48 iterations for normal 0.02 (kappa 2e5 and 7e3; 71 at 197 tokens)
  and in 41 to 234 for conditioned and Xavier kernels. Without, no case of 64 tokens was done after
  500, where sigma_min was still 4 to 90 times too large.
- The blocks are Gram matrices, shifted by 2e-15: what is smaller than about 1e-7 sigma_max is
  hidden from them. With the second half of the tokens 1e-2 apart, kappa is above 2e8, and one of
  six cases converged.
- The more rows there are for the columns, the nearer the smallest singular values are to each
  other, and the more iterations they take: 41 at 64 tokens, 231 at 128 (conditioned).
- Columns: what couples two kernels is left out, though near uniform attention makes J^T J almost
  singular by it. At 120 tokens, D = 24, d = 8, Gaussian tokens converge for conditioned kernels
  (kappa 103) in 384 iterations, and 500 leave sigma_min 9 times too large for normal 0.02 (kappa
  3e7). There a Gram matrix or QR is the better way as long as it fits.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from condinit_jax.spectra._factors import token_derivative
from condinit_jax.spectra._head import Head, project
from condinit_jax.spectra._linear_map import BlockMap

SHIFTS = (2e-15, 1e-12)
"""Added to a block's diagonal, relative to its norm; the second where the first is too small."""


class _Sides(NamedTuple):
    """What the softmax terms are made of.

    Attributes:
        weights: P, (N, M).
        value: (M, v), centred.
        scale: scalar.
        context: Y, (M, E), centred.
        mixed: P Y, (N, E).
        query: q_i, (N, d), the mean square derivative of the key map folded in.
        query_side: M_i, (N, v, d), the derivative of the query map included.
    """

    weights: Array
    value: Array
    scale: Array
    context: Array
    mixed: Array
    query: Array
    query_side: Array

    def key_side(self, direction: Array) -> Array:
        """N_i^T u, (N, E), for a direction u of the values."""
        return self.softmax_side(direction) @ self.context

    def softmax_side(self, direction: Array) -> Array:
        """Lambda(p_i) V u, scaled, (N, M)."""
        value = self.value @ direction
        return self.scale * self.weights * (value - (self.weights @ value)[:, None])


def _sides(head: Head) -> _Sides:
    parts = project(head)
    # Each row of V^T Lambda(p_i) sums to zero; centring saves digits where tokens are nearly equal.
    key, context, value = (a - a.mean(axis=0) for a in (parts.key, head.keys_from, parts.value))
    query = parts.query
    if head.key_map is not None:
        # The derivatives of all keys enter together; their mean square stands for them.
        derivative = token_derivative(head.key_map, parts.raw_key)
        square = jnp.einsum("lcd,led->ce", derivative, derivative) / len(derivative)
        query = query @ _root(square)
    mixed = parts.weights @ head.keys_from
    scale = jnp.asarray(parts.scale)
    sides = _Sides(parts.weights, value, scale, context, mixed, query, mixed)
    directions = jnp.eye(value.shape[1], dtype=value.dtype)
    query_side = jax.lax.map(lambda direction: sides.softmax_side(direction) @ key, directions)
    query_side = jnp.moveaxis(query_side, 0, 1)
    if head.query_map is not None:
        derivative = token_derivative(head.query_map, parts.raw_query)
        query_side = jnp.einsum("ivd,ide->ive", query_side, derivative)
    return sides._replace(query_side=query_side)


def row_preconditioner(head: Head) -> BlockMap:
    """An approximate inverse of J J^T, symmetric positive definite; runs inside `jit`.

    Args:
        head: Any head; maps of the keys enter by their mean square only.

    Returns:
        (N v, k) -> (N v, k).

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import Head
        >>> with jax.enable_x64(True):
        ...     head = Head(jnp.eye(3), *jax.random.normal(jax.random.key(0), (3, 3, 2)))
        ...     row_preconditioner(head)(jnp.eye(6)).shape
        (6, 6)
    """
    sides = _sides(head)
    count, value_dim, _ = sides.query_side.shape
    _, rotation = jnp.linalg.eigh(_value_gram(head, sides))
    of_tokens = head.tokens @ head.tokens.T
    of_queries = sides.query @ sides.query.T
    of_mixed = sides.mixed @ sides.mixed.T

    def inverse_factor(direction: Array) -> Array:
        query_side = jnp.einsum("iva,v->ia", sides.query_side, direction)
        key_side = sides.key_side(direction)
        block = of_mixed + of_tokens * (query_side @ query_side.T)
        return _inverse_factor(block + of_queries * (key_side @ key_side.T))

    factors = jax.lax.map(inverse_factor, rotation.T)

    def apply(columns: Array) -> Array:
        turned = jnp.einsum("zia,ab->biz", columns.T.reshape(-1, count, value_dim), rotation)
        turned = jnp.swapaxes(factors, 1, 2) @ (factors @ turned)
        return jnp.einsum("biz,ab->zia", turned, rotation).reshape(-1, count * value_dim).T

    return apply


def column_preconditioner(head: Head) -> BlockMap:
    """An approximate inverse of J^T J beside its null space; runs inside `jit`.

    Args:
        head: As for `row_preconditioner`.

    Returns:
        (d D + d E + v E, k) -> (same, k), kernels one after the other, each in C order.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import Head
        >>> with jax.enable_x64(True):
        ...     head = Head(jnp.eye(3), *jax.random.normal(jax.random.key(0), (3, 3, 2)))
        ...     column_preconditioner(head)(jnp.eye(18)).shape
        (18, 18)
    """
    sides = _sides(head)
    lengths = jnp.sum(sides.query**2, axis=1)

    def add(carry: tuple[Array, Array], direction: Array) -> tuple[tuple[Array, Array], None]:
        key_side = sides.key_side(direction)
        width = carry[0] + _weighted_gram(key_side, lengths)
        return (width, carry[1] + jnp.sum(key_side**2, axis=1)), None

    side, width = sides.query_side, sides.context.shape[1]
    identity = jnp.eye(side.shape[1], dtype=side.dtype)
    zeros = jnp.zeros((width, width), side.dtype), jnp.zeros_like(lengths)
    (key_width, key_squares), _ = jax.lax.scan(add, zeros, identity)
    squares = jnp.sum(head.tokens**2, axis=1)
    pairs = (
        (
            _weighted_gram(head.tokens, jnp.sum(side**2, axis=(1, 2))),
            jnp.einsum("i,iab,iac->bc", squares, side, side, optimize="optimal"),
        ),
        (key_width, _weighted_gram(sides.query, key_squares)),
        (len(identity) * sides.mixed.T @ sides.mixed, identity),
    )
    inverses = []
    for left, right in pairs:
        (a, u), (b, w) = jnp.linalg.eigh(left), jnp.linalg.eigh(right / _positive(jnp.trace(right)))
        values = jnp.maximum(a, 0)[:, None] * jnp.maximum(b, 0)
        inverses.append((u, w, _positive(jnp.maximum(values, SHIFTS[0] * values.max()))))
    shapes = [kernel.shape for kernel in head.kernels]

    def apply(columns: Array) -> Array:
        done = []
        for block, (u, w, values) in zip(split_kernels(columns, shapes), inverses, strict=True):
            inner = jnp.einsum("ir,kia,ab->krb", u, block, w, optimize="optimal") / values
            done.append(jnp.einsum("ir,krb,ab->kia", u, inner, w, optimize="optimal"))
        return join_kernels(done)

    return apply


def split_kernels(
    columns: Float[Array, "parameters block"], shapes: Sequence[tuple[int, ...]]
) -> list[Float[Array, "block width dim"]]:
    """Flat parameters of three kernels, one vector per column, as stacks of kernels."""
    edges = np.cumsum([0, *(math.prod(shape) for shape in shapes)])
    return [
        columns[start:stop].T.reshape(-1, *shape)
        for start, stop, shape in zip(edges[:-1], edges[1:], shapes, strict=True)
    ]


def join_kernels(
    blocks: Sequence[Float[Array, "block width dim"]],
) -> Float[Array, "parameters block"]:
    """What `split_kernels` took apart."""
    return jnp.concatenate([block.reshape(len(block), -1) for block in blocks], axis=1).T


def _value_gram(head: Head, sides: _Sides) -> Array:
    """sum_i |x_i|^2 M_i M_i^T, (v, v)."""
    squares, side = jnp.sum(head.tokens**2, axis=1), sides.query_side
    return jnp.einsum("i,iab,icb->ac", squares, side, side, optimize="optimal")


def _inverse_factor(block: Array) -> Array:
    """The inverse of a Cholesky factor of a positive semidefinite matrix, slightly shifted."""
    norm = _positive(jnp.max(jnp.sum(jnp.abs(block), axis=1)))
    identity = jnp.eye(len(block), dtype=block.dtype)

    def factor(shift: float) -> Array:
        return jnp.linalg.cholesky(block + shift * norm * identity)

    first = factor(SHIFTS[0])
    lower = jax.lax.cond(jnp.isfinite(first[-1, -1]), lambda: first, lambda: factor(SHIFTS[1]))
    return jax.scipy.linalg.solve_triangular(lower, identity, lower=True)


def _positive(values: Array) -> Array:
    return jnp.maximum(values, jnp.finfo(values.dtype).tiny)


def _weighted_gram(rows: Array, weights: Array) -> Array:
    return rows.T @ (weights[:, None] * rows)


def _root(square: Array) -> Array:
    values, vectors = jnp.linalg.eigh(square)
    return vectors * jnp.sqrt(jnp.maximum(values, 0))
