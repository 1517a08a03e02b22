"""The initialization with which transformers train without skip connections."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.initializers._indivisible import indivisible
from condinit_jax.initializers._orthonormal import orthonormal_columns
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods._factors import (
    matmul,
    replaced,
    require_finite,
    require_target,
    value_out_shape,
    wide_dtype,
)
from condinit_jax.methods._method import Method, checked_roles
from condinit_jax.methods._mimetic import query_key


def skipless(
    query_key_noise: float = 2.0,
    query_key_identity: float = 0.6,
    value_gain: float = 3.0,
    kernels: Collection[str] = ROLES,
) -> Method:
    r"""W_V W_O a scaled orthogonal matrix, and W_Q W_K^T diagonally dominant as in mimetic.

    W_V = c U and W_O = c V^T with U and V from one Gaussian D x D matrix U S V^T, so that all
    singular values of W_V W_O are c^2. U and V are drawn here as two independent uniform orthogonal
    matrices: for a Gaussian matrix that is their law, but for signs of columns that the product
    does not see. Per head, W_Q W_K^T is the best approximation of rank d of a Z + b I, as in
    `mimetic`.

    Where H*d < D, U and V are semi-orthogonal, (D, H*d), and W_V W_O has H*d singular values c^2
    and otherwise zeros. Where H*d > D, W_V = c R^T and W_O = c R V^T with R semi-orthogonal,
    (H*d, D): again all singular values of the product are c^2. Both are ours; the paper has H*d = D
    only.

    The method does not take the skip connections out of a model: it initialises one.

    Args:
        query_key_noise: a.
        query_key_identity: b.
        value_gain: c; the defaults of a, b and c are those for ViT-B.
        kernels: which of query, key, value and out to rewrite. A kernel is drawn the same with and
            without its partner.

    Returns:
        A method for the blocks that `mimetic` takes; for others it raises ValueError.

    Raises:
        ValueError: if a noise is negative, a number not finite or the gain zero, or if `kernels`
            holds another name.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = AttentionKernels(zeros, zeros, zeros, jnp.zeros((4, 16, 64)))
        >>> block = skipless()(jax.random.key(0), block)
        >>> product = block.value.reshape(64, 64) @ block.out.reshape(64, 64)
        >>> bool(abs(jnp.linalg.svd(product)[1] - 9).max() < 1e-3)
        True

    References:
        Ji et al., Cutting the Skip: Training Residual-Free Transformers, ICLR 2026
        (https://arxiv.org/abs/2510.00345). The defaults for ViT-B were taken from notes on the
        paper and are not confirmed; no official code was found.
    """
    roles = checked_roles(kernels)
    require_target(("query_key_noise", query_key_noise), ("query_key_identity", query_key_identity))
    require_finite(value_gain=value_gain)
    if value_gain == 0:
        raise ValueError("value_gain = 0: leaves value and out without a gradient")

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        drawn: dict[Role, Array] = {}
        if {"query", "key"} & set(roles):
            drawn |= query_key("skipless", key, kernels, query_key_noise, query_key_identity)
        if {"value", "out"} & set(roles):
            shape = value_out_shape("skipless", kernels)
            pair = indivisible(
                _draw_value_out,
                jax.random.fold_in(key, ROLES.index("value")),
                shape,
                wide_dtype(kernels),
            )
            drawn |= {"value": value_gain * pair[0], "out": value_gain * pair[1].T}
        return replaced(kernels, roles, drawn)

    return method


def _draw_value_out(keys: Array, shape: tuple[int, int], dtype: Any) -> Array:
    """(batch, 2, D, H*d); the second is out transposed."""
    width, columns = shape

    def block(key: Array) -> Array:
        first, second = jax.random.split(key)
        if columns <= width:
            return orthonormal_columns(jax.random.normal(key, (2, width, columns), dtype))
        turn = orthonormal_columns(jax.random.normal(first, (1, columns, width), dtype))[0]
        right = orthonormal_columns(jax.random.normal(second, (1, width, width), dtype))[0]
        return jnp.stack([turn.T, matmul(right, turn.T)])

    return jax.lax.map(block, keys)
