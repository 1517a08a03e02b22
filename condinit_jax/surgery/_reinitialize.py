"""Rewriting the attention kernels of a parameter tree."""

import hashlib
import logging
from collections import defaultdict
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods import Method
from condinit_jax.surgery._blocks import (
    AttentionBlock,
    Where,
    describe,
    kernel_positions,
    nothing_found,
    selected,
)

Params = TypeVar("Params")

_log = logging.getLogger("condinit_jax.surgery")


def reinitialize(
    params: Params,
    key: Array,
    method: Method,
    where: Where | None = None,
    *,
    num_heads: int | None = None,
) -> Params:
    """Rewrites the attention kernels of a parameter tree with a method from `condinit_jax.methods`.

    Works on linen parameters (also under `nn.scan`, `nn.vmap` and `nn.remat`), NNX states, boxed
    leaves, cross-attention, key and value inputs of other widths, and grouped queries. It is pure
    and may be called inside the `jit` that initialises the model, with output shardings. How many
    blocks were changed is logged at level INFO by the logger `condinit_jax.surgery`, and
    `attention_blocks` lists them.

    A block's key comes from `key` and its path alone, so that a kernel does not depend on which
    other blocks are there or chosen, and no two blocks, layers or kernels share a draw.

    Args:
        params: the tree; every kernel (D, H, d), out kernels (H, d, D), both with any number of
            leading layer axes.
        key: a key from `jax.random.key`.
        method: a pure function `(key, kernels) -> kernels`.
        where: a path prefix or a predicate of the path; None takes every block.
        num_heads: head count of blocks whose kernels are flat, (D, H*d) and (H*d, D); None for
            Flax's own layout.

    Returns:
        A tree of the same structure in which exactly the kernels that the method changes are new;
        every other leaf is the same object.

    Raises:
        UserError: if no block is found or `where` selects none (the message lists the paths that
            were looked at), or if a block's kernels do not fit each other.
        ValueError: if the method changes a shape or dtype.

    Example:
        >>> import flax.linen as nn, condinit_jax
        >>> layer = nn.MultiHeadDotProductAttention(num_heads=4)
        >>> params = layer.init(jax.random.key(0), jnp.ones((1, 10, 64)))["params"]
        >>> new = reinitialize(params, jax.random.key(1), condinit_jax.methods.conditioned())
        >>> bool((new["value"]["kernel"][:, 0] == jnp.eye(64, 16)).all())
        True
        >>> new["out"]["kernel"] is params["out"]["kernel"]
        True

        For NNX, the one line is

        >>> from flax import nnx
        >>> model = nnx.MultiHeadAttention(
        ...     num_heads=4, in_features=64, decode=False, rngs=nnx.Rngs(0)
        ... )
        >>> method = condinit_jax.methods.conditioned()
        >>> nnx.update(model, reinitialize(nnx.state(model), jax.random.key(1), method))
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    found = kernel_positions(leaves)
    chosen = {path: positions for path, positions in found.items() if selected(path, where)}
    if not chosen:
        raise UserError(nothing_found(leaves, found, where))

    blocks = {
        path: describe(path, {role: leaves[i][1] for role, i in positions.items()}, num_heads)
        for path, positions in chosen.items()
    }
    values = [leaf for _, leaf in leaves]
    for paths in _alike(blocks, values, chosen):
        _rewrite_group(values, [(blocks[path], chosen[path]) for path in paths], key, method)

    _log.info(
        "reinitialize: %d attention blocks under %d paths",
        sum(block.layers for block in blocks.values()),
        len(blocks),
    )
    return cast(Params, jax.tree_util.tree_unflatten(structure, values))


def _rewrite_group(
    values: list[Any],
    group: list[tuple[AttentionBlock, dict[Role, int]]],
    key: Array,
    method: Method,
) -> None:
    """Rewrites, in `values`, blocks of the same shapes together, so that they compile as one."""
    shapes = group[0][0].shapes
    dtypes = {role: values[index].dtype for role, index in group[0][1].items()}
    touched = _touched(
        method,
        _kernels({role: jax.ShapeDtypeStruct(shapes[role], dtypes[role]) for role in shapes}),
    )

    # Kernels that the method does not look at are dropped by jit, not copied.
    @jax.jit
    def draw(keys: Array, kernels: list[dict[Role, Array]]) -> tuple[Array, ...]:
        def stack(role: Role) -> Array:
            return jnp.concatenate([block[role].reshape(-1, *shapes[role]) for block in kernels])

        stacked = _kernels({role: stack(role) for role in shapes})
        return jax.lax.map(
            lambda layer: tuple(getattr(method(*layer), role) for role in touched), (keys, stacked)
        )

    keys = _layer_keys(key, [block for block, _ in group])
    kernels = [{role: values[index] for role, index in found.items()} for _, found in group]
    drawn = draw(keys, kernels)
    for role, layers in zip(touched, drawn, strict=True):
        start = 0
        for block, found in group:
            old = values[found[role]]
            new = layers[start : start + block.layers].reshape(old.shape)
            values[found[role]] = _placed_as(old, new)
            start += block.layers


def _kernels(by_role: dict[Role, Any]) -> AttentionKernels:
    return AttentionKernels(**cast(dict[str, Any], by_role))


def _placed_as(old: Any, new: Array) -> Array:
    # Outside jit a sharded kernel stays sharded as it was; inside, the jit's shardings decide.
    if isinstance(old, jax.Array) and not isinstance(old, jax.core.Tracer) and old.committed:
        return jax.device_put(new, old.sharding)
    return new


def _touched(method: Method, one_layer: AttentionKernels) -> tuple[Role, ...]:
    """The roles that a method rewrites: those it does not hand back as they came."""
    touched: list[Role] = []

    def probe(key: Array, kernels: AttentionKernels) -> None:
        new = method(key, kernels)
        for role in ROLES:
            before, after = getattr(kernels, role), getattr(new, role)
            if after is before:
                continue
            if before is None or (after.shape, after.dtype) != (before.shape, before.dtype):
                raise ValueError(
                    f"the method turned the {role} kernel {before} into {after}; it must keep "
                    "shape and dtype"
                )
            touched.append(role)

    jax.eval_shape(probe, jax.random.key(0), one_layer)
    return tuple(touched)


def _alike(
    blocks: dict[str, AttentionBlock], values: list[Any], chosen: dict[str, dict[Role, int]]
) -> list[list[str]]:
    """Paths grouped by the shapes and dtypes of their kernels."""
    groups = defaultdict(list)
    for path, block in blocks.items():
        dtypes = {role: jnp.dtype(values[index].dtype) for role, index in chosen[path].items()}
        groups[tuple((role, block.shapes[role], dtypes[role]) for role in block.shapes)].append(
            path
        )
    return list(groups.values())


def _layer_keys(key: Array, blocks: list[AttentionBlock]) -> Array:
    """A key for every layer of every block, from its path and its place in the stack alone."""
    data = [
        (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"), layer)
        for block in blocks
        for digest in [hashlib.sha256(block.path.encode()).digest()]
        for layer in range(block.layers)
    ]

    # All at once: a program with one fold_in per layer compiles in time that grows with them.
    def fold(words: Array) -> Array:
        folded = key
        for word in words:
            folded = jax.random.fold_in(folded, word)
        return folded

    return jax.vmap(fold)(jnp.asarray(np.array(data, np.uint32)))
