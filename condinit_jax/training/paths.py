"""What the path of a leaf says about it.

Sharding, weight decay and trust ratios all need to know which leaves hold one slice per layer; a
path answers that in one place, so that modules carry no annotations.
"""

import jax

LAYER_STACKS = frozenset({"blocks"})
"""Modules whose parameters carry a leading axis with one slice per layer."""


def path_names(path: tuple) -> tuple[str, ...]:
    """Names along a key path.

    Args:
        path: Key path as given by `jax.tree_util.tree_map_with_path`.

    Returns:
        One name per key, outermost first.

    Example:
        >>> tree = {"blocks": {"mlp": {"kernel": 0}}}
        >>> [path_names(path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
        [('blocks', 'mlp', 'kernel')]
    """
    return tuple(jax.tree_util.keystr((key,), simple=True) for key in path)


def is_stacked(path: tuple) -> bool:
    """Whether the first axis of the leaf at this path counts layers.

    Args:
        path: Key path as given by `jax.tree_util.tree_map_with_path`.

    Returns:
        True for leaves below a module that scans over its layers.
    """
    return not LAYER_STACKS.isdisjoint(path_names(path))
