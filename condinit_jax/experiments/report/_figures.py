"""The pictures of a report, drawn for a light and a dark page."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullLocator

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments.report import _alt
from condinit_jax.experiments.report._ends import label_ends, panel
from condinit_jax.experiments.report._forest import draw_differences, draw_shares
from condinit_jax.experiments.report._format import Units, kappa, learning_rate
from condinit_jax.experiments.report._tables import several_rates
from condinit_jax.experiments.report._theme import DARK, LIGHT, Theme, look, svg

BEGINNING = 0.15
"""Share of the steps that does not decide where the axis of the curves begins."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A picture in both themes.

    Attributes:
        title: What it shows, as a heading.
        caption: How to read it.
        alt: What is seen, in words.
        light: SVG document for a light page.
        dark: SVG document for a dark page.
        size: Width and height in CSS pixels.
    """

    title: str
    caption: str
    alt: str
    light: str
    dark: str
    size: tuple[int, int]


def curves_picture(comparison: Comparison) -> Picture | None:
    """The metric over the steps, with bands.

    Args:
        comparison: It.

    Returns:
        The picture; None where no run finished.
    """
    if not any(method.curve for method in comparison.methods):
        return None
    bands = any(len(method.seeds) > 1 for method in comparison.methods)
    caption = "Mean over seeds, with its 95 % interval." if bands else "One run each."
    if math.isfinite(_floor(comparison)):
        caption += f" The first {100 * BEGINNING:.0f} % of the steps may lie below the axis."
    title = f"{comparison.metric} while training"
    return _picture(
        title, caption, _alt.curves(comparison), lambda theme: draw_curves(comparison, theme)
    )


def kappas_picture(comparison: Comparison) -> Picture | None:
    """kappa(J) over the steps.

    Args:
        comparison: It.

    Returns:
        The picture; None without probes.
    """
    if not any(_kappas(method.kappas) for method in comparison.methods):
        return None
    caption = (
        "Condition number of one head's Jacobian: median over heads, geometric mean over seeds "
        "and layers. Lower is better conditioned; the axis is logarithmic."
    )
    return _picture(
        "κ(J) while training",
        caption,
        _alt.kappas(comparison),
        lambda theme: draw_kappas(comparison, theme),
    )


def differences_picture(comparison: Comparison) -> Picture | None:
    """The paired differences, as a forest plot.

    Args:
        comparison: It.

    Returns:
        The picture; None where nothing could be paired.
    """
    if not any(pair.difference for pair in comparison.pairs):
        return None
    caption = (
        "Mean of the differences paired by seed, with its 95 % interval. Filled: adjusted "
        "p < 0.05. Right of the line, the method ends higher than the reference."
    )
    return _picture(
        f"Difference in final {comparison.metric}",
        caption,
        _alt.differences(comparison),
        lambda theme: draw_differences(comparison, theme),
    )


def shares_picture(comparison: Comparison) -> Picture | None:
    """How soon methods reach the references' final metric.

    Args:
        comparison: It.

    Returns:
        The picture; None where nothing could be paired.
    """
    if not any(pair.speed.ratio for pair in comparison.pairs):
        return None
    caption = (
        f"Steps until a method first reaches the reference's final {comparison.metric}, in per "
        "cent of the steps that the reference itself needs: median with 95 % interval, and a dot "
        "for each seed. Left of the line, the method is sooner; an arrow is a run that never got "
        "there."
    )
    return _picture(
        "Share of the reference's steps",
        caption,
        _alt.shares(comparison),
        lambda theme: draw_shares(comparison, theme),
    )


def rates_picture(comparison: Comparison) -> Picture | None:
    """The final metric by learning rate.

    Args:
        comparison: It.

    Returns:
        The picture; None where no method was tried at several rates.
    """
    if not several_rates(comparison):
        return None
    return _picture(
        f"Final {comparison.metric} by learning rate",
        "Mean over the finished seeds, each method at every rate that it was tried at.",
        _alt.rates(comparison),
        lambda theme: draw_rates(comparison, theme),
    )


def draw_curves(comparison: Comparison, theme: Theme) -> Figure:
    """The figure of `curves_picture` in one theme.

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
    if math.isfinite(floor := _floor(comparison)):
        axes.set_ylim(bottom=units.scaled(floor))
    _fit_steps(axes, [step for *_, curve in shown for step in curve.steps])
    label_ends(axes, ends, theme)
    return figure


def draw_kappas(comparison: Comparison, theme: Theme) -> Figure:
    """The figure of `kappas_picture` in one theme.

    Args:
        comparison: It.
        theme: The theme.

    Returns:
        The figure.
    """
    shown = [
        (number, method, found)
        for number, method in enumerate(comparison.methods)
        if (found := _kappas(method.kappas))
    ]
    figure, axes = panel([method.label for _, method, _ in shown], "κ(J)")
    ends = []
    for number, method, found in shown:
        style = look(number, theme)
        steps, values = zip(*sorted(found.items()), strict=True)
        axes.plot(steps, values, lw=1.7, marker="o", ms=3.5, clip_on=False, **style)
        ends.append((steps[-1], values[-1], method.label, style["color"]))
    axes.set_yscale("log")
    _fit_kappas(axes, [value for *_, found in shown for value in found.values()])
    _fit_steps(axes, [step for *_, found in shown for step in found])
    label_ends(axes, ends, theme)
    return figure


def draw_rates(comparison: Comparison, theme: Theme) -> Figure:
    """The figure of `rates_picture` in one theme.

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


def _floor(comparison: Comparison) -> float:
    """Where the axis of a long curve begins, so that its end does not look flat.

    NaN for curves that are shown whole.
    """
    curves = [method.curve for method in comparison.methods if method.curve]
    if not curves or min(len(curve.steps) for curve in curves) < 8:
        return math.nan
    late = [
        low
        for curve in curves
        for step, low in zip(curve.steps, curve.low, strict=True)
        if step >= BEGINNING * curve.steps[-1]
    ]
    return min(late)


def _picture(title: str, caption: str, alt: str, draw: Callable[[Theme], Figure]) -> Picture:
    width, height = draw(LIGHT).get_size_inches()
    size = round(96 * float(width)), round(96 * float(height))
    # Greek names of figures stay as they are.
    title = title[0].upper() + title[1:] if title[0].isascii() else title
    return Picture(title, caption, alt, svg(draw, LIGHT), svg(draw, DARK), size)


def _kappas(kappas: Mapping[int, float]) -> dict[int, float]:
    """Those that a logarithmic axis can show."""
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
    axes.set_ylim(low, high)
    decades = math.log10(high / low)
    parts = (1.0, 1.5, 2, 3, 5, 7) if decades < 0.8 else (1.0, 2, 5) if decades < 3 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=parts, numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: kappa(value)))
