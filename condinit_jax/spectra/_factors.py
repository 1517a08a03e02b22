r"""The parts of a softmax head's Jacobian, token by token.

Row block i of J (the v outputs of query token i) is

    J_Q = x_i^T (x) M_i F_i,   J_K = sum_l b_il (x) (G_l^T q_i) (x) y_l,   J_V = (P Y)_i^T (x) I_v

with b_il = p_il (v_l - sum_m p_im v_m) column l of V^T Lambda(p_i), M_i = scale V^T Lambda(p_i) K,
and F_i, G_l the derivatives of the query and key maps at their tokens. Without a key map the middle
sum is N_i (x) q_i^T with N_i = scale V^T Lambda(p_i) Y. (The paper's Appendix writes the same with
Kronecker products and the commutation matrix.)
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from condinit_jax.spectra._head import Head, TokenMap, namespace, project


class Factors(NamedTuple):
    """What the Jacobian is made of.

    Attributes:
        tokens: X, (N, D).
        context: Y, (M, E).
        query_side: M_i F_i, (N, v, d).
        key_side: N_i, (N, v, E); None where there is a key map.
        softmax_side: scale b_il, (N, v, M); None where there is no key map.
        query: q_i, (N, d).
        key_derivative: G_l, (M, d, d), or None.
        mixed: P Y, (N, E).
    """

    tokens: Float[Array, "tokens width"]
    context: Float[Array, "context context_width"]
    query_side: Float[Array, "tokens value_dim dim"]
    key_side: Float[Array, "tokens value_dim context_width"] | None
    softmax_side: Float[Array, "tokens value_dim context"] | None
    query: Float[Array, "tokens dim"]
    key_derivative: Float[Array, "context dim dim"] | None
    mixed: Float[Array, "tokens context_width"]


def factors(head: Head) -> Factors:
    """The factors of the Jacobian of one head.

    Pure, runs inside `jit`; for a head of NumPy arrays without maps by NumPy alone, which needs no
    compilation.
    """
    parts = project(head)
    context = head.keys_from
    query_side: Any
    other: Any

    def of_token(weights: Array) -> tuple[Array, Array]:
        # Lambda(p) has the null vector 1, so centring is free, and saves digits where tokens are
        # nearly equal.
        centred = parts.value - weights @ parts.value
        softmax_side = parts.scale * (centred.T * weights)
        query_side = softmax_side @ (parts.key - weights @ parts.key)
        if head.key_map is not None:
            return query_side, softmax_side
        return query_side, softmax_side @ (context - weights @ context)

    if namespace(head) is np:
        query_side, other = map(np.stack, zip(*map(of_token, parts.weights), strict=True))
    else:
        query_side, other = jax.lax.map(of_token, parts.weights, batch_size=16)
    if head.query_map is not None:
        derivative = token_derivative(head.query_map, parts.raw_query)
        query_side = jnp.einsum("ivd,ide->ive", query_side, derivative)
    mapped = head.key_map is not None
    return Factors(
        tokens=head.tokens,
        context=context,
        query_side=query_side,
        key_side=None if mapped else other,
        softmax_side=other if mapped else None,
        query=parts.query,
        key_derivative=token_derivative(head.key_map, parts.raw_key) if head.key_map else None,
        mixed=parts.weights @ context,
    )


def token_derivative(
    token_map: TokenMap, values: Float[Array, "tokens dim"]
) -> Float[Array, "tokens dim dim"]:
    """For each token, the derivative (outputs, inputs) of a map that treats every token alone."""

    def column(direction: Array) -> Array:
        return jax.jvp(token_map, (values,), (jnp.broadcast_to(direction, values.shape),))[1]

    return jnp.moveaxis(jax.lax.map(column, jnp.eye(values.shape[-1], dtype=values.dtype)), 0, -1)


def slices(count: int, parts: int) -> list[slice]:
    """An axis of some entries in so many parts of about one length; where short, some are empty."""
    edges = [count * step // parts for step in range(parts + 1)]
    return [slice(start, stop) for start, stop in itertools.pairwise(edges)]


def of_tokens(parts: Factors, rows: slice) -> Factors:
    """The factors of the rows of J that belong to some query tokens."""
    return parts._replace(
        tokens=parts.tokens[rows],
        query_side=parts.query_side[rows],
        key_side=None if parts.key_side is None else parts.key_side[rows],
        softmax_side=None if parts.softmax_side is None else parts.softmax_side[rows],
        query=parts.query[rows],
        mixed=parts.mixed[rows],
    )


def jacobian_columns(
    parts: Factors,
    query_widths: slice = slice(None),
    context_widths: slice = slice(None),
) -> Float[Array, "rows columns"]:
    """The columns of J that belong to some coordinates of the tokens and of the context.

    Args:
        parts: The factors.
        query_widths: Rows of the query kernel to differentiate in.
        context_widths: Rows of the key and value kernels.

    Returns:
        (N v, d D' + d E' + v E') for D' and E' coordinates: columns of the query kernel's rows
        first, then of the key's, then of the value's, each in C order.
    """
    xp = namespace(parts)
    rows = parts.query_side.shape[0] * parts.query_side.shape[1]
    query = xp.einsum("ir,ivd->ivrd", parts.tokens[:, query_widths], parts.query_side)
    key = key_columns(parts, context_widths)
    value = value_columns(parts, context_widths)
    return xp.concatenate([query.reshape(rows, -1), key.reshape(rows, -1), value], axis=1)


def key_columns(parts: Factors, widths: slice) -> Float[Array, "tokens value_dim width dim"]:
    """J_K for some rows of the key kernel, not yet a matrix."""
    if parts.key_side is not None:
        xp = namespace(parts)
        return xp.einsum("ive,id->ived", parts.key_side[:, :, widths], parts.query)
    assert parts.softmax_side is not None
    assert parts.key_derivative is not None
    context, derivative = parts.context[:, widths], parts.key_derivative

    def of_token(inputs: tuple[Array, Array]) -> Array:
        softmax_side, query = inputs
        pulled = jnp.einsum("lcd,c->ld", derivative, query)
        return jnp.einsum("vl,ld,le->ved", softmax_side, pulled, context, optimize="optimal")

    return jax.lax.map(of_token, (parts.softmax_side, parts.query), batch_size=4)


def value_columns(parts: Factors, widths: slice) -> Float[Array, "rows columns"]:
    """The columns of J that belong to some rows of the value kernel."""
    xp = namespace(parts)
    value_dim = parts.query_side.shape[1]
    eye = xp.eye(value_dim, dtype=parts.mixed.dtype)
    value = xp.einsum("ie,vw->ivew", parts.mixed[:, widths], eye)
    return value.reshape(parts.mixed.shape[0] * value_dim, -1)
