"""Scales of the drawn parameters, learned from training batches before the first training step.

A refinement is `factory(...) -> Refiner`; its pure `step` moves one scale per parameter tensor, or
per layer of a stacked one, and knows a task by its loss alone. `REFINERS` is the one table of their
names, as `config.init.refine.name` uses them.
"""

import difflib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from condinit_jax.errors import UserError
from condinit_jax.refine._gradinit import gradinit
from condinit_jax.refine._nio import mean_cosine, nio
from condinit_jax.refine._refiner import Refiner, RefineStep, Scales, begin
from condinit_jax.refine._scales import Stacked, effective, scaled, unit_scales

REFINERS: dict[str, Callable[..., Refiner]] = {"gradinit": gradinit, "nio": nio}

NONE = "none"

GROUP = "refine"
"""The entry of `config.init` that names a refinement."""


def build(init: Mapping[str, Any], facts: Mapping[str, Any] | None = None) -> Refiner | None:
    """The refinement that a run's `config.init` names, with its arguments.

    Args:
        init: Its entry `refine`, if it has one, holds `name`, a name in `REFINERS` or "none", and
            the arguments of that factory.
        facts: What the run knows, such as `rule`, its optimizer's; fills in arguments of those
            names that are None.

    Returns:
        The refinement, or None: the drawn parameters stay.

    Raises:
        UserError: If the name or an argument is unknown, or a value impossible.

    Example:
        >>> build({"refine": {"name": "nio", "steps": 20}}).steps
        20
        >>> build({"method": "default"}) is None
        True
    """
    arguments = dict(init.get(GROUP) or {})
    name = arguments.pop("name", NONE)
    choices = [NONE, *REFINERS]
    if name not in choices:
        raise UserError(
            f"config.init.refine.name = {name!r}: must be {', '.join(choices)}"
            + _nearest(str(name), choices)
        )
    known = [] if name == NONE else list(inspect.signature(REFINERS[name]).parameters)
    for argument, value in arguments.items():
        if argument not in known:
            raise UserError(
                f"config.init.refine.{argument} = {value!r}: {name!r} has no such argument"
                + _nearest(argument, known)
            )
    if name == NONE:
        return None
    for argument, value in (facts or {}).items():
        if argument in known and arguments.get(argument) is None:
            arguments[argument] = value
    try:
        return REFINERS[name](**arguments)
    except (ValueError, TypeError) as error:
        raise UserError(f"config.init.refine.{error}") from error


def _nearest(name: str, choices: list[str]) -> str:
    close = difflib.get_close_matches(name, choices, n=1)
    return f"; did you mean {close[0]}?" if close else ""


__all__ = [
    "GROUP",
    "NONE",
    "REFINERS",
    "RefineStep",
    "Refiner",
    "Scales",
    "Stacked",
    "begin",
    "build",
    "effective",
    "gradinit",
    "mean_cosine",
    "nio",
    "scaled",
    "unit_scales",
]
