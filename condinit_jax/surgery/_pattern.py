"""How one stored leaf holds kernels: a pattern in einops' notation, and the sizes of its axes."""

import dataclasses
import math
import re
from collections.abc import Mapping, Sequence

from condinit_jax.kernels import ROLES, Role

NEEDED = ("width", "heads", "dim")
AXES = (*NEEDED, "part", "groups", "layers", "...")


@dataclasses.dataclass(frozen=True)
class Pattern:
    """A parsed pattern: "query key value: width (part heads dim)".

    Attributes:
        text: as it was written.
        roles: whose kernels the leaf holds, in their order there.
        axes: for every axis of the leaf the names that make it up, the slowest first.
    """

    text: str
    roles: tuple[Role, ...]
    axes: tuple[tuple[str, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every axis name, in order."""
        return tuple(name for axis in self.axes for name in axis)

    def spread(self, ndim: int) -> tuple[tuple[str, ...], ...]:
        """The axes for a leaf of `ndim` axes, with a name for each that "..." stands for.

        Raises:
            ValueError: if the leaf has another number of axes.
        """
        layers = max(ndim - len(self.axes) + 1, 0) if ("...",) in self.axes else 0
        named = tuple((f"layers_{index}",) for index in range(layers))
        axes = tuple(
            name for axis in self.axes for name in (named if axis == ("...",) else (axis,))
        )
        if len(axes) != ndim:
            more = ndim > len(axes) and "layers" not in self.names
            raise ValueError(
                f"the leaf has {ndim} axes and the pattern {len(axes)}"
                + ("; write '...' where the axes of stacked layers stand" if more else "")
            )
        return axes


def parse(text: str) -> Pattern:
    """Reads "role role: axis (axis axis)".

    Raises:
        ValueError: if it is not of this form, or names an unknown role or axis, or not the needed.
    """
    if not isinstance(text, str) or text.count(":") != 1:
        raise ValueError("must read 'role: axes', such as 'query: width (heads dim)'")
    left, right = text.split(":")
    roles = tuple(left.replace(",", " ").split())
    if not roles or len(set(roles)) < len(roles) or not set(roles) <= set(ROLES):
        raise ValueError(f"{left.strip()!r} must be one or more of {', '.join(ROLES)}, each once")
    if "out" in roles and len(roles) > 1:
        raise ValueError("an out kernel has its inputs where the others have outputs: it is alone")
    pattern = Pattern(text, tuple(role for role in roles if role in ROLES), _axes(right))
    _check_names(pattern)
    return pattern


def _axes(text: str) -> tuple[tuple[str, ...], ...]:
    axes: list[tuple[str, ...]] = []
    for token in re.findall(r"\([^()]*\)|[^\s()]+|[()]", text):
        if token in ("(", ")"):
            raise ValueError(f"the parentheses of {text.strip()!r} do not match")
        axes.append(tuple(token[1:-1].split()) if token.startswith("(") else (token,))
    if any("..." in axis and len(axis) > 1 for axis in axes) or () in axes:
        raise ValueError("'...' and empty parentheses do not make up an axis; name its parts")
    return tuple(axes)


def _check_names(pattern: Pattern) -> None:
    names, roles = pattern.names, pattern.roles
    unknown = [name for name in names if name not in AXES]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no axis; the axes are {', '.join(AXES)}")
    missing = [name for name in NEEDED if name not in names]
    if missing or len(set(names)) < len(names):
        raise ValueError(
            f"must name {', '.join(NEEDED)} once each, and any other axis at most once"
            + (f"; {missing[0]!r} is missing" if missing else "")
        )
    if "layers" in names and "..." in names:
        raise ValueError("write the layers' axes as 'layers', one axis, or as '...', any number")
    if "part" in names and ("groups" in names or len(roles) == 1):
        raise ValueError(
            "'part' runs over the kernels of a fused leaf, one role after another; it goes neither "
            "with 'groups' nor with a single role"
        )
    if "groups" in names and roles in (("key",), ("value",)):
        raise ValueError(f"a group has one {roles[0]} head: write 'heads' and leave out 'groups'")


def axis_sizes(
    axes: Sequence[tuple[str, ...]], shape: Sequence[int], known: Mapping[str, int]
) -> dict[str, int]:
    """The size of every named axis.

    Args:
        axes: as `Pattern.spread` gives them.
        shape: the leaf's.
        known: sizes that the shape need not tell.

    Raises:
        ValueError: if the sizes do not make up the shape, or cannot be told from it.
    """
    sizes = dict(known)
    for names, size in zip(axes, shape, strict=True):
        open_names = [name for name in names if name not in known]
        product = math.prod(known.get(name, 1) for name in names)
        said = " x ".join(f"{known[name]}" if name in known else name for name in names)
        called = " x ".join(names)
        if len(open_names) > 1:
            asked = "num_kv_heads" if open_names[0] == "groups" else "num_heads"
            raise ValueError(f"{size} = {said} does not tell {' and '.join(open_names)}: {asked}=")
        if not open_names and size != product:
            raise ValueError(f"{called} = {said} = {product}, and the axis has size {size}")
        if size % product or not size:
            raise ValueError(f"{called} = {said} must be a multiple of {product}; it is {size}")
        if open_names:
            sizes[open_names[0]] = size // product
    return sizes
