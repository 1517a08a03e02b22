"""The pictures of a report, drawn for a light and a dark page."""

import dataclasses
from collections.abc import Callable

from matplotlib.figure import Figure

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments.report import _alt
from condinit_jax.experiments.report._curves import (
    BEGINNING,
    draw_curves,
    draw_kappas,
    draw_rates,
    drawable,
    limits_of,
)
from condinit_jax.experiments.report._forest import draw_differences, draw_shares
from condinit_jax.experiments.report._tables import several_rates
from condinit_jax.experiments.report._theme import DARK, LIGHT, Theme, svg


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
    low, _ = limits_of(comparison)
    if any(min(method.curve.mean) < low for method in comparison.methods if method.curve):
        caption += (
            f" Of the first {100 * BEGINNING:.0f} % of the steps, a part lies below the axis."
        )
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
    if not any(drawable(method.kappas) for method in comparison.methods):
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
        "for each seed. Filled: the interval leaves out 100 %, and the mean over the steps differs "
        "too, with adjusted p < 0.05. Left of the line, the method is sooner; an arrow is a run "
        "that never got there."
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


def _picture(title: str, caption: str, alt: str, draw: Callable[[Theme], Figure]) -> Picture:
    light, size = svg(draw, LIGHT)
    dark, _ = svg(draw, DARK)
    # Greek names of figures stay as they are.
    title = title[0].upper() + title[1:] if title[0].isascii() else title
    return Picture(title, caption, alt, light, dark, size)
