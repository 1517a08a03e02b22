"""The tables of what was found, their figures already text: rows that HTML and Markdown share."""

import dataclasses
import math

from condinit_jax.experiments._comparison import Comparison, Estimate, Method, Pair, Speed
from condinit_jax.experiments._verdict import LEVEL
from condinit_jax.experiments.report._format import (
    DASH,
    Units,
    decimal,
    interval,
    kappa,
    learning_rate,
    percent,
    probability,
    share,
    significant,
)


@dataclasses.dataclass(frozen=True)
class Cell:
    """What stands in one place of a table.

    Attributes:
        text: The figure or word.
        note: What belongs to it, such as its interval, in smaller type.
        strong: Whether it is set in bold.
        method: Number of the method that it names, for the colour that it has in the pictures.
    """

    text: str
    note: str = ""
    strong: bool = False
    method: int | None = None


@dataclasses.dataclass(frozen=True)
class Table:
    """A table; the first cell of a row names it.

    Attributes:
        caption: What it shows.
        head: Names of the columns.
        rows: As many cells each as there are columns.
        words: Columns that hold words and no numbers, by their place.
    """

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: tuple[int, ...] = (0,)


def methods_table(comparison: Comparison) -> Table:
    """Each method with its final metric, and what it is against every reference.

    Args:
        comparison: It.

    Returns:
        The main table.
    """
    units = Units(comparison.metric)
    references = list(dict.fromkeys(pair.reference for pair in comparison.pairs))
    pairs = {(pair.label, pair.reference): pair for pair in comparison.pairs}
    rated = several_rates(comparison)
    losses = any(math.isfinite(method.loss) for method in comparison.methods)
    head = [
        "method",
        "seeds",
        "failed",
        *(["learning rate"] if rated else []),
        f"final {units.axis}",
    ]
    for reference in references:
        head += [f"difference to {reference}" + _bracketed(units.gap_unit), "p (Holm)"]
        head += [f"share of {reference}'s steps"]
    over_steps = "mean over the steps" + (", %" if units.in_percent else "")
    head += [over_steps, *(["training loss, nats"] if losses else [])]
    head += ["κ(J) at start"]
    rows = []
    for number, method in enumerate(comparison.methods):
        counts = (len(method.seeds), len(method.failed))
        row = [Cell(method.label, method=number), *(Cell(str(count)) for count in counts)]
        if rated:
            row.append(Cell(learning_rate(method.rate) if method.seeds else DASH))
        row.append(_final(method, units))
        for reference in references:
            row += _against(pairs.get((method.label, reference)), method, reference, units)
        row.append(_estimate(method.area, units))
        if losses:
            row.append(Cell(decimal(method.loss, 3)))
        row.append(Cell(kappa(method.kappa)))
        rows.append(tuple(row))
    caption = "Methods, with means over seeds"
    return Table(caption, tuple(head), tuple(rows))


def pairs_table(comparison: Comparison) -> Table | None:
    """Every figure of every pair.

    Args:
        comparison: It.

    Returns:
        The table; None where nothing could be paired.
    """
    if not any(pair.seeds for pair in comparison.pairs):
        return None
    units = Units(comparison.metric)
    numbers = {label: number for number, label in enumerate(comparison.labels)}
    head = (
        "method",
        "against",
        "seeds",
        f"difference in final {comparison.metric}" + _bracketed(units.gap_unit),
        "p (t)",
        "p (Holm)",
        "p (signs)",
        "difference in mean over the steps" + _bracketed(units.gap_unit),
        "p (its t, Holm)",
        "share of the steps",
        "reached",
        "share by seed",
    )
    rows = tuple(
        (
            Cell(pair.label, method=numbers.get(pair.label)),
            Cell(pair.reference),
            Cell(", ".join(map(str, pair.seeds)) or DASH),
            _difference(pair, units),
            Cell(probability(pair.p)),
            Cell(probability(pair.p_adjusted)),
            Cell(probability(pair.p_sign)),
            _gap(pair.area, units),
            Cell(probability(pair.p_area)),
            _share(pair.speed),
            Cell(f"{pair.speed.reached} of {pair.speed.count}"),
            Cell(_ratios(pair.speed)),
        )
        for pair in comparison.pairs
    )
    return Table("All figures of the paired comparisons", head, rows, words=(0, 1, 2, 11))


def correlations_table(comparison: Comparison) -> Table | None:
    """What kappa(J) before the first step predicts.

    Args:
        comparison: It.

    Returns:
        The table; None where nothing was correlated.
    """
    if not comparison.correlations:
        return None
    rows = tuple(
        (
            Cell(found.outcome),
            Cell("all (geometric mean)" if found.layer is None else str(found.layer)),
            Cell(significant(found.rho, 2)),
            Cell(probability(found.p)),
            Cell(str(found.count)),
        )
        for found in comparison.correlations
    )
    head = ("predicted", "κ(J) of layer", "Spearman's rho", "p (permutations)", "methods")
    return Table("Rank correlation of κ(J) before the first step", head, rows, words=(0, 1))


def several_rates(comparison: Comparison) -> bool:
    """Whether some method was tried at more than one learning rate.

    Args:
        comparison: It.

    Returns:
        Whether there is a choice of rates to show.
    """
    return any(len(method.rates) > 1 for method in comparison.methods)


def _bracketed(unit: str) -> str:
    return f", {unit}" if unit else ""


def _final(method: Method, units: Units) -> Cell:
    if method.final is None:
        return Cell(DASH)
    text = f"{units.level(method.final.value)} ± {units.spread(method.spread)}"
    return Cell(text, interval(method.final, units.level))


def _estimate(estimate: Estimate | None, units: Units) -> Cell:
    if estimate is None:
        return Cell(DASH)
    return Cell(units.level(estimate.value), interval(estimate, units.level))


def _against(pair: Pair | None, method: Method, reference: str, units: Units) -> list[Cell]:
    if pair is None:
        own = "reference" if method.label == reference else DASH
        return [Cell(own), Cell(DASH), Cell(DASH)]
    return [_difference(pair, units), Cell(probability(pair.p_adjusted)), _share(pair.speed, True)]


def _difference(pair: Pair, units: Units) -> Cell:
    cell = _gap(pair.difference, units)
    return dataclasses.replace(cell, strong=pair.p_adjusted < LEVEL)


def _gap(estimate: Estimate | None, units: Units) -> Cell:
    if estimate is None:
        return Cell(DASH)
    return Cell(units.gap(estimate.value), interval(estimate, units.bound))


def _share(speed: Speed, count: bool = False) -> Cell:
    if speed.ratio is None:
        return Cell(DASH)
    note = interval(speed.ratio, percent)
    if count:
        note += f", {speed.reached} of {speed.count}"
    return Cell(share(speed.ratio.value), note)


def _ratios(speed: Speed) -> str:
    words = [
        f"{seed}: {'> ' if bound and math.isfinite(ratio) else ''}{share(ratio)}"
        for seed, ratio, bound in speed.ratios
    ]
    return "; ".join(words) or DASH
