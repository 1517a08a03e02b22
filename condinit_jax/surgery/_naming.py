"""A description of how a model names and lays out its attention kernels."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, Role
from condinit_jax.surgery._layout import Layout
from condinit_jax.surgery._pattern import Pattern, axis_sizes, parse


@dataclasses.dataclass(frozen=True)
class Naming:
    """Where a model that is not written in Flax's names keeps its attention kernels.

    Each entry gives the end of a stored leaf's path, and what the leaf holds: one or more of query,
    key, value and out, a colon, and the leaf's axes in einops' notation. The axes are

    - `width`: what the kernel reads, for `out` what it writes;
    - `heads` and `dim`: the heads and the columns of one head;
    - `part`: in a fused leaf, the roles one after another, as listed, with as many heads each;
    - `groups`: the key heads, each with the query heads that share it. With one role it is the
      slower part of the query heads; in a fused leaf every group holds its query heads, then its
      key, then its value, in the order listed, along `heads`;
    - `layers`, or `...` for any number of axes: the stacked layers of `nn.scan`, wherever they are.

    A fused leaf with neither `part` nor `groups` holds the heads of its roles one after another
    along `heads`, as many as each has. Axes in parentheses make up one axis of the leaf, the
    slowest first. `condinit_jax.namings` has descriptions that are ready.

    A block is a node of the tree that holds a query, a key and a value; its path is that of the
    deepest node common to all entries: with "attn/c_attn/kernel" and "attn/c_proj/kernel", blocks
    have paths such as "h/0/attn". Where there is one entry only, the module that holds its leaf
    does not count: "attn/qkv/kernel" alone gives "attn". Entries that a block lacks do no harm, so
    one description can list alternatives. Draws come from the key and the block's path: a block of
    the same path draws the same kernels in any layout, Flax's included.

    Attributes:
        leaves: for each leaf's path end its pattern; kept as a tuple of pairs.
        num_heads: H, where the shapes do not tell it; None where they do.
        num_kv_heads: how many key and value heads (grouped queries); None: as the shapes tell.

    Raises:
        UserError: if a pattern cannot be read; the message names it and says what is missing.

    Example:
        >>> import jax, jax.numpy as jnp, condinit_jax
        >>> names = Naming(
        ...     {
        ...         "attn/qkv/kernel": "query key value: width (part heads dim)",
        ...         "attn/proj/kernel": "out: (heads dim) width",
        ...     },
        ...     num_heads=4,
        ... )
        >>> attn = {"qkv": {"kernel": jnp.ones((64, 192))}, "proj": {"kernel": jnp.ones((64, 64))}}
        >>> params = {"block_0": {"attn": attn}}
        >>> [block.path for block in condinit_jax.attention_blocks(params, names=names)]
        ['block_0/attn']
        >>> method = condinit_jax.methods.conditioned()
        >>> new = condinit_jax.reinitialize(params, jax.random.key(0), method, names=names)
        >>> value = new["block_0"]["attn"]["qkv"]["kernel"][:, 128:144]  # the first value head
        >>> bool((value == jnp.eye(64, 16)).all())
        True
    """

    leaves: Mapping[str, str] | tuple[tuple[str, str], ...]
    num_heads: int | None = None
    num_kv_heads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "leaves", _pairs(self.leaves))
        for name in ("num_heads", "num_kv_heads"):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool) and value > 0
            if value is not None and not whole:
                raise UserError(
                    f"Naming: {name} = {value!r}: must be a whole number above 0, or None"
                )
        if self.num_heads and self.num_kv_heads and self.num_heads % self.num_kv_heads:
            raise UserError(
                f"Naming: num_heads = {self.num_heads} is no multiple of "
                f"num_kv_heads = {self.num_kv_heads}"
            )
        described = {role for pattern in self.patterns.values() for role in pattern.roles}
        missing = [role for role in ROLES if role not in described and role != "out"]
        if missing:
            raise UserError(
                f"Naming: no leaf holds the {missing[0]} kernel; entries are "
                + (", ".join(f"{pattern.text!r}" for pattern in self.patterns.values()) or "none")
            )

    @property
    def entries(self) -> tuple[tuple[str, str], ...]:
        """Path ends and patterns, in order."""
        return _pairs(self.leaves)

    @property
    def patterns(self) -> dict[tuple[str, ...], Pattern]:
        """For each path end, as names, its pattern."""
        return {tuple(suffix.split("/")): _parsed(suffix, text) for suffix, text in self.entries}


def _pairs(leaves: object) -> tuple[tuple[str, str], ...]:
    """The entries as pairs, each path end checked."""
    entries = leaves.items() if isinstance(leaves, Mapping) else leaves
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise UserError(f"Naming: leaves = {leaves!r}: must map path ends to patterns")
    pairs: list[tuple[str, str]] = []
    for entry in entries:
        if not (isinstance(entry, tuple | list) and len(entry) == 2 and isinstance(entry[0], str)):
            raise UserError(f"Naming: {entry!r}: must be a path end and its pattern")
        suffix = entry[0].strip("/")
        if not suffix:
            raise UserError(f"Naming: {entry[0]!r}: must be the end of a leaf's path")
        for other, _ in pairs:
            if f"/{suffix}".endswith(f"/{other}") or f"/{other}".endswith(f"/{suffix}"):
                raise UserError(f"Naming: {other!r} and {suffix!r} would claim the same leaf")
        pairs.append((suffix, entry[1]))
    return tuple(pairs)


def _parsed(suffix: str, text: str) -> Pattern:
    try:
        return parse(text)
    except ValueError as error:
        raise UserError(f"Naming: {suffix!r}: pattern {text!r}: {error}") from error


@dataclasses.dataclass(frozen=True)
class NamedLeaf:
    """A stored leaf of a block: its path, its place among the tree's leaves and its pattern."""

    path: str
    index: int
    pattern: Pattern


def named_leaves(paths: Sequence[Sequence[str]], names: Naming) -> dict[str, list[NamedLeaf]]:
    """For each block's path, the leaves that the description finds under it.

    Args:
        paths: for each leaf of the tree, in order, the names along its path.
        names: the description.
    """
    patterns = names.patterns
    common = _common_parents(list(patterns))
    found: dict[str, list[NamedLeaf]] = {}
    for index, path in enumerate(paths):
        for suffix, pattern in patterns.items():
            if tuple(path[-len(suffix) :]) == suffix:
                block = "/".join(path[: len(path) - len(suffix) + common])
                found.setdefault(block, []).append(NamedLeaf("/".join(path), index, pattern))
    # Ends as short as "output/dense/kernel" also find leaves outside of any attention.
    inputs = set(ROLES) - {"out"}
    blocks, strays = {}, []
    for path, leaves in found.items():
        if any(inputs & set(leaf.pattern.roles) for leaf in leaves):
            blocks[path] = leaves
        else:
            strays += leaves
    has_out = any("out" in leaf.pattern.roles for leaves in blocks.values() for leaf in leaves)
    if blocks and strays and not has_out:
        raise UserError(
            f"Naming: {strays[0].path!r} ({strays[0].pattern.text!r}) is not under the attention "
            f"block {next(iter(blocks))!r}; let all path ends begin at the same node"
        )
    return blocks


def _common_parents(suffixes: list[tuple[str, ...]]) -> int:
    """How many leading names all path ends share, the leaf's own name aside.

    A single leaf stands in a module of its own, as a query kernel would, and the block above it.
    """
    count, own = 0, 1 if len(suffixes) > 1 else 2
    for names in zip(*(suffix[:-own] for suffix in suffixes), strict=False):
        if len(set(names)) > 1:
            break
        count += 1
    return count


def nothing_named(paths: Sequence[Sequence[str]], names: Naming) -> str:
    """The message for a description that finds no block: its path ends, and the nearest leaves."""
    ends = [suffix for suffix, _ in names.entries]
    leaves = ["/".join(path) for path in paths]

    def nearness(leaf: str) -> float:
        tails = [leaf[-len(end) :] for end in ends]
        return max(
            difflib.SequenceMatcher(None, tail, end).ratio()
            for tail, end in zip(tails, ends, strict=True)
        )

    nearest = sorted(leaves, key=nearness, reverse=True)[:6]
    return (
        f"no attention block in the parameter tree: none of its {len(leaves)} leaves ends in "
        f"{', '.join(map(repr, ends))}; the nearest are {', '.join(map(repr, nearest)) or 'none'}"
    )


class _Sizes:
    """What is known of a block's heads while its leaves are read one after another."""

    def __init__(self, names: Naming) -> None:
        self.heads = names.num_heads
        self.kv_heads = names.num_kv_heads
        self.dim: int | None = None

    def known(self, pattern: Pattern) -> dict[str, int]:
        """The axes of a leaf whose sizes its shape need not tell."""
        roles, names = pattern.roles, pattern.names
        many = "query" in roles or "out" in roles
        known: dict[str, int] = {}
        if "groups" in names:
            if self.kv_heads:
                known["groups"] = self.kv_heads
                if self.heads:
                    known["heads"] = _quotient(self.heads, self.kv_heads) + len(roles) - 1
            if not many:  # one head of each role in a group
                known["heads"] = len(roles)
            return known
        if "part" in names:
            known["part"] = len(roles)
        if "part" in names or len(roles) == 1:
            count = self.heads if many else self.kv_heads
            if count:
                known["heads"] = count
        elif self.kv_heads and (self.heads or not many):
            # The roles' heads one after another: those of the queries, then as many of the others.
            known["heads"] = self.kv_heads * (len(roles) - many) + (self.heads or 0) * many
        alone = ("heads",) in pattern.axes or ("dim",) in pattern.axes
        if "heads" not in known and not many and self.dim and not alone:
            known["dim"] = self.dim
        return known

    def counts(self, pattern: Pattern, sizes: Mapping[str, int]) -> dict[Role, int]:
        """The heads of each role of a leaf, and how they are remembered for the next one."""
        roles, heads, groups = pattern.roles, sizes["heads"], sizes.get("groups", 1)
        if "part" in pattern.names or len(roles) == 1:
            counts = dict.fromkeys(roles, heads * groups)
        elif "groups" in pattern.names:
            counts = {r: groups * (heads - len(roles) + 1 if r == "query" else 1) for r in roles}
        elif "query" in roles:
            counts = self._concatenated(roles, heads)
        else:
            counts = dict.fromkeys(roles, _quotient(heads, len(roles)))
        for role, count in counts.items():
            self._remember(role, count)
        if "query" in roles:
            self.dim = sizes["dim"]
        return counts

    def _concatenated(self, roles: tuple[Role, ...], heads: int) -> dict[Role, int]:
        others = len(roles) - 1
        if self.heads:
            kv_heads = _quotient(heads - self.heads, others)
        elif self.kv_heads:
            kv_heads = self.kv_heads
        else:
            raise ValueError(f"{heads} heads do not tell those of {roles[0]}: write num_heads=")
        return {role: heads - others * kv_heads if role == "query" else kv_heads for role in roles}

    def _remember(self, role: Role, count: int) -> None:
        many = role in ("query", "out")
        given = self.heads if many else self.kv_heads
        if count < 1 or (given and given != count):
            name = "num_heads" if many else "num_kv_heads"
            raise ValueError(f"holds {count} {role} heads, where {name} = {given}")
        if many:
            self.heads = count
        else:
            self.kv_heads = count


def _quotient(number: int, divisor: int) -> int:
    if number % divisor or number <= 0:
        raise ValueError(f"{number} heads are no multiple of {divisor}")
    return number // divisor


def read_block(
    path: str, leaves: Sequence[NamedLeaf], shapes: Sequence[tuple[int, ...]], names: Naming
) -> tuple[list[Layout], dict[Role, tuple[int, ...]], tuple[int, ...]]:
    """Reads the sizes of a block's heads out of its leaves.

    Returns:
        For each leaf its layout, the per-head shape of every role, and the layer axes.

    Raises:
        UserError: if leaves and patterns do not fit; the message names leaf, shape and pattern.
    """
    _check_roles(path, leaves)
    state = _Sizes(names)
    layouts: dict[int, Layout] = {}
    found: dict[Role, tuple[int, ...]] = {}
    layer_axes = None
    order = sorted(range(len(leaves)), key=lambda i: min(map(ROLES.index, leaves[i].pattern.roles)))
    for i in order:
        leaf, shape, pattern = leaves[i], shapes[i], leaves[i].pattern
        try:
            axes = pattern.spread(len(shape))
            sizes = axis_sizes(axes, shape, state.known(pattern))
            counts = state.counts(pattern, sizes)
            per_group = tuple(counts[role] // sizes.get("groups", 1) for role in pattern.roles)
            layout = Layout(pattern.roles, per_group, axes, tuple(sizes.items()))
            own = tuple(sizes[name] for name in layout.layer_names)
            if layer_axes not in (None, own):
                raise ValueError(f"layers {own} are not those of the other leaves, {layer_axes}")
        except ValueError as error:
            heads = ", ".join(
                f"{name}={getattr(names, name)}"
                for name in ("num_heads", "num_kv_heads")
                if getattr(names, name)
            )
            raise UserError(
                f"attention block {path!r}: {leaf.path!r} of shape {tuple(shape)} does not fit "
                f"{pattern.text!r}{heads and f' with {heads}'}: {error}"
            ) from error
        layer_axes, layouts[i] = own, layout
        for role, count in counts.items():
            per_head = (sizes["width"], count, sizes["dim"])
            found[role] = (*per_head[1:], per_head[0]) if role == "out" else per_head
    ordered = {role: found[role] for role in ROLES if role in found}
    return [layouts[i] for i in range(len(leaves))], ordered, layer_axes or ()


def _check_roles(path: str, leaves: Sequence[NamedLeaf]) -> None:
    """Raises unless query, key and value stand in a block exactly once, and out at most once."""
    for role in ROLES:
        holders = [leaf.path for leaf in leaves if role in leaf.pattern.roles]
        if len(holders) > 1:
            raise UserError(
                f"attention block {path!r}: {' and '.join(map(repr, holders))} both claim to hold "
                f"the {role} kernel; lengthen the path ends in names= until one does"
            )
        if not holders and role != "out":
            raise UserError(
                f"attention block {path!r}: has no {role} kernel by these names; found are "
                + ", ".join(f"{leaf.path!r} ({' '.join(leaf.pattern.roles)})" for leaf in leaves)
            )
