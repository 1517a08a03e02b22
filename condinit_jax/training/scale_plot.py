"""The scales that a refinement found, as one picture."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

SMALLEST = 1e-3
"""Where a scale of 0 is drawn: a logarithmic axis has no 0."""


def draw_scales(scales: Mapping[str, float | list[float]], title: str) -> Figure:
    """Scales against depth on a log axis, and in a second panel those of single tensors.

    Args:
        scales: A number per tensor, or a list with one per layer, by path.
        title: What they are.

    Returns:
        The figure, with a canvas of its own; the global backend is not touched.
    """
    stacked = {path: values for path, values in scales.items() if isinstance(values, list)}
    single = {path: value for path, value in scales.items() if isinstance(value, float)}
    figure = Figure(figsize=(13, 6), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2, 1), sharey=True)
    colors = matplotlib.colormaps["tab20"]
    for place, (path, values) in enumerate(stacked.items()):
        shown = [max(value, SMALLEST) for value in values]
        left.plot(range(len(shown)), shown, marker="o", markersize=4, color=colors(place % 20))
        left.lines[-1].set_label(path)
    left.set_xlabel("layer")
    left.set_ylabel("scale")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    if stacked:
        left.legend(frameon=False, fontsize="x-small", ncols=2)
    right.plot(range(len(single)), [max(v, SMALLEST) for v in single.values()], "o", color="0.3")
    right.set_xticks(range(len(single)), list(single), rotation=60, ha="right", fontsize="small")
    for axes in (left, right):
        axes.set_yscale("log")
        axes.axhline(1.0, color="0.7", linewidth=1, zorder=0)
        axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def save_scales(scales: Mapping[str, float | list[float]], title: str, path: Path) -> None:
    """Draws the scales into a PNG file, whole or not at all.

    Args:
        scales: As for `draw_scales`.
        title: What they are.
        path: The file.
    """
    beside = path.with_name(path.name + ".tmp")
    draw_scales(scales, title).savefig(beside, format="png", dpi=120)
    beside.replace(path)
