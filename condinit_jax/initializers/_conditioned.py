"""Conditioned initialization as a Flax `kernel_init`."""

from collections.abc import Sequence
from typing import Any, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.initializers._draw import Initializer
from condinit_jax.initializers._flax_role import enclosing_role
from condinit_jax.initializers._rectangular_identity import Layout, rectangular_identity
from condinit_jax.initializers._semi_orthogonal import semi_orthogonal
from condinit_jax.kernels import ROLES, Role


def conditioned(
    value: Layout = "per_head",
    out: Initializer | None = None,
    role: Role | None = None,
    num_heads: int | None = None,
) -> Initializer:
    """Query and key heads semi-orthogonal, value heads the rectangular identity.

    Handed to an unmodified `flax.linen.MultiHeadDotProductAttention` as `kernel_init`, it learns
    from the enclosing module which kernel it is asked for. With `role` and `num_heads` it is a pure
    function that knows nothing of Flax. For a model that is already built, for NNX, or for kernels
    under other names, use `condinit_jax.reinitialize` instead.

    Args:
        value: `per_head` gives every head I_{D x d}, the paper's text; `joint` cuts one
            I_{D x H*d} into heads. See `rectangular_identity`.
        out: initializer of the out kernel where the attention passes none of its own; None means
            the one Flax would have used (`jax.nn.initializers.lecun_normal()`). The method itself
            leaves the out kernel alone.
        role: `query`, `key`, `value` or `out`; None asks the enclosing linen module.
        num_heads: H; None asks the enclosing linen module.

    Returns:
        An initializer of (D, H*d) or (D, H, d) kernels. It raises ValueError, saying what to write
        instead, where the role or the head count is neither given nor known to Flax.

    Raises:
        ValueError: if `value` or `role` is not one of the names above.

    Example:
        >>> import flax.linen as nn
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=4, kernel_init=conditioned())
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 10, 64)))["params"]
        >>> head = params["query"]["kernel"][:, 0]  # (64, 16)
        >>> bool(jnp.allclose(head.T @ head, jnp.eye(16), atol=1e-5))
        True
        >>> bool((params["value"]["kernel"][:, 0] == jnp.eye(64, 16)).all())
        True

    References:
        Saratchandran and Lucey, Conditioned Initialization for Attention, ICLR 2026, section 3.
    """
    if not isinstance(value, str):
        raise ValueError("conditioned is a factory: write conditioned(), with parentheses")
    if value not in get_args(Layout):
        raise ValueError(f"value = {value!r}: must be one of {', '.join(get_args(Layout))}")
    if role is not None and role not in ROLES:
        raise ValueError(f"role = {role!r}: must be one of {', '.join(ROLES)}")

    def init(
        key: Array, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None
    ) -> Array:
        known_role, heads = _role_and_heads(role, num_heads)
        if known_role == "out":
            draw = out or jax.nn.initializers.lecun_normal()
        elif known_role == "value":
            draw = rectangular_identity(heads, value)
        else:
            draw = semi_orthogonal(heads)
        # Initializers of three arguments, as Flax has long taken them, are welcome as `out`.
        sharding = () if out_sharding is None else (out_sharding,)
        return draw(key, shape, dtype, *sharding)

    return init


def _role_and_heads(role: Role | None, num_heads: int | None) -> tuple[Role, int]:
    if role == "out":
        return role, 1  # the out kernel's initializer has no heads to tell apart
    if role is not None and num_heads is not None:
        return role, num_heads
    found = enclosing_role()
    if found is None:
        raise ValueError(
            "conditioned() cannot tell which kernel it initialises: it is not called by a linen "
            "layer named query, key, value or out inside a module with num_heads. Write "
            "conditioned(role='query', num_heads=H) for each kernel, or build the model first and "
            "call condinit_jax.reinitialize(params, key, condinit_jax.methods.conditioned()) "
            "(for NNX: nnx.update(model, condinit_jax.reinitialize(nnx.state(model, nnx.Param), "
            "key, condinit_jax.methods.conditioned())))"
        )
    return role or found.role, found.num_heads if num_heads is None else num_heads
