"""The leaves of any parameter tree: the names along their paths, and where their arrays live.

Linen dictionaries, flattened ones, NNX states and boxed leaves differ in how a path is spelt; here
they read alike.
"""

from typing import Any

import jax
from jaxtyping import Array


def names_of(path: Any) -> tuple[str, ...]:
    """The names along a leaf's path; keys of flattened trees ("a/b" or tuples) are taken apart.

    Args:
        path: key path as given by `jax.tree_util.tree_flatten_with_path`.

    Returns:
        One name per node, outermost first, without the attribute in which a box keeps its array.

    Example:
        >>> leaves, _ = jax.tree_util.tree_flatten_with_path({"query/kernel": 0})
        >>> names_of(leaves[0][0])
        ('query', 'kernel')
    """
    # The last attribute of a box (`nn.Partitioned`, `nnx.Param`) is its array, not a name.
    if len(path) > 1 and isinstance(path[-1], jax.tree_util.GetAttrKey):
        path = path[:-1] if path[-1].name in ("value", "raw_value") else path
    names: list[str] = []
    for part in path:
        key = getattr(part, "key", getattr(part, "name", getattr(part, "idx", part)))
        for piece in key if isinstance(key, tuple) else (key,):
            names += str(piece).split("/")
    return tuple(names)


def by_names(tree: Any) -> dict[tuple[str, ...], Any]:
    """The leaves of a tree by the names along their paths."""
    return {names_of(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


def explicit_sharding(leaf: Any) -> Any:
    """The sharding in a traced array's type, where an explicit mesh gives it one."""
    if not isinstance(leaf, jax.core.Tracer):
        return None
    sharding = jax.typeof(leaf).sharding
    return sharding if sharding.mesh.are_all_axes_explicit else None


def placed_as(old: Any, new: Array) -> Array:
    """The new leaf where the old one was; inside a jit with automatic meshes the jit decides."""
    if sharding := explicit_sharding(old):
        return jax.sharding.reshard(new, sharding)
    if isinstance(old, jax.Array) and not isinstance(old, jax.core.Tracer) and old.committed:
        return jax.device_put(new, old.sharding)
    return new
