"""What is known of single runs: their figures, why some did not finish, and what they ran on."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments._run import FINISHED, Run
from condinit_jax.experiments.report._format import DASH, Units, kappa, learning_rate
from condinit_jax.experiments.report._tables import Cell, Table
from condinit_jax.training.progress import clock_text


def final_metric(run: Run) -> float:
    """The metric at a run's end.

    Args:
        run: It.

    Returns:
        The metric of its last evaluation; NaN for a run that did not finish.
    """
    return run.curve[-1][1] if run.state == FINISHED and run.curve else math.nan


def best_metric(run: Run) -> float:
    """The largest metric that a run reached, finished or not.

    Args:
        run: It.

    Returns:
        The metric; NaN for a run without evaluations.
    """
    return max((value for _, value in run.curve), default=math.nan)


def start_kappa(run: Run) -> float:
    """kappa(J) of a run before its first step.

    Args:
        run: It.

    Returns:
        The geometric mean over layers; NaN where it was not probed.
    """
    found = [value for value in run.kappas.get(0, {}).values() if 0 < value < math.inf]
    return math.exp(sum(map(math.log, found)) / len(found)) if found else math.nan


def runs_table(comparison: Comparison) -> Table | None:
    """All runs.

    Args:
        comparison: It.

    Returns:
        The table; None without runs.
    """
    units = Units(comparison.metric)
    numbers = {label: number for number, label in enumerate(comparison.labels)}
    rows = tuple(
        (
            Cell(run.label, method=numbers.get(run.label)),
            Cell(str(run.seed)),
            Cell(_rate(run)),
            Cell(run.state),
            Cell(str(run.steps or DASH)),
            Cell(units.level(final_metric(run))),
            Cell(units.level(best_metric(run))),
            Cell(kappa(start_kappa(run))),
            Cell(clock_text(run.seconds) if run.seconds else DASH),
            Cell(str(run.workdir)),
        )
        for run in comparison.runs
    )
    head = (
        *("method", "seed", "learning rate", "state", "steps", f"final {units.axis}"),
        *(f"best {units.axis}", "κ(J) at start", "time", "directory"),
    )
    return Table("All runs", head, rows, words=(0, 3, 9)) if rows else None


def broken_table(comparison: Comparison) -> Table | None:
    """The runs that did not finish, each with its reason.

    Args:
        comparison: It.

    Returns:
        The table; None where all finished.
    """
    numbers = {label: number for number, label in enumerate(comparison.labels)}
    rows = tuple(
        (
            Cell(run.label, method=numbers.get(run.label)),
            Cell(str(run.seed)),
            Cell(_rate(run)),
            Cell(run.state),
            Cell(run.reason or DASH),
            Cell(str(run.workdir)),
        )
        for run in comparison.runs
        if run.state != FINISHED
    )
    head = ("method", "seed", "learning rate", "state", "reason", "directory")
    caption = "Runs that did not finish: none of their figures is in a mean or a test"
    return Table(caption, head, rows, words=(0, 3, 4, 5)) if rows else None


def versions_table(comparison: Comparison) -> Table | None:
    """Versions and devices, with the count of runs where they differ.

    Args:
        comparison: It.

    Returns:
        The table; None where no run left any.
    """
    known = [run.versions for run in comparison.runs if run.versions]
    names = dict.fromkeys(name for versions in known for name in versions)
    rows = tuple(
        (Cell(name), Cell(_values([versions.get(name, DASH) for versions in known])))
        for name in names
    )
    caption = f"Versions and devices of {len(known)} of {len(comparison.runs)} runs"
    return Table(caption, ("what", "version"), rows, words=(0, 1)) if rows else None


def changes_table(comparison: Comparison) -> Table | None:
    """The fields in which methods differ from the first.

    Args:
        comparison: It.

    Returns:
        The table; None where no difference is known.
    """
    numbers = {label: number for number, label in enumerate(comparison.labels)}
    rows = []
    for label, lines in comparison.differences.items():
        for line in lines:
            field, _, change = line.partition(": ")
            rows.append((Cell(label, method=numbers.get(label)), Cell(field), Cell(change)))
    first = f" from those of {comparison.labels[0]}" if comparison.labels else ""
    caption = f"Fields of the config that differ{first}"
    return Table(caption, ("method", "field", "change"), tuple(rows), (0, 1, 2)) if rows else None


def config_table(comparison: Comparison) -> Table | None:
    """The fields that all runs share.

    Args:
        comparison: It.

    Returns:
        The table; None without any.
    """
    rows = tuple(
        (Cell(name), Cell(str(value))) for name, value in sorted(comparison.config.items())
    )
    caption = "Fields that are the same in all runs"
    return Table(caption, ("field", "value"), rows, words=(0, 1)) if rows else None


def _values(values: Sequence[Any]) -> str:
    counts = Counter(map(str, values))
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{value} ({count} runs)" for value, count in counts.most_common())


def _rate(run: Run) -> str:
    return learning_rate(run.rate) if math.isfinite(run.rate) else DASH
