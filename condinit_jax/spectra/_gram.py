r"""The Gram matrix of a softmax head's Jacobian, J J^T or J^T J, without building J.

With the factors of `_factors`, the (i, j) block of J J^T is

    (x_i . x_j) M_i M_j^T + (q_i . q_j) N_i N_j^T + ((P Y)_i . (P Y)_j) I,

and each block of J^T J (the query, key and value kernels against each other) is a sum over tokens
of Kronecker products, one matrix product of pairwise products. Squaring halves the digits; what is
computed from a Gram matrix here is only ever used to find directions (see `_davidson`).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.spectra._factors import (
    Factors,
    jacobian_columns,
    key_columns,
    of_tokens,
    slices,
)

ROW_BLOCKS = 4
"""Blocks of rows in which the lower triangle is filled; more of them leave less to waste."""


def row_gram(parts: Factors, key_slices: int = 1) -> Float[Array, "rows rows"]:
    """The lower triangle of J J^T; what is above the diagonal blocks is zero.

    Args:
        parts: The factors of one head.
        key_slices: In how many parts the key kernel's columns of J are built, where a key map makes
            that necessary; more take less memory.

    Returns:
        (N v, N v).
    """
    count, value_dim, _ = parts.query_side.shape
    size = count * value_dim
    eye = jnp.eye(value_dim, dtype=parts.query_side.dtype)

    def pairs(side: Array, tokens: Array, rows: slice, columns: slice) -> Array:
        inner = tokens[rows] @ tokens[columns].T
        left = side[rows].reshape(-1, side.shape[-1])
        right = side[columns].reshape(-1, side.shape[-1])
        outer = (left @ right.T).reshape(-1, value_dim, inner.shape[1], value_dim)
        return inner[:, None, :, None] * outer

    gram = jnp.zeros((size, size), parts.query_side.dtype)
    for rows, columns in _blocks(count):
        block = pairs(parts.query_side, parts.tokens, rows, columns)
        inner = parts.mixed[rows] @ parts.mixed[columns].T
        block += inner[:, None, :, None] * eye[None, :, None, :]
        if parts.key_side is not None:
            block += pairs(parts.key_side, parts.query, rows, columns)
        block = block.reshape(block.shape[0] * value_dim, -1)
        gram = jax.lax.dynamic_update_slice(gram, block, (rows.start * value_dim, 0))
    if parts.key_side is not None:
        return gram

    width = parts.context.shape[1]
    for widths in slices(width, min(key_slices, width)):
        keys = key_columns(parts, widths).reshape(size, -1)
        for rows, _ in _blocks(count):
            first, last = rows.start * value_dim, rows.stop * value_dim
            gram = gram.at[first:last, :last].add(keys[first:last] @ keys[:last].T)
    return gram


def _blocks(count: int) -> list[tuple[slice, slice]]:
    """Token ranges (rows, columns) that cover the lower triangle."""
    return [(rows, slice(0, rows.stop)) for rows in slices(count, min(ROW_BLOCKS, count))]


def column_gram(parts: Factors) -> Float[Array, "columns columns"]:
    """J^T J, parameters in the order (query, key, value).

    Args:
        parts: The factors of one head.

    Returns:
        (d D + d E + v E, d D + d E + v E), symmetric.
    """
    if parts.key_side is None:
        return _column_gram_by_rows(parts)
    tokens, query, mixed = parts.tokens, parts.query, parts.mixed
    query_side, key_side = parts.query_side, parts.key_side
    eye = jnp.eye(query_side.shape[1], dtype=query.dtype)

    def total(outer: Array, inner: Array, axes: tuple[int, int, int, int]) -> Array:
        """Sum over tokens of outer (x) inner, as a matrix with the axes in the given order."""
        flat = outer.reshape(len(outer), -1).T @ inner.reshape(len(inner), -1)
        block = flat.reshape(*outer.shape[1:], *inner.shape[1:]).transpose(axes)
        return block.reshape(block.shape[0] * block.shape[1], -1)

    # Kernel entries are (width, dim), so a block's axes are (width, dim, width', dim').
    interleaved = (0, 2, 1, 3)
    qq = total(
        jnp.einsum("ir,is->irs", tokens, tokens),
        jnp.einsum("ivd,ivf->idf", query_side, query_side),
        interleaved,
    )
    # J_K's entries are (width e, dim d) = N_i[:, e] q_i[d].
    kk = total(
        jnp.einsum("ive,ivg->ieg", key_side, key_side),
        jnp.einsum("id,if->idf", query, query),
        interleaved,
    )
    qk = total(
        jnp.einsum("ir,if->irf", tokens, query),
        jnp.einsum("ivd,ive->ide", query_side, key_side),
        (0, 2, 3, 1),
    )
    qv = total(jnp.einsum("ir,ie->ire", tokens, mixed), query_side, (0, 3, 1, 2))
    kv = total(jnp.einsum("id,ie->ide", query, mixed), key_side, (3, 0, 1, 2))
    vv = jnp.einsum("ie,ig,vw->evgw", mixed, mixed, eye, optimize="optimal")
    vv = vv.reshape(kv.shape[1], kv.shape[1])
    return jnp.block([[qq, qk, qv], [qk.T, kk, kv], [qv.T, kv.T, vv]])


def _column_gram_by_rows(parts: Factors) -> Float[Array, "columns columns"]:
    """J^T J where a key map leaves no other structure than J's rows, a few of them at a time."""
    gram: Array | float = 0.0
    for rows, _ in _blocks(len(parts.tokens)):
        block = jacobian_columns(of_tokens(parts, rows))
        gram = gram + block.T @ block
    assert isinstance(gram, jax.Array)
    return gram
