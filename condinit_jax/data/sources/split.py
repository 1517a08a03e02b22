"""Slices of a split, in TFDS's notation: "train", "train[:90%]", "train[-500:]"."""

import re

from condinit_jax.errors import UserError


class SplitError(UserError):
    """A split that cannot be opened; who knows the field it came from can name it instead.

    Args:
        split: the split, as written.
        reason: why not, to be read after the split.
    """

    def __init__(self, split: str, reason: str) -> None:
        super().__init__(split, reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"data split: {self.args[0]!r} {self.reason}"


_BOUND = r"(-?\d+%?)?"
_SPLIT = re.compile(rf"(?P<name>[^\[\]+]+)(\[{_BOUND}:{_BOUND}\])?")


def parse_split(split: str) -> tuple[str, str | None, str | None]:
    """Separates a split's name from the bounds of its slice.

    Args:
        split: "name" or "name[from:to]", where each bound is a count or a percentage, may be
            negative (from the end) or missing.

    Returns:
        The name and the two bounds as written, None where missing.

    Raises:
        UserError: where the text is neither.

    Example:
        >>> parse_split("train[:90%]")
        ('train', None, '90%')
    """
    match = _SPLIT.fullmatch(split)
    if match is None:
        raise SplitError(split, "is not a split; write a name or a slice such as train[:90%]")
    return match["name"], match[3], match[4]


def resolve_slice(split: str, length: int) -> range:
    """The positions that a split's slice keeps.

    Percentages round to the nearest example, so that "[:p%]" and "[p%:]" never overlap and leave
    nothing out; bounds beyond either end are cut to it, as in Python.

    Args:
        split: see `parse_split`.
        length: examples in the whole split.

    Returns:
        Consecutive positions in [0, length).

    Raises:
        UserError: where nothing is left, or a percentage is beyond 100.

    Example:
        >>> resolve_slice("train[90%:]", 5000), resolve_slice("train[-10:]", 5000)
        (range(4500, 5000), range(4990, 5000))
    """
    name, start, stop = parse_split(split)
    kept = range(length)[_position(split, start, length) : _position(split, stop, length)]
    if not kept:
        raise SplitError(split, f"keeps none of the {length} examples of {name!r}")
    return kept


def _position(split: str, bound: str | None, length: int) -> int | None:
    if bound is None:
        return None
    if not bound.endswith("%"):
        return int(bound)
    percent = int(bound[:-1])
    if abs(percent) > 100:
        raise SplitError(split, "has a percentage beyond 100")
    # -10% is written as 90% before rounding, so that [:90%] and [-10%:] meet exactly.
    return round(length * (percent + 100 * (bound[0] == "-")) / 100)


def unknown_split(split: str, where: str, known: list[str]) -> SplitError:
    """The error for a split that does not exist.

    Args:
        split: the name asked for.
        where: the source or directory that was searched.
        known: the names that exist there.

    Returns:
        An error to raise.
    """
    names = ", ".join(known) if known else "none"
    return SplitError(split, f"is not in {where}; splits there: {names}")
