"""The rectangular identity: the value kernel of conditioned initialization."""

import math
from typing import Any, Literal, get_args

import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.initializers._draw import Initializer, initializer
from condinit_jax.kernels import head_shape

Layout = Literal["per_head", "joint"]


def rectangular_identity(
    num_heads: int = 1, layout: Layout = "per_head", scale: float = 1.0
) -> Initializer:
    """Ones on the main diagonal, zeros elsewhere; no randomness.

    Every head's condition number is 1 in both layouts; the stacked kernels differ:

    * `per_head`, the paper's text: each head is I_{D x d}, so all heads read the first d
      coordinates and the stacked (D, H*d) kernel has rank min(D, d).
    * `joint`: one I_{D x H*d} cut into heads, so head h reads coordinates h*d to (h+1)*d and the
      stacked kernel has rank H*d.

    Args:
        num_heads: H, the heads side by side in the kernel.
        layout: `per_head` or `joint`.
        scale: the value on the diagonal (the lambda of proposition 3.2).

    Returns:
        An initializer of kernels of shape (D, H*d) or (D, H, d), any floating dtype, that ignores
        its key. It raises ValueError if the shape does not hold H heads, or if the layout is
        `joint` and H*d > D, where the last heads would have no coordinates left to read.

    Raises:
        ValueError: if `layout` is neither of the two, or `scale` not finite.

    Example:
        >>> import jax
        >>> key = jax.random.key(0)
        >>> rectangular_identity(num_heads=2)(key, (4, 4)).astype(int).tolist()
        [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
        >>> rectangular_identity(num_heads=2, layout="joint")(key, (4, 4)).astype(int).tolist()
        [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]

    References:
        Saratchandran and Lucey, Conditioned Initialization for Attention, ICLR 2026, proposition
        3.2 and the definition that follows it.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"layout = {layout!r}: must be one of {', '.join(get_args(Layout))}")

    if not math.isfinite(scale):
        raise ValueError(f"scale = {scale}: must be a finite number")

    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        del key
        width, heads, head_dim = head_shape(shape, num_heads)
        if layout == "joint":
            if heads * head_dim > width:
                raise ValueError(
                    f"layout 'joint' needs heads * head width <= width, got {heads} * {head_dim} > "
                    f"{width}: the last heads would read nothing; use 'per_head'"
                )
            return (scale * jnp.eye(width, heads * head_dim, dtype=dtype)).reshape(shape)
        head = scale * jnp.eye(width, head_dim, dtype=dtype)
        return jnp.tile(head, heads).reshape(shape)

    return initializer(draw)
