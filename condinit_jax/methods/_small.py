"""Small initialization: a deviation that falls with the fan-in faster than usual."""

from collections.abc import Collection

from condinit_jax import initializers
from condinit_jax.methods._method import INPUTS, Method
from condinit_jax.methods._plain import lifted


def small(gamma: float = 1.0, kernels: Collection[str] = INPUTS) -> Method:
    """Normal entries of deviation fan_in^-gamma on each named kernel.

    Args:
        gamma: 0.5 is the usual scaling (`lecun_normal`), 1 is small.
        kernels: which of query, key, value and out to rewrite.

    Returns:
        A method for blocks of any head counts and widths.

    Raises:
        ValueError: if `gamma` is negative or `kernels` holds another name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((100, 4, 25))
        >>> block = small()(jax.random.key(0), AttentionKernels(zeros, zeros, zeros))
        >>> round(float(block.query.std()), 3)
        0.01

    References:
        Hang et al., Small Initialization Matters for Large Language Models, 2026
        (https://arxiv.org/abs/2606.17945).
    """
    return lifted(initializers.small(gamma), kernels)
