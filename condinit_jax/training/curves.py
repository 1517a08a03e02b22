"""The curves of a run as one picture."""

import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from condinit_jax.training.probe_rows import layer_kappas

TRAIN, EVAL, RATE = "#9ecae1", "#08519c", "#636363"

PANELS = {"loss": "loss (nats)", "accuracy": "accuracy"}
"""Metrics that get a panel, with the labels of their axes."""

NAMED_LAYERS = 6
"""Most layers that the legend of the probes names."""


def _panel(axes: Axes, rows: Sequence[dict[str, Any]], metric: str) -> None:
    for kind, color, marker in (("train", TRAIN, ""), ("eval", EVAL, "o")):
        points = [(r["step"], r[metric]) for r in rows if r["kind"] == kind and metric in r]
        if points:
            name = {"train": "training", "eval": "evaluation"}[kind]
            axes.plot(
                *zip(*points, strict=True),
                color=color,
                marker=marker or _alone(points),
                markersize=4,
                label=name,
            )
    _finish(axes, PANELS[metric])


def _alone(points: Sequence[Any]) -> str:
    """The marker of a curve without markers: a line through one point would not be seen."""
    return "o" if len(points) == 1 else ""


def _probe_panel(axes: Axes, rows: Sequence[dict[str, Any]]) -> None:
    """Condition numbers by layer on a log scale; hollow where a figure came with a warning."""
    by_step = itertools.groupby(rows, key=lambda row: row["step"])
    probes = {step: list(group) for step, group in by_step}
    kappas = {step: layer_kappas(group) for step, group in probes.items()}
    doubtful = {(r["step"], r["layer"]) for r in rows if r.get("warning")}
    layers = sorted({layer for by_layer in kappas.values() for layer in by_layer})
    stride = math.ceil(len(layers) / NAMED_LAYERS)
    for place, layer in enumerate(layers):
        points = [(step, found[layer]) for step, found in kappas.items() if layer in found]
        color = matplotlib.colormaps["viridis"](0.9 * place / max(len(layers) - 1, 1))
        name = f"layer {layer}" if place % stride == 0 else None
        axes.plot(*zip(*points, strict=True), color=color, marker="o", markersize=4, label=name)
        hollow = [point for point in points if (point[0], layer) in doubtful]
        if hollow:
            style: dict[str, Any] = {"marker": "o", "markersize": 4, "markerfacecolor": "white"}
            axes.plot(*zip(*hollow, strict=True), color=color, linestyle="", **style)
    axes.set_yscale("log")
    _finish(axes, "κ(J), median over heads" + ("; hollow: see warning" if doubtful else ""))


def _finish(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_xlabel("step")
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)


def draw_curves(rows: Sequence[dict[str, Any]], title: str) -> Figure:
    """Loss, accuracy and learning rate against the step, and kappa(J) where the run has probes.

    Args:
        rows: Rows of `metrics.jsonl`.
        title: What the run is.

    Returns:
        The figure, with a canvas of its own; the global backend is not touched.
    """
    probes = [row for row in rows if row["kind"] == "probe"]
    panels = ["loss", "kappa", "accuracy"] if layer_kappas(probes) else list(PANELS)
    figure = Figure(figsize=(5 * len(panels), 6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = figure.add_gridspec(2, len(panels), height_ratios=(3, 1))
    for column, metric in enumerate(panels):
        axes = figure.add_subplot(grid[0, column])
        if metric == "kappa":
            _probe_panel(axes, probes)
        else:
            _panel(axes, rows, metric)
    rates = [(r["step"], r["lr"]) for r in rows if r["kind"] == "train" and "lr" in r]
    axes = figure.add_subplot(grid[1, :])
    if rates:
        axes.plot(*zip(*rates, strict=True), color=RATE, marker=_alone(rates), markersize=4)
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
