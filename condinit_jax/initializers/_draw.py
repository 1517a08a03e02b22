"""What every initializer shares: in which precision to draw, and how to hand the kernel over."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jaxtyping import Array


class Initializer(Protocol):
    """A pure function from a key and a shape to a kernel, as `jax.nn.initializers` has them."""

    def __call__(
        self, key: Array, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> Array:
        """Draws the kernel."""
        ...


def initializer(draw: Callable[[Array, tuple[int, ...], Any], Array]) -> Initializer:
    """Makes an initializer of a drawing rule that may assume float32 or float64.

    A kernel kept in bfloat16 or float16 is drawn in float32 and rounded once: QR has no bfloat16,
    and a distribution drawn in 8 bits of mantissa does not have its stated moments.

    Args:
        draw: gives a kernel of the given shape in the given dtype, which is float32 or wider.

    Returns:
        The initializer.
    """

    def init(
        key: Array, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> Array:
        dtype = jnp.dtype(jnp.float32 if dtype is None else dtype)
        if not jnp.issubdtype(dtype, jnp.floating):
            raise ValueError(f"dtype = {dtype.name}: an attention kernel needs a floating dtype")
        if 0 in shape:
            raise ValueError(f"shape = {tuple(shape)}: an attention kernel of that shape is empty")
        wide = dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)
        kernel = draw(key, tuple(shape), wide).astype(dtype)
        return kernel if out_sharding is None else jax.sharding.reshard(kernel, out_sharding)

    return init
