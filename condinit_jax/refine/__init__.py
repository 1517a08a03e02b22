"""Scales of the drawn parameters, learned from training batches before the first training step.

A refinement is `factory(...) -> Refiner`; its pure `step` moves one scale per parameter tensor, or
per layer of a stacked one, and knows a task by its loss alone. `REFINERS` is the one table of their
names, as `config.init.refine.name` uses them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from condinit_jax.methods import REFINE
from condinit_jax.named import make_named
from condinit_jax.refine._gradinit import gradinit
from condinit_jax.refine._nio import mean_cosine, nio
from condinit_jax.refine._refiner import Refiner, RefineStep, Scales, begin
from condinit_jax.refine._scales import Stacked, effective, scaled, unit_scales

REFINERS: dict[str, Callable[..., Refiner]] = {"gradinit": gradinit, "nio": nio}

NONE = "none"


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
    held = init.get(REFINE) or {}
    return make_named(
        REFINERS,
        "config.init.refine.name",
        held.get("name", NONE),
        {name: value for name, value in held.items() if name != "name"},
        none=NONE,
        facts=facts,
        blame="config.init.refine.",
    )


__all__ = [
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
