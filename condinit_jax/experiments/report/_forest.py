"""Forest plots: what each method is against each reference, one row for each pair."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from condinit_jax.experiments._comparison import Comparison, Pair
from condinit_jax.experiments._verdict import LEVEL
from condinit_jax.experiments.report._ends import SIZE, WIDTH, shortened
from condinit_jax.experiments.report._format import MINUS, NOT_REACHED, Units, decimal
from condinit_jax.experiments.report._theme import Theme, look, new_figure, text_width

TICKS = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.2, 1.5, 2, 3, 4, 6, 8, 12)
"""Shares that an axis may bear."""


def draw_differences(comparison: Comparison, theme: Theme) -> Figure:
    """Differences of the final metric with their intervals.

    Args:
        comparison: It, with a difference at least.
        theme: The theme.

    Returns:
        The figure.
    """
    units = Units(comparison.metric)
    pairs = [pair for pair in comparison.pairs if pair.difference]
    unit = f", {units.gap_unit}" if units.gap_unit else ""
    figure, axes, rows = _rows(pairs, f"difference in final {comparison.metric}{unit}", theme)
    axes.axvline(0, color=theme.muted, lw=1)
    for pair, at in zip(pairs, rows, strict=True):
        found = pair.difference
        if found is not None:
            value, low, high = map(units.scaled, (found.value, found.low, found.high))
            color = _color(comparison, pair, theme)
            if math.isfinite(low) and math.isfinite(high):
                axes.plot([low, high], [at, at], color=color, lw=1.7, solid_capstyle="butt")
            _point(axes, value, at, color, pair.p_adjusted < LEVEL, theme)
    low, high = axes.get_xlim()
    reach = max(abs(low), abs(high), 1e-9)
    # Zero is always in sight, and room is left beside it.
    axes.set_xlim(min(low, -0.15 * reach), max(high, 0.15 * reach))
    axes.xaxis.set_major_locator(MaxNLocator(6, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _signed(value)))
    return figure


def draw_shares(comparison: Comparison, theme: Theme) -> Figure:
    """Shares of the reference's steps with their intervals, and those of single seeds.

    Args:
        comparison: It, with a ratio at least.
        theme: The theme.

    Returns:
        The figure.
    """
    pairs = [pair for pair in comparison.pairs if pair.speed.ratio]
    figure, axes, rows = _rows(pairs, "share of the reference's steps, %", theme)
    axes.set_xscale("log")
    low, high = _limits(pairs)
    axes.set_xlim(low, high)
    axes.axvline(1, color=theme.muted, lw=1)
    for pair, at in zip(pairs, rows, strict=True):
        ratio = pair.speed.ratio
        if ratio is None:
            continue
        color = _color(comparison, pair, theme)
        for _, single, bound in pair.speed.ratios:
            if single > 0:
                marker = ">" if bound else "o"
                place = min(single, high)
                axes.plot(place, at - 0.22, marker, color=color, ms=3, alpha=0.55, clip_on=False)
        if not math.isnan(ratio.low) and not math.isnan(ratio.high) and ratio.low < math.inf:
            ends = [max(ratio.low, low), min(ratio.high, high)]
            axes.plot(ends, [at, at], color=color, lw=1.7, solid_capstyle="butt", clip_on=False)
            if ratio.high == math.inf:
                axes.plot(high, at, ">", color=color, ms=5, clip_on=False)
        if math.isfinite(ratio.value):
            differs = pair.p_area < LEVEL and (ratio.high < 1 or ratio.low > 1)
            _point(axes, ratio.value, at, color, differs, theme)
        else:
            text = axes.text(high, at + 0.1, NOT_REACHED, ha="right", va="top", fontsize=8)
            text.set_color(theme.muted)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    while len(ticks) > 8:
        # Whichever are dropped, the line at 100 % keeps its figure.
        one = ticks.index(1)
        ticks = [tick for place, tick in enumerate(ticks) if (place - one) % 2 == 0]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: decimal(100 * value, 0)))
    return figure


def _rows(pairs: Sequence[Pair], xlabel: str, theme: Theme) -> tuple[Figure, Axes, list[float]]:
    """A panel with a row for each pair, in groups by reference, and the heights of the rows."""
    references = list(dict.fromkeys(pair.reference for pair in pairs))
    heights: dict[tuple[str, str], float] = {}
    headings = {}
    at = 0.0
    for reference in references:
        headings[reference] = at
        for pair in pairs:
            if pair.reference == reference:
                at += 1
                heights[pair.label, reference] = at
        at += 1.3
    rows = at - 0.3
    bottom, top = 0.5, 0.05
    height = 0.27 * (rows + 0.7) + bottom + top
    figure = new_figure(WIDTH, height)
    names = [shortened(pair.label) for pair in pairs]
    left = text_width(figure, names, SIZE) + 0.2
    axes = figure.add_axes(
        (left / WIDTH, bottom / height, 1 - (left + 0.2) / WIDTH, 1 - (bottom + top) / height)
    )
    axes.set_ylim(rows, -0.7)
    axes.set_yticks([heights[pair.label, pair.reference] for pair in pairs], names)
    axes.tick_params(axis="y", length=0, labelsize=SIZE, labelcolor=theme.ink)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(xlabel)
    for reference, place in headings.items():
        axes.text(
            -left / (WIDTH - left - 0.2),
            place,
            f"against {shortened(reference)}",
            transform=axes.get_yaxis_transform(),
            va="center",
            fontsize=SIZE,
            color=theme.muted,
        )
    return figure, axes, [heights[pair.label, pair.reference] for pair in pairs]


def _color(comparison: Comparison, pair: Pair, theme: Theme) -> str:
    labels = comparison.labels
    number = labels.index(pair.label) if pair.label in labels else 0
    return str(look(number, theme)["color"])


def _point(axes: Axes, x: float, y: float, color: str, filled: bool, theme: Theme) -> None:
    face = color if filled else theme.page
    axes.plot(x, y, "o", color=color, mfc=face, ms=6.5, mew=1.6, zorder=4, clip_on=False)


def _limits(pairs: Sequence[Pair]) -> tuple[float, float]:
    """Limits that hold every finite share and 100 %, with room beside them."""
    shares = [1.0]
    for pair in pairs:
        ratio = pair.speed.ratio
        if ratio is not None:
            shares += [ratio.value, ratio.low, ratio.high]
        shares += [single for _, single, _ in pair.speed.ratios]
    known = [share for share in shares if 0 < share < math.inf]
    return min(min(known), 0.8) / 1.1, max(max(known), 1.25) * 1.1


def _signed(value: float) -> str:
    text = f"{value:.6g}".replace("-", MINUS)
    return f"+{text}" if value > 0 else text
