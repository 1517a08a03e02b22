"""Rewriting the attention kernels of a parameter tree."""

import functools
import hashlib
import logging
from collections import defaultdict
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods import Method, NetworkMethod
from condinit_jax.surgery._blocks import (
    AttentionBlock,
    Where,
    describe,
    kernel_positions,
    nothing_found,
    refuse_what_is_no_parameter,
    selected,
)

Params = TypeVar("Params")
OneKernel = tuple[Role, tuple[int, ...], Any]

_log = logging.getLogger("condinit_jax.surgery")


def reinitialize(
    params: Params,
    key: Array,
    method: Method | NetworkMethod,
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
    other blocks are there or chosen, and no two blocks, layers or kernels share a draw. A kernel
    that is sharded stays sharded as it was.

    Args:
        params: the parameters alone, without an optimizer's state; every kernel (D, H, d), out
            kernels (H, d, D), both with any number of leading layer axes.
        key: a key from `jax.random.key`.
        method: a pure function `(key, kernels) -> kernels`, or a method on the whole network.
        where: a path prefix or a predicate of the path; None takes every block.
        num_heads: head count of blocks whose kernels are flat, (D, H*d) and (H*d, D); None for
            Flax's own layout.

    Returns:
        A tree of the same structure in which exactly the kernels that the method changes are new;
        every other leaf is the same object.

    Raises:
        UserError: if no block is found or `where` selects none (the message lists the paths that
            were looked at), if a block's kernels do not fit each other, or if a block stands in an
            optimizer's state, or if the method changes a shape or dtype.

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
        >>> state = nnx.state(model, nnx.Param)
        >>> nnx.update(model, reinitialize(state, jax.random.key(1), method))
    """
    if isinstance(method, NetworkMethod):
        return _rewrite_network(params, key, method, where, num_heads)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    found = kernel_positions(leaves)
    chosen = {path: positions for path, positions in found.items() if selected(path, where)}
    if not chosen:
        raise UserError(nothing_found(leaves, found, where))

    values = [leaf for _, leaf in leaves]
    blocks = {}
    for path, positions in chosen.items():
        kernels = {role: values[index] for role, index in positions.items()}
        refuse_what_is_no_parameter(path, kernels)
        blocks[path] = describe(path, kernels, num_heads)
    for paths in _alike(blocks, values, chosen):
        _rewrite_group(values, [(blocks[path], chosen[path]) for path in paths], key, method)

    _log.info(
        "reinitialize: %d attention blocks under %d paths",
        sum(block.layers for block in blocks.values()),
        len(blocks),
    )
    return cast(Params, jax.tree_util.tree_unflatten(structure, values))


def _rewrite_network(
    params: Params,
    key: Array,
    method: NetworkMethod,
    where: Where | None,
    num_heads: int | None,
) -> Params:
    for name, value in (("where", where), ("num_heads", num_heads)):
        if value is not None:
            raise UserError(f"{name} = {value!r}: this method rewrites the network as a whole")
    if method.offsets is not None:
        raise UserError(
            "method: adds constants in the forward pass, which parameters alone cannot hold; keep "
            "method.offsets(params) beside them and apply the model to "
            "condinit_jax.with_offsets(params, offsets)"
        )
    return method.rewrite(key, params, method.data())


def _rewrite_group(
    values: list[Any],
    group: list[tuple[AttentionBlock, dict[Role, int]]],
    key: Array,
    method: Method,
) -> None:
    """Rewrites, in `values`, blocks of the same shapes together, so that they compile as one."""
    shapes = group[0][0].shapes
    dtypes = {role: jnp.dtype(values[index].dtype) for role, index in group[0][1].items()}
    one_layer = tuple((role, shapes[role], dtypes[role]) for role in shapes)
    read, touched = _use(method, one_layer)
    kernels = [{role: values[found[role]] for role in read} for _, found in group]
    words = _words([block for block, _ in group])
    drawn = _draw(key, words, kernels, method=method, one_layer=one_layer, touched=touched)
    for role, layers in zip(touched, drawn, strict=True):
        start = 0
        for block, found in group:
            old = values[found[role]]
            new = layers[start : start + block.layers].reshape(old.shape)
            values[found[role]] = _placed_as(old, new)
            start += block.layers


@functools.partial(jax.jit, static_argnames=("method", "one_layer", "touched"))
def _draw(
    key: Array,
    words: Array,
    kernels: list[dict[Role, Array]],
    *,
    method: Method,
    one_layer: tuple[OneKernel, ...],
    touched: tuple[Role, ...],
) -> tuple[Array, ...]:
    """The touched kernels of all layers of a group, stacked; one loop, however many layers."""

    def stack(role: Role, shape: tuple[int, ...]) -> Array:
        return jnp.concatenate([_whole(block[role]).reshape(-1, *shape) for block in kernels])

    stacked = {role: stack(role, shape) for role, shape, _ in one_layer if role in kernels[0]}

    def layer(inputs: tuple[Array, dict[Role, Array]]) -> tuple[Array, ...]:
        layer_words, given = inputs
        # What the method does not read need not be stacked, moved or kept whole: zeros stand in.
        block = {
            role: given[role] if role in given else jnp.zeros(shape, dtype)
            for role, shape, dtype in one_layer
        }
        new = method(_fold_in_all(key, layer_words), _kernels(block))
        return tuple(getattr(new, role) for role in touched)

    return jax.lax.map(layer, (words, stacked))


def _use(
    method: Method, one_layer: tuple[OneKernel, ...]
) -> tuple[tuple[Role, ...], tuple[Role, ...]]:
    """The roles whose kernels a method reads, and those it rewrites.

    A kernel that the method hands back as it came is not rewritten.
    """
    touched: list[Role] = []

    def probe(key: Array, kernels: AttentionKernels) -> list[Array]:
        new = method(key, kernels)
        if not isinstance(new, AttentionKernels):
            raise UserError(
                f"method: must give AttentionKernels, as those of condinit_jax.methods do; "
                f"{method!r} gave {type(new).__name__}"
            )
        for role in ROLES:
            before, after = getattr(kernels, role), getattr(new, role)
            if after is before:
                continue
            if before is None or (after.shape, after.dtype) != (before.shape, before.dtype):
                raise UserError(
                    f"method: turned the {role} kernel {before} into {after}; it must keep shape "
                    "and dtype"
                )
            touched.append(role)
        return [getattr(new, role) for role in touched]

    structs = {role: jax.ShapeDtypeStruct(shape, dtype) for role, shape, dtype in one_layer}
    jaxpr = jax.make_jaxpr(probe)(jax.random.key(0), _kernels(structs)).jaxpr
    used = {id(v) for equation in jaxpr.eqns for v in equation.invars}
    used |= {id(v) for v in jaxpr.outvars}
    inputs = zip(structs, jaxpr.invars[1:], strict=True)
    return tuple(role for role, variable in inputs if id(variable) in used), tuple(touched)


def _kernels(by_role: dict[Role, Any]) -> AttentionKernels:
    ordered = {role: by_role[role] for role in ROLES if role in by_role}
    return AttentionKernels(**cast(dict[str, Any], ordered))


def _explicit_sharding(leaf: Any) -> Any:
    """The sharding in a traced array's type, where an explicit mesh gives it one."""
    if not isinstance(leaf, jax.core.Tracer):
        return None
    sharding = jax.typeof(leaf).sharding
    return sharding if sharding.mesh.are_all_axes_explicit else None


def _whole(kernel: Array) -> Array:
    """A kernel that can be cut and stacked along any axis."""
    sharding = _explicit_sharding(kernel)
    return kernel if sharding is None else jax.sharding.reshard(kernel, PartitionSpec())


def _placed_as(old: Any, new: Array) -> Array:
    """The new kernel where the old one was; inside a jit with automatic meshes the jit decides."""
    if sharding := _explicit_sharding(old):
        return jax.sharding.reshard(new, sharding)
    if isinstance(old, jax.Array) and not isinstance(old, jax.core.Tracer) and old.committed:
        return jax.device_put(new, old.sharding)
    return new


def _alike(
    blocks: dict[str, AttentionBlock], values: list[Any], chosen: dict[str, dict[Role, int]]
) -> list[list[str]]:
    """Paths grouped by the shapes, dtypes and devices of their kernels."""
    groups = defaultdict(list)
    for path, block in blocks.items():
        kernels = {role: values[index] for role, index in chosen[path].items()}
        groups[
            tuple((r, block.shapes[r], jnp.dtype(k.dtype), _devices(k)) for r, k in kernels.items())
        ].append(path)
    return list(groups.values())


def _devices(leaf: Any) -> frozenset[jax.Device] | None:
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    return frozenset(leaf.devices()) if concrete else None


def _words(blocks: list[AttentionBlock]) -> Array:
    """Three words for every layer of every block, from its path and its place in the stack."""
    words = [
        (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"), layer)
        for block in blocks
        for digest in [hashlib.sha256(block.path.encode()).digest()]
        for layer in range(block.layers)
    ]
    return jnp.asarray(np.array(words, np.uint32))


def _fold_in_all(key: Array, words: Array) -> Array:
    for word in words:
        key = jax.random.fold_in(key, word)
    return key
