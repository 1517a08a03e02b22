"""Rewriting the attention kernels of a parameter tree."""

import functools
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
from condinit_jax.leaves import placed_as
from condinit_jax.methods import Method, NetworkMethod
from condinit_jax.methods._method import checked_method
from condinit_jax.surgery._blocks import (
    StoredBlock,
    Where,
    find,
    nothing_found,
    read,
    refuse_what_is_no_parameter,
    selected,
)
from condinit_jax.surgery._layout import Layout
from condinit_jax.surgery._naming import Naming

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
    names: Naming | None = None,
) -> Params:
    """Rewrites the attention kernels of a parameter tree with a method from `condinit_jax.methods`.

    Works on linen parameters (also under `nn.scan`, `nn.vmap` and `nn.remat`), NNX states, boxed
    leaves, cross-attention, key and value inputs of other widths, and grouped queries; with `names`
    on models that name, transpose or fuse their kernels in ways of their own. It is pure
    and may be called inside the `jit` that initialises the model, with output shardings. How many
    blocks were changed is logged at level INFO by the logger `condinit_jax.surgery`, and
    `attention_blocks` lists them.

    A block's key comes from `key` and its path alone, so that a kernel does not depend on which
    other blocks are there or chosen, nor on how it is stored, and no two blocks, layers or kernels
    share a draw. A kernel that is sharded stays sharded as it was.

    Args:
        params: the parameters alone, without an optimizer's state; every kernel (D, H, d), out
            kernels (H, d, D), both with any number of leading layer axes, or as `names` says.
        key: a key from `jax.random.key`.
        method: a pure function `(key, kernels) -> kernels`, or a method on the whole network.
        where: a path prefix or a predicate of the path; None takes every block.
        num_heads: head count of blocks whose kernels are flat, (D, H*d) and (H*d, D); None for
            Flax's own layout.
        names: how the model names and lays out its kernels; one of `condinit_jax.namings`, or a
            `condinit_jax.Naming` of your own. None for Flax's names.

    Returns:
        A tree of the same structure in which exactly the kernels that the method changes are new;
        every other leaf is the same object. What a method leaves alone of a fused leaf keeps its
        bits.

    Raises:
        UserError: if no block is found or `where` selects none (the message lists the paths that
            were looked at), if a block's kernels do not fit each other or `names`, if a block
            stands in an optimizer's state, if `key` is no key or `method` no method (a factory
            without its parentheses, an initializer), or if the method changes a shape or dtype, or
            needs an out kernel that the block does not have.

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
    checked_method("method", method)
    if not hasattr(key, "dtype"):
        raise UserError(f"key: a {type(key).__name__} is no key; write jax.random.key(0)")
    if isinstance(method, NetworkMethod):
        return _rewrite_network(params, key, method, where, num_heads, names)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    found = find(leaves, names)
    chosen = {path: indices for path, indices in found.items() if selected(path, where)}
    if not chosen:
        raise UserError(nothing_found(leaves, found, where, names))

    values = [leaf for _, leaf in leaves]
    blocks = []
    for path, indices in chosen.items():
        refuse_what_is_no_parameter(path, [values[index] for index in indices])
        blocks.append(read(path, indices, leaves, num_heads, names))
    for group in _alike(blocks, values):
        _rewrite_group(values, group, key, method)

    _log.info(
        "reinitialize: %d attention blocks under %d paths",
        sum(stored.block.layers for stored in blocks),
        len(blocks),
    )
    return cast(Params, jax.tree_util.tree_unflatten(structure, values))


def _rewrite_network(
    params: Params,
    key: Array,
    method: NetworkMethod,
    where: Where | None,
    num_heads: int | None,
    names: Naming | None,
) -> Params:
    for name, value in (("where", where), ("num_heads", num_heads), ("names", names)):
        if value is not None:
            raise UserError(f"{name} = {value!r}: this method rewrites the network as a whole")
    if method.offsets is not None:
        raise UserError(
            "method: adds constants in the forward pass, which parameters alone cannot hold; keep "
            "method.offsets(params) beside them and apply the model to "
            "condinit_jax.with_offsets(params, offsets)"
        )
    return method.rewrite(key, params, method.data())


def _rewrite_group(values: list[Any], group: list[StoredBlock], key: Array, method: Method) -> None:
    """Rewrites, in `values`, blocks of the same shapes together, so that they compile as one."""
    dtypes = _dtypes(group[0], values)
    shapes = group[0].block.shapes
    one_layer = tuple((role, shapes[role], dtypes[role]) for role in shapes)
    read_roles, touched = _use(method, one_layer, group[0].block.path)
    kept = [_holding(stored, read_roles) for stored in group]
    drawn = _draw(
        key,
        _words(group),
        [[values[index] for index, _ in leaves] for leaves in kept],
        method=method,
        one_layer=one_layer,
        layouts=tuple(tuple(layout for _, layout in leaves) for leaves in kept),
        read_roles=read_roles,
        touched=touched,
    )
    start = 0
    for stored in group:
        stop = start + stored.block.layers
        new = {role: drawn[role][start:stop] for role in touched}
        for index, layout in _holding(stored, touched):
            old = values[index]
            fresh = {role: new[role] for role in layout.roles if role in new}
            rest = old if len(fresh) < len(layout.roles) else None
            values[index] = placed_as(old, _packed(fresh, rest, layout=layout))
        start = stop


def _holding(stored: StoredBlock, roles: tuple[Role, ...]) -> list[tuple[int, Layout]]:
    """The leaves of a block that hold some of these kernels."""
    leaves = zip(stored.indices, stored.layouts, strict=True)
    return [(index, layout) for index, layout in leaves if set(layout.roles) & set(roles)]


@functools.partial(jax.jit, static_argnames="layout")
def _packed(fresh: dict[Role, Array], old: Array | None, *, layout: Layout) -> Array:
    """A leaf with some kernels replaced; the others are moved and never computed with."""
    return layout.packed(fresh if old is None else layout.unpacked(old) | fresh)


@functools.partial(
    jax.jit, static_argnames=("method", "one_layer", "layouts", "read_roles", "touched")
)
def _draw(
    key: Array,
    words: Array,
    leaves: list[list[Array]],
    *,
    method: Method,
    one_layer: tuple[OneKernel, ...],
    layouts: tuple[tuple[Layout, ...], ...],
    read_roles: tuple[Role, ...],
    touched: tuple[Role, ...],
) -> dict[Role, Array]:
    """The touched kernels of all layers of a group, stacked; one loop, however many layers."""
    blocks: list[dict[Role, Array]] = []
    for arrays, held in zip(leaves, layouts, strict=True):
        blocks.append({})
        for array, layout in zip(arrays, held, strict=True):
            blocks[-1] |= layout.unpacked(array)
    stacked = {role: jnp.concatenate([block[role] for block in blocks]) for role in read_roles}

    def layer(inputs: tuple[Array, dict[Role, Array]]) -> dict[Role, Array]:
        layer_words, given = inputs
        # What the method does not read need not be stacked, moved or kept whole: zeros stand in.
        block = {
            role: given[role] if role in given else jnp.zeros(shape, dtype)
            for role, shape, dtype in one_layer
        }
        new = method(_fold_in_all(key, layer_words), _kernels(block))
        return {role: getattr(new, role) for role in touched}

    return jax.lax.map(layer, (words, stacked))


def _use(
    method: Method, one_layer: tuple[OneKernel, ...], path: str
) -> tuple[tuple[Role, ...], tuple[Role, ...]]:
    """The roles whose kernels a method reads, and those it rewrites.

    A kernel that the method hands back as it came is not rewritten.
    """
    touched: list[Role] = []

    def probe(key: Array, kernels: AttentionKernels) -> list[Array]:
        try:
            new = method(key, kernels)
        except ValueError as error:
            lacking = kernels.out is None and "out" in str(error).split()
            told = (
                f"{error}; {_lacks_out(path)}" if lacking else f"attention block {path!r}: {error}"
            )
            raise UserError(told) from error
        except (AttributeError, TypeError) as error:
            if kernels.out is None:
                raise UserError(f"{error}; {_lacks_out(path)}") from error
            raise
        if not isinstance(new, AttentionKernels):
            raise UserError(
                f"method: must give AttentionKernels, as those of condinit_jax.methods do; "
                f"{method!r} gave {type(new).__name__}"
            )
        for role in ROLES:
            before, after = getattr(kernels, role), getattr(new, role)
            if after is before:
                continue
            if before is None:
                raise UserError(f"method: gave an out kernel; {_lacks_out(path)}")
            if (after.shape, after.dtype) != (before.shape, before.dtype):
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


def _lacks_out(path: str) -> str:
    return (
        f"attention block {path!r} has no out kernel by these names: describe where it is, "
        'names=Naming({..., PATH: "out: (heads dim) width"})'
    )


def _kernels(by_role: dict[Role, Any]) -> AttentionKernels:
    ordered = {role: by_role[role] for role in ROLES if role in by_role}
    return AttentionKernels(**cast(dict[str, Any], ordered))


def _alike(blocks: list[StoredBlock], values: list[Any]) -> list[list[StoredBlock]]:
    """Blocks grouped by the shapes, dtypes and devices of their kernels."""
    groups = defaultdict(list)
    for stored in blocks:
        dtypes = _dtypes(stored, values)
        devices = tuple(_devices(values[index]) for index in stored.indices)
        kernels = tuple((role, shape, dtypes[role]) for role, shape in stored.block.shapes.items())
        groups[kernels, devices].append(stored)
    return list(groups.values())


def _dtypes(stored: StoredBlock, values: list[Any]) -> dict[Role, Any]:
    return {
        role: jnp.dtype(values[index].dtype)
        for index, layout in zip(stored.indices, stored.layouts, strict=True)
        for role in layout.roles
    }


def _devices(leaf: Any) -> frozenset[jax.Device] | None:
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    return frozenset(leaf.devices()) if concrete else None


def _words(blocks: list[StoredBlock]) -> Array:
    """Three words for every layer of every block, from its path and its place in the stack."""
    words = [
        (int.from_bytes(digest[:4], "big"), int.from_bytes(digest[4:8], "big"), layer)
        for stored in blocks
        for digest in [hashlib.sha256(stored.block.path.encode()).digest()]
        for layer in range(stored.block.layers)
    ]
    return jnp.asarray(np.array(words, np.uint32))


def _fold_in_all(key: Array, words: Array) -> Array:
    for word in words:
        key = jax.random.fold_in(key, word)
    return key
