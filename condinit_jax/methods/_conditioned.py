"""Conditioned initialization as a method on attention blocks."""

from collections.abc import Collection

from jaxtyping import Array

from condinit_jax import initializers
from condinit_jax.initializers._rectangular_identity import Layout
from condinit_jax.kernels import AttentionKernels
from condinit_jax.methods._method import INPUTS, Method, checked_roles, rewrite


def conditioned(value: Layout = "per_head", kernels: Collection[str] = INPUTS) -> Method:
    """Query and key heads semi-orthogonal, value heads the rectangular identity.

    Each head of the query and of the key kernel is an independent draw with W^T W = I_d; the value
    kernel is I_{D x d} in every head, or one I_{D x H*d} cut into heads. The out kernel, biases and
    everything else stay as they are. The same law as `condinit_jax.conditioned()` gives.

    Args:
        value: `per_head` (the paper's text) or `joint`; see `rectangular_identity`.
        kernels: which of query, key and value to rewrite.

    Returns:
        A method for blocks of any head counts and widths, grouped queries included.

    Raises:
        ValueError: if `value` or `kernels` holds another name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = conditioned()(jax.random.key(0), AttentionKernels(zeros, zeros, zeros))
        >>> bool((block.value[:, 2] == jnp.eye(64, 16)).all()), block.out
        (True, None)

    References:
        Saratchandran and Lucey, Conditioned Initialization for Attention, ICLR 2026, section 3.
    """
    roles = checked_roles(kernels)
    if "out" in roles:
        raise ValueError("kernels = 'out': conditioned initialization leaves the out kernel alone")
    initializers.rectangular_identity(layout=value)  # refuses an unknown layout here, not later

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        rules = {
            "query": initializers.semi_orthogonal(kernels.query.shape[1]),
            "key": initializers.semi_orthogonal(kernels.key.shape[1]),
            "value": initializers.rectangular_identity(kernels.value.shape[1], value),
        }
        return rewrite(key, kernels, {role: rules[role] for role in roles})

    return method
