"""Finding the attention blocks of a parameter tree.

A block is any node of the tree with `query`, `key` and `value` children that each hold a `kernel`,
as Flax names them, and perhaps an `out` child; or what a `Naming` says. Because only names and
shapes are read, one finder serves linen dictionaries, flattened ones, NNX states and boxed
(`nn.Partitioned`) leaves.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from typing import Any, cast

import jax

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, Role, head_shape
from condinit_jax.leaves import names_of
from condinit_jax.surgery._layout import Layout
from condinit_jax.surgery._naming import Naming, named_leaves, nothing_named, read_block

Where = str | Callable[[str], bool]

_INPUTS: tuple[Role, ...] = ("query", "key", "value")


@dataclasses.dataclass(frozen=True)
class AttentionBlock:
    """Where one attention block stands in a parameter tree.

    Attributes:
        path: names from the root, joined by "/"; empty if the tree itself is the block.
        layer_axes: sizes of the leading axes that `nn.scan` or `nn.vmap` put before the kernels;
            empty for a single block.
        shapes: the per-head shape of each kernel of one layer: (D, H, d), for out (H, d, D).
    """

    path: str
    layer_axes: tuple[int, ...]
    shapes: dict[Role, tuple[int, ...]] = dataclasses.field(hash=False)

    @property
    def layers(self) -> int:
        """How many attention blocks are stacked here."""
        return math.prod(self.layer_axes)


@dataclasses.dataclass(frozen=True)
class StoredBlock:
    """A block and where its kernels stand: places among the tree's leaves, and a layout of each."""

    block: AttentionBlock
    indices: tuple[int, ...]
    layouts: tuple[Layout, ...]


def attention_blocks(
    params: Any,
    where: Where | None = None,
    *,
    num_heads: int | None = None,
    names: Naming | None = None,
) -> list[AttentionBlock]:
    """Every attention block of a parameter tree.

    Args:
        params: arrays or `jax.ShapeDtypeStruct`s in any pytree.
        where: a path prefix ("encoder", "encoder/layer_3") or a predicate of the path; None takes
            every block.
        num_heads: head count of blocks whose kernels are flat, (D, H*d); None for Flax's (D, H, d).
        names: how the model names and lays out its kernels, see `Naming`; None for Flax's way.

    Returns:
        The blocks in the tree's order, empty if there are none.

    Raises:
        UserError: if a block's kernels do not fit each other or the description; the message names
            the block.

    Example:
        >>> kernel = jax.ShapeDtypeStruct((64, 4, 16), "float32")
        >>> attention = {role: {"kernel": kernel} for role in ("query", "key", "value")}
        >>> [block.path for block in attention_blocks({"layer_0": {"attention": attention}})]
        ['layer_0/attention']
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return [
        read(path, indices, leaves, num_heads, names).block
        for path, indices in find(leaves, names).items()
        if selected(path, where)
    ]


def find(leaves: Sequence[tuple[Any, Any]], names: Naming | None) -> dict[str, tuple[int, ...]]:
    """For each block's path, which of the leaves hold its kernels."""
    if names is None:
        return {path: tuple(roles.values()) for path, roles in kernel_positions(leaves).items()}
    if not isinstance(names, Naming):
        raise UserError(
            f"names = {names!r}: must be a condinit_jax.Naming, or None for Flax's names"
        )
    found = named_leaves([names_of(path) for path, _ in leaves], names)
    return {path: tuple(leaf.index for leaf in block) for path, block in found.items()}


def read(
    path: str,
    indices: Sequence[int],
    leaves: Sequence[tuple[Any, Any]],
    num_heads: int | None,
    names: Naming | None,
) -> StoredBlock:
    """The heads of a block that `find` found, checked against each other."""
    if names is None:
        kernels = {names_of(leaves[index][0])[-2]: leaves[index][1] for index in indices}
        block = describe(path, cast(dict[Role, Any], kernels), num_heads)
        layouts = tuple(_flax_layout(block, role, kernels[role].ndim) for role in block.shapes)
        return StoredBlock(block, tuple(indices), layouts)
    if num_heads is not None:
        raise UserError(
            f"num_heads = {num_heads}: belongs to the description; write Naming(..., num_heads="
            f"{num_heads})"
        )
    (named,) = named_leaves([names_of(leaves[index][0]) for index in indices], names).values()
    shapes = [tuple(leaves[index][1].shape) for index in indices]
    described, kernel_shapes, layer_axes = read_block(path, named, shapes, names)
    if not _fit_each_other(kernel_shapes):
        seen = ", ".join(f"{role} {shape}" for role, shape in kernel_shapes.items())
        raise UserError(
            f"attention block {path!r}: by names= its kernels are {seen}, per head as (width, "
            "heads, dim), for out (heads, dim, width), and do not fit each other; check num_heads "
            "and the order of the axes"
        )
    block = AttentionBlock(path, layer_axes, kernel_shapes)
    return StoredBlock(block, tuple(indices), tuple(described))


def _flax_layout(block: AttentionBlock, role: Role, ndim: int) -> Layout:
    """The layout of a kernel that `describe` has read: per head, or flat."""
    layers = tuple(f"layers_{index}" for index in range(len(block.layer_axes)))
    per_head = ("heads", "dim", "width") if role == "out" else ("width", "heads", "dim")
    axes: tuple[tuple[str, ...], ...] = tuple((name,) for name in per_head)
    if ndim - len(layers) == 2:
        flat = (("heads", "dim"), ("width",))
        axes = flat if role == "out" else flat[::-1]
    names, shape = (*layers, *per_head), (*block.layer_axes, *block.shapes[role])
    sizes = tuple(zip(names, shape, strict=True))
    heads = dict(sizes)["heads"]
    return Layout((role,), (heads,), (*((name,) for name in layers), *axes), sizes)


def kernel_positions(leaves: Sequence[tuple[Any, Any]]) -> dict[str, dict[Role, int]]:
    """For each block's path, where its kernels stand among the leaves."""
    found: dict[str, dict[Role, int]] = defaultdict(dict)
    for index, (path, _) in enumerate(leaves):
        *parents, role, leaf = ["", "", *names_of(path)]
        if leaf != "kernel" or role not in ROLES:
            continue
        block = "/".join(parents[2:])
        if role in found[block]:
            raise UserError(f"attention block {block!r}: stands twice in the parameter tree")
        found[block][role] = index
    return {
        path: {role: roles[role] for role in ROLES if role in roles}
        for path, roles in found.items()
        if all(role in roles for role in _INPUTS)
    }


def selected(path: str, where: Where | None) -> bool:
    """Whether a block's path passes a prefix or predicate."""
    if where is None:
        return True
    if callable(where):
        return bool(where(path))
    if not isinstance(where, str):
        raise UserError(f"where = {where!r}: must be a path prefix or a function of the path")
    prefix = where.strip("/")
    return not prefix or path == prefix or path.startswith(prefix + "/")


def describe(path: str, kernels: dict[Role, Any], num_heads: int | None) -> AttentionBlock:
    """The block's per-head shapes, checked against each other."""
    name = f"attention block {path!r}"
    if num_heads is not None and _is_per_head(kernels, num_heads):
        num_heads = None
    axes = 3 if num_heads is None else 2
    seen = ", ".join(f"{role} {tuple(kernel.shape)}" for role, kernel in kernels.items())
    layer_axes = {tuple(kernel.shape[: kernel.ndim - axes]) for kernel in kernels.values()}
    if any(kernel.ndim < axes for kernel in kernels.values()):
        raise UserError(
            f"{name}: kernels {seen} are flat, so that their heads cannot be told; "
            "write num_heads=H"
        )
    if len(layer_axes) != 1:
        raise UserError(f"{name}: kernels {seen} do not have the same leading layer axes")
    own = {role: tuple(kernel.shape[kernel.ndim - axes :]) for role, kernel in kernels.items()}
    shapes = own if num_heads is None else _unflatten(name, own, num_heads)

    # Flat kernels of a scanned stack, (L, D, H*d), read as (D, H, d) would have fewer inputs than
    # heads; nothing else about them is odd where there is no out kernel.
    width, heads, _ = shapes["query"]
    if heads > width or not _fit_each_other(shapes):
        raise UserError(
            f"{name}: kernels {seen}, read per head as (width, heads, dim), for out (heads, dim, "
            "width), do not fit each other"
            + ("; flat kernels need num_heads=H" if num_heads is None else "")
        )
    return AttentionBlock(path, layer_axes.pop(), shapes)


def _fit_each_other(shapes: dict[Role, tuple[int, ...]]) -> bool:
    (_, heads, dim), (_, key_heads, key_dim) = shapes["query"], shapes["key"]
    (_, value_heads, value_dim), out = shapes["value"], shapes.get("out")
    return (
        key_dim == dim
        and value_heads == key_heads
        and heads % key_heads == 0
        and (out is None or out[:2] == (heads, value_dim))
    )


def _is_per_head(kernels: dict[Role, Any], num_heads: int) -> bool:
    """Whether kernels are (D, H, d) already, though a head count was given."""
    shapes = [kernels[role].shape for role in _INPUTS]
    if any(len(shape) < 3 for shape in shapes):
        return False
    (*_, heads, dim), *others = shapes
    return heads == num_heads and all(
        shape[-1] == dim and num_heads % shape[-2] == 0 for shape in others
    )


def refuse_what_is_no_parameter(path: str, kernels: Sequence[Any]) -> None:
    """Raises for moments, which look like parameters, and for shapes without values."""
    if set(path.split("/")) & {"opt_state", "mu", "nu", "trace"}:
        raise UserError(
            f"attention block {path!r}: belongs to an optimizer's state; pass the parameters "
            "alone, or choose them with where="
        )
    if any(isinstance(kernel, jax.ShapeDtypeStruct) for kernel in kernels):
        raise UserError(
            f"attention block {path!r}: has shapes and no values; write jax.eval_shape(lambda p: "
            "reinitialize(p, key, method), shapes)"
        )


def _unflatten(
    name: str, flat: dict[Role, tuple[int, ...]], num_heads: int
) -> dict[Role, tuple[int, ...]]:
    try:
        width, heads, dim = head_shape(flat["query"], num_heads)
        shapes: dict[Role, tuple[int, ...]] = {"query": (width, heads, dim)}
        for role in _INPUTS[1:]:
            shapes[role] = head_shape(flat[role], max(flat[role][1] // dim, 1))
        if "out" in flat:
            rows, out_width = flat["out"]
            shapes["out"] = (heads, rows // heads, out_width)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error
    return {role: tuple(shape) for role, shape in shapes.items()}


def nothing_found(
    leaves: Sequence[tuple[Any, Any]],
    found: Collection[str],
    where: Where | None,
    names: Naming | None,
) -> str:
    """The message for a tree without blocks, or a `where` that takes none."""
    if found:
        listed = ", ".join(repr(path) for path in found)
        return f"where = {where!r} selects none of the attention blocks: {listed}"
    if names is not None:
        return nothing_named([names_of(path) for path, _ in leaves], names)
    paths = ", ".join(repr("/".join(names_of(path))) for path, _ in leaves)
    return (
        "no attention block in the parameter tree: none of its nodes has query, key and value "
        f"children with a kernel each; its leaves are {paths or 'none'}"
    )
