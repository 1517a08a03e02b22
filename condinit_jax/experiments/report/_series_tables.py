"""The tables behind the curves: figures by step and by learning rate."""

import math
from collections.abc import Sequence

from condinit_jax.experiments._comparison import Comparison, Estimate, Method
from condinit_jax.experiments.report._format import DASH, Units, interval, kappa, learning_rate
from condinit_jax.experiments.report._tables import Cell, Table, several_rates

MOST = 25
"""Rows of a table by step; more are thinned out."""


def curves_table(comparison: Comparison) -> Table | None:
    """The metric by step, a column for each method.

    Args:
        comparison: It.

    Returns:
        The table; None where no run finished.
    """
    units = Units(comparison.metric)
    columns = {
        method.label: {
            step: Cell(units.level(mean), interval(Estimate(mean, low, high), units.level))
            for step, mean, low, high in _points(method)
        }
        for method in comparison.methods
        if method.curve
    }
    caption = f"Mean {units.axis} by step, with the mean's 95 % interval"
    return _by_step(caption, columns)


def kappas_table(comparison: Comparison) -> Table | None:
    """kappa(J) by step, a column for each method.

    Args:
        comparison: It.

    Returns:
        The table; None without probes.
    """
    columns = {
        method.label: {step: Cell(kappa(value)) for step, value in method.kappas.items()}
        for method in comparison.methods
        if method.kappas
    }
    return _by_step("κ(J) by step: geometric mean over seeds and layers", columns)


def rates_table(comparison: Comparison) -> Table | None:
    """The final metric of each method at each learning rate.

    Args:
        comparison: It.

    Returns:
        The table; None where no method was tried at several rates.
    """
    if not several_rates(comparison):
        return None
    units = Units(comparison.metric)
    rates = sorted({rate for method in comparison.methods for rate in method.rates})
    rows = []
    for number, method in enumerate(comparison.methods):
        known = [value for value in method.rates.values() if math.isfinite(value)]
        best = max(known, default=math.nan)
        found = [method.rates.get(rate, math.nan) for rate in rates]
        cells = [Cell(units.level(value), strong=value == best) for value in found]
        rows.append((Cell(method.label, method=number), *cells))
    head = ("method", *(f"at {learning_rate(rate)}" for rate in rates))
    caption = f"Mean final {units.axis} by learning rate, over the finished seeds; best in bold"
    return Table(caption, head, tuple(rows))


def spread_out(steps: Sequence[int], most: int) -> list[int]:
    """Some of the steps, evenly spread, with the first and the last.

    Args:
        steps: All of them, rising.
        most: How many may be left, at least 2.

    Returns:
        The steps that are left.

    Example:
        >>> spread_out(range(0, 1001, 100), 3)
        [0, 500, 1000]
    """
    if len(steps) <= most:
        return list(steps)
    return [steps[round(k * (len(steps) - 1) / (most - 1))] for k in range(most)]


def _points(method: Method) -> list[tuple[int, float, float, float]]:
    """Steps with mean and interval; the interval of a single run is none."""
    curve = method.curve
    if curve is None:
        return []
    lows, highs = curve.low, curve.high
    if len(method.seeds) < 2:
        lows = highs = (math.nan,) * len(curve.steps)
    return list(zip(curve.steps, curve.mean, lows, highs, strict=True))


def _by_step(caption: str, columns: dict[str, dict[int, Cell]]) -> Table | None:
    steps = sorted({step for column in columns.values() for step in column})
    if not steps:
        return None
    kept = spread_out(steps, MOST)
    if len(kept) < len(steps):
        caption += f" ({len(kept)} of {len(steps)} steps)"
    rows = tuple(
        (Cell(str(step)), *(column.get(step, Cell(DASH)) for column in columns.values()))
        for step in kept
    )
    return Table(caption, ("step", *columns), rows, words=())
