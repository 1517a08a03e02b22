"""The runs of a comparison before they are made: every method with every seed and rate."""

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from condinit_jax import config as configs
from condinit_jax import methods, tasks
from condinit_jax.experiments._variant import Variant
from condinit_jax.training.refining import refiner_of
from condinit_jax.training.state import method_data


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run to make.

    Attributes:
        label: The variant's.
        seed: Of parameters, data order and all else that is drawn.
        rate: Peak learning rate.
        place: Its directory, relative to the comparison's.
        assignments: What it changes in the recipe.
        config: Its fields, as `config.json` will hold them.
    """

    label: str
    seed: int
    rate: float
    place: str
    assignments: tuple[str, ...]
    config: dict[str, Any]


def make_grid(
    recipe: ConfigDict,
    variants: Sequence[Variant],
    seeds: Sequence[int],
    rates: Sequence[float] = (),
    assignments: Sequence[str] = (),
    *,
    here: bool = True,
) -> list[Cell]:
    """Every variant with every seed and learning rate.

    Seeds are outermost: what an interrupted comparison holds is whole pairs.

    Args:
        recipe: The config that all start from, without `assignments`.
        variants: What is compared.
        seeds: Seeds.
        rates: Peak learning rates; empty for the recipe's own.
        assignments: Changes to the recipe that all runs share.
        here: Whether the runs are made on this machine: then it must have the data, and methods
            that do not fit the model are found before the first run, not hours later.

    Returns:
        The cells, in the order in which they are run.

    Raises:
        UserError: If a config is wrong, or a method does not fit the model.
    """
    own = {
        variant.label: configs.parse(configs.override(recipe, [*assignments, *variant.assignments]))
        for variant in variants
    }
    if here:
        _check_methods(list(own.values()))
    cells = []
    for seed in seeds:
        for rate in rates or (None,):
            for variant in variants:
                # The recipe's own rate has no directory of its own: rates can be added later.
                usual = own[variant.label].optimizer.lr
                changed = [*assignments, *variant.assignments, f"seed={seed}"]
                changed += [] if rate is None else [f"optimizer.lr={rate!r}"]
                run = configs.parse(configs.override(recipe, changed))
                cells.append(
                    Cell(
                        label=variant.label,
                        seed=seed,
                        rate=run.optimizer.lr,
                        place=_place(variant.label, seed, None if rate == usual else rate),
                        assignments=tuple(changed),
                        config=configs.to_dict(run),
                    )
                )
    return cells


def _check_methods(runs: Sequence[configs.Config]) -> None:
    """Builds whatever the runs' methods need; of tasks, those that differ."""
    known: dict[str, tasks.Task] = {}
    for run in runs:
        same = repr((run.task, run.data, run.model))
        if same not in known:
            known[same] = tasks.build(run)
        method_data(methods.build(run.init, known[same].facts()))
        refiner_of(run)


def _place(label: str, seed: int, rate: float | None) -> str:
    """A directory that file systems, shells and people read."""
    name = re.sub(r"[^A-Za-z0-9_.=+-]", ",", label)
    return str(Path(name, *([] if rate is None else [f"lr={rate!r}"]), f"seed={seed}"))
