"""Mimetic initialization: attention that looks as trained attention does."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.initializers._indivisible import indivisible
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods._factors import (
    factors,
    noisy_identity,
    query_key_shape,
    replaced,
    require_target,
    value_out_shape,
    wide_dtype,
)
from condinit_jax.methods._method import Method, checked_roles


def mimetic(
    query_key_noise: float = 0.7,
    query_key_identity: float = 0.7,
    value_out_noise: float = 0.4,
    value_out_identity: float = 0.4,
    kernels: Collection[str] = ROLES,
) -> Method:
    r"""Heads whose W_Q W_K^T is nearly the identity, and W_V W_O nearly minus the identity.

    Tokens are rows, x -> x W. Every Z is a fresh D x D matrix with entries N(0, 1/D).

    * Per head, W_Q W_K^T is the best approximation of rank d of M = alpha_1 Z + beta_1 I = U S V^T:
      W_Q is the first d columns of U S^1/2, W_K of V S^1/2. Cutting to rank d leaves less of the
      diagonal than beta_1: about 0.40 of 0.7 at D = 192, d = 64.
    * Over all heads at once, W_V W_O = alpha_2 Z - beta_2 I = U S V^T with W_V = U S^1/2 of shape
      (D, H*d) and W_O = S^1/2 V^T of shape (H*d, D); head h has the singular directions h*d to
      (h+1)*d, largest first. Where H*d < D it is the best approximation of that rank.

    The model goes on scaling its logits by 1/sqrt(d). The small-data recipes of the paper use
    sine-cosine position embeddings.

    Where d > D, or H*d > D, both factors are turned by one random semi-orthogonal matrix: the
    product stays, and no column is zero. This is ours; the paper has no such case.

    Args:
        query_key_noise: alpha_1.
        query_key_identity: beta_1; may be negative.
        value_out_noise: alpha_2.
        value_out_identity: beta_2, which is subtracted; may be negative.
        kernels: which of query, key, value and out to rewrite. A kernel is drawn the same with and
            without its partner.

    Returns:
        A method for blocks with an out kernel (unless value and out are left alone) in which query
        and key read the same width, out gives the width that value reads, and every query head has
        a key head of its own; for others it raises ValueError.

    Raises:
        ValueError: if a noise is negative, a number not finite, or `kernels` holds another name.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = AttentionKernels(zeros, zeros, zeros, jnp.zeros((4, 16, 64)))
        >>> block = mimetic()(jax.random.key(0), block)
        >>> product = block.value.reshape(64, 64) @ block.out.reshape(64, 64)
        >>> bool(abs(product.diagonal().mean() + 0.4) < 0.05)
        True

    References:
        Trockman and Kolter, Mimetic Initialization of Self-Attention Layers, ICML 2023
        (https://arxiv.org/abs/2305.09828), section 3. Code that derives from the authors' draws Z
        uniform with the same variance, and in one place stores W_V and W_O untransposed; the
        authors' own repository was not read.
    """
    roles = checked_roles(kernels)
    require_target(("query_key_noise", query_key_noise), ("query_key_identity", query_key_identity))
    require_target(("value_out_noise", value_out_noise), ("value_out_identity", value_out_identity))

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        drawn: dict[Role, Array] = {}
        if {"query", "key"} & set(roles):
            drawn |= query_key("mimetic", key, kernels, query_key_noise, query_key_identity)
        if {"value", "out"} & set(roles):
            drawn |= value_out("mimetic", key, kernels, value_out_noise, value_out_identity)
        return replaced(kernels, roles, drawn)

    return method


def query_key(
    method: str, key: Array, kernels: AttentionKernels, noise: float, identity: float
) -> dict[Role, Array]:
    """Query and key, per head the factors of noise Z + identity I, in the block's wide dtype."""
    width, heads, head_dim = query_key_shape(method, kernels)
    drawn = indivisible(
        _draw_query_key,
        jax.random.fold_in(key, ROLES.index("query")),
        (width, heads, head_dim),
        (float(noise), float(identity)),
        wide_dtype(kernels),
    )
    return {"query": drawn[0], "key": drawn[1]}


def value_out(
    method: str, key: Array, kernels: AttentionKernels, noise: float, identity: float
) -> dict[Role, Array]:
    """Value and out, together the factors of noise Z - identity I, in the block's wide dtype."""
    width, columns = value_out_shape(method, kernels)
    drawn = indivisible(
        _draw_value_out,
        jax.random.fold_in(key, ROLES.index("value")),
        (width, columns),
        (float(noise), -float(identity)),
        wide_dtype(kernels),
    )
    return {"value": drawn[0], "out": drawn[1].T}


def _draw_query_key(
    keys: Array, shape: tuple[int, int, int], target: tuple[float, float], dtype: Any
) -> Array:
    """(batch, 2, D, H, d)."""
    width, heads, head_dim = shape

    def head(key: Array) -> Array:
        own, turn = jax.random.split(key)
        matrix = noisy_identity(own, width, *target, dtype)
        return jnp.stack(factors(turn, matrix, head_dim))

    def block(key: Array) -> Array:
        own = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(heads))
        return jax.lax.map(head, own).transpose(1, 2, 0, 3)

    return jax.lax.map(block, keys)


def _draw_value_out(
    keys: Array, shape: tuple[int, int], target: tuple[float, float], dtype: Any
) -> Array:
    """(batch, 2, D, H*d); the second is out transposed."""
    width, columns = shape

    def block(key: Array) -> Array:
        own, turn = jax.random.split(key)
        return jnp.stack(factors(turn, noisy_identity(own, width, *target, dtype), columns))

    return jax.lax.map(block, keys)
