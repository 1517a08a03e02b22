"""Semi-orthogonal heads: the query and key kernels of conditioned initialization."""

import math
from typing import Any

from jaxtyping import Array

from condinit_jax.initializers._draw import Initializer, initializer
from condinit_jax.initializers._orthonormal import orthonormal
from condinit_jax.kernels import head_shape


def semi_orthogonal(num_heads: int = 1) -> Initializer:
    r"""Every head an independent, uniformly drawn semi-orthogonal matrix.

    A head W in R^{D x d} satisfies W^T W = I_d, so that all its singular values and its condition
    number are 1. It has the law of U V^T for a Gaussian R = U S V^T. A head wider than its input
    (d > D) has orthonormal rows instead: W W^T = I_D.

    With one head on a kernel of all heads this is the usual flat orthogonal initializer; then the
    heads are parts of one orthogonal matrix, and semi-orthogonal only where H*d <= D.

    Args:
        num_heads: H, the heads side by side in the kernel.

    Returns:
        An initializer of kernels of shape (D, H*d) or (D, H, d), any floating dtype (float16 and
        bfloat16 are rounded from float32). It raises ValueError if the shape does not hold H heads.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> kernel = semi_orthogonal(num_heads=12)(jax.random.key(0), (768, 768))
        >>> head = kernel.reshape(768, 12, 64)[:, 3]
        >>> bool(jnp.allclose(head.T @ head, jnp.eye(64), atol=1e-5))
        True

    References:
        Saratchandran and Lucey, Conditioned Initialization for Attention, ICLR 2026, proposition
        3.2 and the definition that follows it.
    """

    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        width, heads, head_dim = head_shape(shape, num_heads)
        rows, columns = max(width, head_dim), min(width, head_dim)
        frames = orthonormal(key, (heads, rows, columns), dtype)
        # Heads come first in the draw, so that each is contiguous while it is worked on.
        axes = (1, 0, 2) if width >= head_dim else (2, 0, 1)
        return frames.transpose(axes).reshape(shape)

    return initializer(draw)


def orthogonal() -> Initializer:
    """One orthogonal matrix for all heads at once, as `jax.nn.initializers.orthogonal` has it.

    Returns:
        An initializer of (D, H*d) or (D, H, d) kernels with orthonormal columns of the flat matrix,
        or orthonormal rows where H*d > D.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> kernel = orthogonal()(jax.random.key(0), (64, 4, 16)).reshape(64, 64)
        >>> bool(jnp.allclose(kernel.T @ kernel, jnp.eye(64), atol=1e-5))
        True

    References:
        Saxe, McClelland and Ganguli, 2013.
    """
    flat = semi_orthogonal(num_heads=1)

    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return flat(key, (shape[0], math.prod(shape[1:])), dtype).reshape(shape)

    return initializer(draw)
