"""The curves of a run as one picture."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

TRAIN, EVAL, RATE = "#9ecae1", "#08519c", "#636363"

PANELS = {"loss": "loss (nats)", "accuracy": "accuracy"}
"""Metrics that get a panel, with the labels of their axes."""


def _panel(axes: Axes, rows: Sequence[dict[str, Any]], metric: str, label: str) -> None:
    for kind, color, marker in (("train", TRAIN, ""), ("eval", EVAL, "o")):
        points = [(r["step"], r[metric]) for r in rows if r["kind"] == kind and metric in r]
        if points:
            name = {"train": "training", "eval": "evaluation"}[kind]
            axes.plot(
                *zip(*points, strict=True), color=color, marker=marker, markersize=4, label=name
            )
    axes.set_ylabel(label)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)


def draw_curves(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Loss, accuracy and learning rate against the step.

    Args:
        rows: Rows of `metrics.jsonl`.
        title: What the run is.

    Returns:
        The figure, with a canvas of its own; the global backend is not touched.
    """
    figure = Figure(figsize=(10, 6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, 2, height_ratios=(3, 1))
    for column, (metric, label) in enumerate(PANELS.items()):
        _panel(figure.add_subplot(grid[0, column]), rows, metric, label)
    rates = [(r["step"], r["lr"]) for r in rows if r["kind"] == "train" and "lr" in r]
    axes = figure.add_subplot(grid[1, :])
    if rates:
        axes.plot(*zip(*rates, strict=True), color=RATE)
        axes.set_ylim(bottom=0)
    axes.set_ylabel("learning rate")
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    figure.suptitle(title)
    return figure


def save_curves(rows: Sequence[dict[str, Any]], title: str, path: Path) -> None:
    """Draws the curves into a PNG file, whole or not at all.

    Args:
        rows: Rows of `metrics.jsonl`.
        title: What the run is.
        path: The file.
    """
    beside = path.with_name(path.name + ".tmp")
    draw_curves(rows, title).savefig(beside, format="png", dpi=120)
    beside.replace(path)
