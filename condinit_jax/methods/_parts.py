"""Kernels of a whole network found by the ends of their paths, and drawn anew layer by layer.

Shared by the methods that scale kernels with the depth. Names and shapes are all that is read, so
the same patterns serve linen dictionaries, flattened ones, NNX states and boxed leaves.
"""

import dataclasses
import fnmatch
import functools
import hashlib
import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.initializers import Initializer
from condinit_jax.kernels import ROLES
from condinit_jax.leaves import names_of, placed_as

QUERY_KEY = ("query/kernel", "key/kernel")
VALUE_OUT = ("value/kernel", "out/kernel")
MLP_IN = ("fc1/kernel", "MlpBlock_*/Dense_0/kernel")
MLP_OUT = ("fc2/kernel", "MlpBlock_*/Dense_1/kernel")
"""Ends of paths in this package's models and in Flax's vision transformers (`MlpBlock_*`)."""

DEFAULTS = frozenset(
    {
        QUERY_KEY,
        VALUE_OUT,
        MLP_IN + MLP_OUT,
        (*QUERY_KEY, "value/kernel"),
        ("out/kernel", *MLP_OUT),
    }
)
"""Groups that name more than one network has; of any other group every pattern must be found."""

_log = logging.getLogger("condinit_jax.methods")


def checked_patterns(*, counts: str, **groups: Iterable[str]) -> None:
    """Refuses what cannot be the end of a path.

    Args:
        counts: the group by which attention blocks are counted.
        **groups: by their fields, the ends of paths.

    Raises:
        ValueError: if a group is no collection of texts, a text is empty, or `counts` is.
    """
    for field, patterns in groups.items():
        texts = patterns if isinstance(patterns, tuple | list | set | frozenset) else (None,)
        if not all(isinstance(text, str) and text.strip("/") for text in texts):
            raise ValueError(
                f"{field} = {patterns!r}: must be a tuple of the ends of paths, such as "
                "('mlp/fc1/kernel',)"
            )
    if not groups[counts]:
        raise ValueError(f"{counts} = (): must name some kernels, which count the attention blocks")


@dataclasses.dataclass(frozen=True)
class Part:
    """A kernel of a network, of one layer or of a stack of layers.

    Attributes:
        names: along its path.
        position: among the leaves of the tree.
        layer_axes: sizes of the leading axes that count layers; empty for a single one.
        shape: of one layer's kernel.
        flat: the (inputs, outputs) that `shape` stands for.
    """

    names: tuple[str, ...]
    position: int
    layer_axes: tuple[int, ...]
    shape: tuple[int, ...]
    flat: tuple[int, int]

    @property
    def path(self) -> str:
        """The names joined by "/"."""
        return "/".join(self.names)

    @property
    def layers(self) -> int:
        """How many kernels are stacked here."""
        return math.prod(self.layer_axes)


def find(
    leaves: Sequence[tuple[Any, Any]],
    field: str,
    patterns: Iterable[str],
    *,
    required: bool = True,
    whole: bool = False,
) -> list[Part]:
    """The kernels whose paths end in one of the patterns.

    Args:
        leaves: from `jax.tree_util.tree_flatten_with_path`.
        field: what the user calls the group of patterns.
        patterns: ends of paths, whole names joined by "/", each with `*` and `?` as in file names.
        required: whether it is a mistake if nothing is found.
        whole: whether the leaves stand outside of layers and have their outputs last, such as
            tables of embeddings and kernels of patches.

    Returns:
        The parts in the tree's order.

    Raises:
        UserError: if nothing is found and something is `required`, or if a pattern that is no
            default finds nothing.
    """
    patterns = tuple(patterns)
    found, unused = [], set(patterns)
    for position, (path, leaf) in enumerate(leaves):
        names = names_of(path)
        hits = [pattern for pattern in patterns if _ends(names, pattern)]
        if hits:
            shape = tuple(leaf.shape)
            if whole:
                flat = (math.prod(shape[:-1]), shape[-1])
                found.append(Part(names, position, (), shape, flat))
            else:
                found.append(_part(names, position, shape))
            unused -= set(hits)
    missing = sorted(unused) if required and patterns not in DEFAULTS else []
    if missing or (required and patterns and not found):
        paths = ", ".join("/".join(names_of(path)) for path, _ in leaves)
        shown = missing[0] if missing else ", ".join(patterns)
        raise UserError(
            f"config.init.{field}: no parameter's path ends in {shown}; there are {paths or 'none'}"
        )
    return found


def _ends(names: tuple[str, ...], pattern: str) -> bool:
    wanted = pattern.strip("/").split("/")
    last = names[-len(wanted) :]
    return len(last) == len(wanted) and all(map(fnmatch.fnmatchcase, last, wanted))


def _part(names: tuple[str, ...], position: int, shape: tuple[int, ...]) -> Part:
    """Reads which axes count layers: a role's kernel is per head or flat, any other is a matrix."""
    role = names[-2] if len(names) > 1 and names[-2] in ROLES else None
    axes = 3 if role is not None and len(shape) >= 3 else 2
    own = shape[max(len(shape) - axes, 0) :]
    inputs = 2 if role == "out" and len(own) == 3 else 1
    flat = (math.prod(own[:inputs]), math.prod(own[inputs:]))
    if len(own) < 2 or (role in ROLES[:3] and len(own) == 3 and own[1] > own[0]):
        raise UserError(
            f"{'/'.join(names)}: shape {shape} is neither (inputs, outputs) nor, for kernels of "
            "attention, (width, heads, dim), with any axes of layers in front"
        )
    return Part(names, position, shape[: len(shape) - len(own)], own, flat)


def blocks(parts: Iterable[Part]) -> int:
    """How many attention blocks some kernels of attention belong to, over all layers."""
    return sum({part.names[:-2]: part.layers for part in parts}.values())


def redraw(
    params: Any, key: Array, drawn: Mapping[int, tuple[Part, Initializer, float]], method: str
) -> Any:
    """The tree with some kernels drawn anew.

    A kernel's key comes from `key`, its path and its place in the stack alone, so that no draw
    depends on which other kernels there are, or on where an array lives.

    Args:
        params: the parameters.
        key: a key from `jax.random.key`.
        drawn: by position among the leaves, the part, an initializer of its flat kernel, and a
            factor on that.
        method: name for the log.

    Returns:
        A tree of the same structure; every other leaf is the same object.

    Raises:
        UserError: if a kernel that is to be drawn holds no floating numbers.
    """
    leaves, structure = jax.tree.flatten(params)
    for part, _, _ in drawn.values():
        dtype = leaves[part.position].dtype
        if not jnp.issubdtype(dtype, jnp.floating):
            raise UserError(f"{part.path}: dtype {dtype.name}: {method} needs a floating dtype")
    for alike in _alike(leaves, drawn):
        part, init, gain = alike[0]
        dtype = leaves[part.position].dtype
        kernels = _draw(key, [part for part, _, _ in alike], init, gain, dtype)
        start = 0
        for part, _, _ in alike:
            old = leaves[part.position]
            new = kernels[start : start + part.layers].reshape(old.shape)
            leaves[part.position] = placed_as(old, new)
            start += part.layers
    layers = sum(part.layers for part, _, _ in drawn.values())
    _log.info("%s: %d kernels drawn anew", method, layers)
    return jax.tree.unflatten(structure, leaves)


def _alike(
    leaves: Sequence[Any], drawn: Mapping[int, tuple[Part, Initializer, float]]
) -> list[list[tuple[Part, Initializer, float]]]:
    """What is drawn, grouped by shape and distribution, so that each group compiles as one."""
    groups = defaultdict(list)
    for part, init, gain in drawn.values():
        groups[part.flat, leaves[part.position].dtype, id(init), gain].append((part, init, gain))
    return list(groups.values())


def _draw(key: Array, alike: list[Part], init: Initializer, gain: float, dtype: Any) -> Array:
    """The kernels of all layers of some parts, one below the other."""
    # Scaled before it is rounded: a factor of a rounded draw would round twice.
    wide = dtype if jnp.finfo(dtype).bits >= 32 else jnp.dtype(jnp.float32)
    words = [
        (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"), layer)
        for part in alike
        for digest in [hashlib.sha256(part.path.encode()).digest()]
        for layer in range(part.layers)
    ]

    def one(own: Array) -> Array:
        its_key = functools.reduce(jax.random.fold_in, own, key)
        return (gain * init(its_key, alike[0].flat, wide)).astype(dtype)

    return jax.vmap(one)(jnp.asarray(np.array(words, np.uint32)))
