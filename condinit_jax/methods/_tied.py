"""Queries and keys that start equal: an ablation of conditioned initialization."""

from collections.abc import Collection

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax import initializers
from condinit_jax.initializers._rectangular_identity import Layout
from condinit_jax.kernels import ROLES, AttentionKernels, Role, flat_shape
from condinit_jax.methods._factors import replaced, require_finite, wide_dtype
from condinit_jax.methods._method import INPUTS, Method, checked_roles, rewrite


def tied(
    gain: float = 2.0, value: Layout = "per_head", kernels: Collection[str] = INPUTS
) -> Method:
    """Query and key heads equal, a gain times one semi-orthogonal matrix; value as conditioned.

    Each key head is a fresh W with W^T W = gain^2 I_d, and its query heads equal it, so that
    W_Q W_K^T = W W^T is gain^2 times a projection: every token attends most to those like itself,
    as the identity in `mimetic` has it, and every kernel's condition number stays 1. With grouped
    queries, all query heads of a group start equal.

    Args:
        gain: every singular value of a query or key head.
        value: `per_head` or `joint`; see `rectangular_identity`.
        kernels: which of query, key and value to rewrite; a query kernel alone is still the one
            that its key kernel would be.

    Returns:
        A method for blocks of any head counts; it raises ValueError where query and key read
        different widths.

    Raises:
        ValueError: if `gain` is not positive, or `value` or `kernels` holds another name.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = tied()(jax.random.key(0), AttentionKernels(zeros, zeros, zeros))
        >>> head = block.query[:, 3]
        >>> bool((head == block.key[:, 3]).all())
        True
        >>> bool(jnp.allclose(head.T @ head, 4 * jnp.eye(16), atol=1e-4))
        True

    References:
        None: an ablation of this package's own, no published method.
    """
    roles = checked_roles(kernels)
    if "out" in roles:
        raise ValueError("kernels = 'out': tied initialization leaves the out kernel alone")
    require_finite(gain=gain)
    if gain <= 0:
        raise ValueError(f"gain = {gain}: must be positive")
    initializers.rectangular_identity(layout=value)  # refuses an unknown layout here, not later

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        drawn: dict[Role, Array] = {}
        if {"query", "key"} & set(roles):
            query, keys = kernels.query, kernels.key
            if query.shape[0] != keys.shape[0]:
                raise ValueError(
                    f"tied: query reads width {query.shape[0]} and key {keys.shape[0]}; they "
                    "cannot be equal"
                )
            init = initializers.semi_orthogonal(keys.shape[1])
            own = jax.random.fold_in(key, ROLES.index("key"))
            frames = init(own, flat_shape(keys.shape, "key"), wide_dtype(kernels))
            heads = gain * frames.reshape(keys.shape)
            drawn["key"] = heads
            drawn["query"] = jnp.repeat(heads, query.shape[1] // keys.shape[1], axis=1)
        block = replaced(kernels, roles, drawn)
        if "value" not in roles:
            return block
        identity = initializers.rectangular_identity(kernels.value.shape[1], value)
        return rewrite(key, block, {"value": identity})

    return method
