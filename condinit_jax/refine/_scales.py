"""One factor per parameter tensor, or per layer of a stacked one: what a refinement learns."""

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

Stacked: TypeAlias = Callable[[tuple], bool]
"""Whether the first axis of the leaf at a key path counts layers."""

BIAS = "bias"
"""Leaves of this name may be scaled down to 0, as in the official codes."""


def unit_scales(params: Any, stacked: Stacked) -> Any:
    """Factors that change nothing.

    Args:
        params: A tree of arrays.
        stacked: Which leaves hold one slice per layer, by their key path.

    Returns:
        A tree of the same structure: for a stacked leaf one 1 per layer, for any other a scalar 1;
        float32, or the leaf's dtype where that is wider.

    Example:
        >>> params = {"blocks": jnp.ones((2, 3)), "head": jnp.ones(4)}
        >>> scales = unit_scales(params, lambda path: path[0].key == "blocks")
        >>> scales["blocks"].tolist(), float(scales["head"])
        ([1.0, 1.0], 1.0)
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.ones(
            leaf.shape[:1] if stacked(path) else (), jnp.promote_types(leaf.dtype, jnp.float32)
        ),
        params,
    )


def scaled(params: Any, scales: Any) -> Any:
    """Parameters times their factors.

    Args:
        params: A tree of arrays.
        scales: As `unit_scales` gives them, of any values.

    Returns:
        A tree with the shapes and dtypes of `params`.

    Example:
        >>> scaled({"w": jnp.ones((2, 2))}, {"w": jnp.array([1.0, 3.0])})["w"].tolist()
        [[1.0, 1.0], [3.0, 3.0]]
    """
    return jax.tree.map(lambda leaf, s: (leaf * _like(s, leaf)).astype(leaf.dtype), params, scales)


def effective(params: Any, scales: Any) -> Any:
    """Which factors change anything: those of slices that are not all zero.

    Args:
        params: A tree of arrays.
        scales: As `unit_scales` gives them.

    Returns:
        Booleans with the structure and shapes of `scales`.

    Example:
        >>> params = {"w": jnp.array([[0.0, 0.0], [0.0, 5.0]])}
        >>> effective(params, {"w": jnp.ones(2)})["w"].tolist()
        [False, True]
    """
    return jax.tree.map(
        lambda leaf, s: jnp.any(leaf != 0, axis=tuple(range(s.ndim, leaf.ndim))), params, scales
    )


def floors(scales: Any, least: float) -> Any:
    """The smallest value of each factor: `least`, and 0 for biases.

    Args:
        scales: As `unit_scales` gives them.
        least: The bound of all that is not a bias.

    Returns:
        Numbers with the structure of `scales`.

    Example:
        >>> floors({"kernel": jnp.ones(()), "bias": jnp.ones(())}, 0.01)
        {'bias': 0.0, 'kernel': 0.01}
    """
    return jax.tree_util.tree_map_with_path(
        lambda path, _: 0.0 if jax.tree_util.keystr(path[-1:], simple=True) == BIAS else least,
        scales,
    )


def _like(scale: jax.Array, leaf: jax.Array) -> jax.Array:
    """A factor with axes of length 1 for all that it does not tell apart."""
    return scale.reshape(scale.shape + (1,) * (leaf.ndim - scale.ndim))
