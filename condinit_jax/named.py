"""A factory out of a table of names, called with the arguments that a config holds for it."""

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from condinit_jax.errors import UserError

Made = TypeVar("Made")


def make_named(
    table: Mapping[str, Callable[..., Made]],
    field: str,
    name: Any,
    arguments: Mapping[str, Any],
    *,
    none: str,
    facts: Mapping[str, Any] | None = None,
    blame: str,
) -> Made | None:
    """What the factory of a name makes of some arguments.

    Args:
        table: Factories by name.
        field: Path of the field that holds the name; the arguments are its neighbours.
        name: What it holds.
        arguments: By name.
        none: The name that stands for no factory.
        facts: What a run knows; fills in arguments of those names that are None.
        blame: What stands before the factory's own complaint about an argument.

    Returns:
        What the factory gives; None for the name `none`.

    Raises:
        UserError: If the name or an argument is unknown, or a value impossible.

    Example:
        >>> make_named({"twice": lambda x: 2 * x}, "f.name", "twice", {"x": 3}, none="-", blame="")
        6
    """
    group, kind = field.rpartition(".")[0], field.rpartition(".")[2]
    choices = [none, *table]
    if name not in choices:
        raise UserError(f"{field} = {name!r}: unknown {kind}; {_nearest(str(name), choices)}")
    known = [] if name == none else list(inspect.signature(table[name]).parameters)
    for argument, value in arguments.items():
        if argument not in known:
            raise UserError(
                f"{group}.{argument} = {value!r}: {name!r} has no such argument; "
                + _nearest(argument, known)
            )
    if name == none:
        return None
    filled = dict(arguments)
    for argument, value in (facts or {}).items():
        if argument in known and filled.get(argument) is None:
            filled[argument] = value
    try:
        return table[name](**filled)
    except (ValueError, TypeError) as error:
        raise UserError(f"{blame}{error}") from error


def _nearest(name: str, choices: Sequence[str]) -> str:
    if close := difflib.get_close_matches(name, choices, n=1):
        return f"did you mean {close[0]!r}?"
    return f"it takes one of: {', '.join(choices)}" if choices else "it takes none"
