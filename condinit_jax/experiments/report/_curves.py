"""The panels of curves: the metric and kappa(J) over the steps, the metric over learning rates."""

import math
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments.report._ends import label_ends, panel
from condinit_jax.experiments.report._format import Units, kappa, learning_rate, power_of_ten
from condinit_jax.experiments.report._theme import Theme, look

BEGINNING = 0.15
"""Share of the steps that does not decide where the axis of curves begins."""


def draw_curves(comparison: Comparison, theme: Theme) -> Figure:
    """The metric over the steps with a band for each method, in one theme.

    Args:
        comparison: It.
        theme: The theme.

    Returns:
        The figure.
    """
    units = Units(comparison.metric)
    shown = [(n, m, m.curve) for n, m in enumerate(comparison.methods) if m.curve]
    figure, axes = panel([method.label for _, method, _ in shown], units.axis)
    ends = []
    for number, method, curve in shown:
        style = look(number, theme)
        mean, low, high = (
            [units.scaled(value) for value in values]
            for values in (curve.mean, curve.low, curve.high)
        )
        if len(method.seeds) > 1:
            axes.fill_between(curve.steps, low, high, color=style["color"], alpha=theme.band, lw=0)
        # The baseline lies above the others, which are compared with it.
        axes.plot(
            curve.steps, mean, lw=1.7, marker=_alone(mean), ms=5, zorder=3 - 0.01 * number, **style
        )
        ends.append((curve.steps[-1], mean[-1], method.label, style["color"]))
    axes.set_ylim(*map(units.scaled, limits_of(comparison)))
    _fit_steps(axes, [step for *_, curve in shown for step in curve.steps])
    label_ends(axes, ends, theme)
    return figure


def draw_kappas(comparison: Comparison, theme: Theme) -> Figure:
    """kappa(J) over the steps on a logarithmic axis, in one theme.

    Args:
        comparison: It.
        theme: The theme.

    Returns:
        The figure.
    """
    shown = [
        (number, method, found)
        for number, method in enumerate(comparison.methods)
        if (found := drawable(method.kappas))
    ]
    figure, axes = panel([method.label for _, method, _ in shown], "κ(J)")
    ends = []
    for number, method, found in shown:
        style = look(number, theme)
        steps, values = zip(*sorted(found.items()), strict=True)
        axes.plot(steps, values, lw=1.7, marker="o", ms=3.5, clip_on=False, **style)
        ends.append((steps[-1], values[-1], method.label, style["color"]))
    _fit_kappas(axes, [value for *_, found in shown for value in found.values()])
    _fit_steps(axes, [step for *_, found in shown for step in found])
    label_ends(axes, ends, theme)
    return figure


def draw_rates(comparison: Comparison, theme: Theme) -> Figure:
    """The final metric over learning rates, in one theme.

    Args:
        comparison: It.
        theme: The theme.

    Returns:
        The figure.
    """
    units = Units(comparison.metric)
    shown = [
        (number, method, sorted(known.items()))
        for number, method in enumerate(comparison.methods)
        if (known := {r: v for r, v in method.rates.items() if r > 0 and math.isfinite(v)})
    ]
    figure, axes = panel(
        [method.label for _, method, _ in shown], f"final {units.axis}", "learning rate"
    )
    ends = []
    for number, method, found in shown:
        style = look(number, theme)
        rates, values = zip(*found, strict=True)
        values = tuple(units.scaled(value) for value in values)
        axes.plot(rates, values, lw=1.7, marker="o", ms=4, **style)
        ends.append((rates[-1], values[-1], method.label, style["color"]))
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    rates = tuple(sorted({rate for *_, found in shown for rate, _ in found}))
    axes.xaxis.set_major_locator(FixedLocator(rates))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: learning_rate(value)))
    if len(rates) > 4:
        axes.tick_params(axis="x", rotation=45)
    label_ends(axes, ends, theme)
    return figure


def limits_of(comparison: Comparison) -> tuple[float, float]:
    """Limits of the metric's axis that let the ends of curves be told apart.

    They hold the means after the beginning, and of the bands what lies within the means' own range
    on either side: those of two seeds can be wider than all that is to be seen.

    Args:
        comparison: It, with a curve at least.

    Returns:
        The limits, in the metric's own unit.
    """
    late = [
        point
        for method in comparison.methods
        if (curve := method.curve)
        for point in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True)
        if point[0] >= BEGINNING * curve.steps[-1]
    ]
    _, means, lows, highs = zip(*late, strict=True)
    least, most = min(means), max(means)
    span = max(most - least, 0.02 * abs(most), 1e-6)
    low, high = max(min(lows), least - span), min(max(highs), most + span)
    room = 0.04 * max(high - low, span)
    low, high = low - room, high + room
    if Units(comparison.metric).in_percent:
        low, high = max(low, -0.005), min(high, 1.005)
    return low, high


def drawable(kappas: Mapping[int, float]) -> dict[int, float]:
    """Those condition numbers that a logarithmic axis can show.

    Args:
        kappas: By step.

    Returns:
        The finite ones.
    """
    return {step: value for step, value in kappas.items() if 0 < value < math.inf}


def _alone(points: list[float]) -> str:
    """The marker of a curve without markers: a line through one point would not be seen."""
    return "o" if len(points) == 1 else ""


def _fit_steps(axes: Axes, steps: Sequence[int]) -> None:
    """Lets curves end at the edge, where their names stand, with steps as whole numbers."""
    first, last = min(steps), max(steps)
    axes.set_xlim(first - 0.02 * (last - first) - (last == first), last + (last == first))
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))


def _fit_kappas(axes: Axes, values: list[float]) -> None:
    """A logarithmic axis with figures on it even where it spans no whole decade."""
    low, high = min(values) / 1.15, max(values) * 1.15
    if high < 3 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(3), middle * math.sqrt(3)
    # The limits first: a single value gives a logarithmic axis none.
    axes.set_ylim(low, high)
    axes.set_yscale("log")
    decades = math.log10(high / low)
    parts = (1.0, 1.5, 2, 3, 5, 7) if decades < 0.8 else (1.0, 2, 5) if decades < 3 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=parts, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    # All figures of an axis are written alike.
    show = power_of_ten if high >= 1e5 else kappa
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: show(value)))
