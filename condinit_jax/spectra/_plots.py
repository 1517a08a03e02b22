"""Pictures of condition numbers: kappa over depth, and over the steps of runs.

Runs have the colours of Okabe and Ito, which colour-blind readers can tell apart, and differ in
their markers too.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from condinit_jax.errors import UserError
from condinit_jax.spectra._figures import (
    BESIDE,
    WHAT,
    joined,
    layer_colors,
    layer_legend,
    new_figure,
    series_name,
)
from condinit_jax.spectra._probe_table import Probe

RUN_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
RUN_MARKERS = ("o", "s", "^", "D", "v", "P", "X")

_FROM_BELOW: Any = 6  # a triangle, standing on its point's place


def plot_depth(probe: Probe | Sequence[Probe], *, step: int | None = None) -> Figure:
    """kappa(J) over the depth of the model, a line for each run.

    A line is the median over heads and examples; each of them is a dot, a triangle where kappa is
    only known from below.

    Args:
        probe: One or several probes.
        step: The step to show; None takes the last one of each run.

    Returns:
        The figure.

    Raises:
        UserError: If there is nothing to show.

    Example:
        >>> from condinit_jax.spectra import Probe, plot_depth
        >>> rows = [{"run": "a", "step": 0, "layer": n, "kappa": 10.0 + n} for n in range(3)]
        >>> plot_depth(Probe(rows)).axes[0].get_xlabel()
        'layer, from the input (0)'
    """
    probe = joined(probe)
    rows = _measured(probe, "plot_depth")
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure = new_figure(8.2, 4.6)
    axes = figure.add_subplot()
    shown: list[dict[str, Any]] = []
    for number, run in enumerate(runs):
        own = [row for row in rows if row["run"] == run]
        at = max(row["step"] for row in own) if step is None else step
        own = [row for row in own if row["step"] == at]
        if own:
            shift = 0.12 * (number - (len(runs) - 1) / 2)
            _run_over_depth(axes, own, number, series_name(run, at, probe), shift)
            shown += own
    if not shown:
        raise UserError(f"step = {step}: no row of the probe has it")
    axes.set_xlabel("layer, from the input (0)")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(figure, axes, "Condition number of J over depth: median, and single heads")
    _run_legend(axes, _any_from_below(shown), marker=_FROM_BELOW)
    return figure


def plot_steps(probe: Probe | Sequence[Probe]) -> Figure:
    """kappa(J) over the steps of training.

    Several runs: a line for each, the median over layers, heads and examples, in a band from the
    layer with the lowest median to that with the highest. One run: a line for each layer.

    Args:
        probe: One or several probes, of more than one step.

    Returns:
        The figure.

    Raises:
        UserError: If there is nothing to show.

    Example:
        >>> from condinit_jax.spectra import Probe, plot_steps
        >>> rows = [{"run": "a", "step": n, "layer": 0, "kappa": 10.0 + n} for n in range(3)]
        >>> plot_steps(Probe(rows)).axes[0].get_xlabel()
        'step'
    """
    probe = joined(probe)
    rows = _measured(probe, "plot_steps")
    runs = list(dict.fromkeys(row["run"] for row in rows))
    figure = new_figure(8.2, 4.6)
    axes = figure.add_subplot()
    if len(runs) > 1:
        title = "median over layers and heads; band: the layers' medians"
        for number, run in enumerate(runs):
            _run_in_training(axes, [row for row in rows if row["run"] == run], number, run)
        _run_legend(axes, _any_from_below(rows), marker="o", mfc="white")
    else:
        title = "median over heads" + (f", {runs[0]}" if runs[0] else "")
        colors = layer_colors(sorted({row["layer"] for row in rows}))
        for layer, color in colors.items():
            own = [row for row in rows if row["layer"] == layer]
            steps, medians = _medians(own, "step")
            axes.plot(steps, medians, marker="o", ms=4, color=color)
            _hollow(axes, own, steps, medians, color, "o")
        layer_legend(figure, axes, colors)
    hollow = len(runs) == 1 and _any_from_below(rows)
    axes.set_xlabel("step" + "; hollow: known from below only" * hollow)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    _finish(figure, axes, f"Condition number of J in training: {title}")
    return figure


def _measured(probe: Probe, name: str) -> list[dict[str, Any]]:
    """Rows whose kappa can be drawn."""
    rows = [row for row in probe.rows if row.get("kappa") is not None and np.isfinite(row["kappa"])]
    if not rows:
        raise UserError(f"{name}: no row of the probe has a finite kappa")
    return rows


def _any_from_below(rows: list[dict[str, Any]]) -> bool:
    return any(row.get("converged") is False for row in rows)


def _medians(rows: list[dict[str, Any]], over: str) -> tuple[list[int], list[float]]:
    at = sorted({row[over] for row in rows})
    return at, [float(np.median([r["kappa"] for r in rows if r[over] == x])) for x in at]


def _run_over_depth(
    axes: Axes, rows: list[dict[str, Any]], number: int, label: str, shift: float
) -> None:
    """The median of a run, and a dot for every row."""
    color, marker = _look(number)
    layers, medians = _medians(rows, "layer")
    places = np.array(layers) + shift
    axes.plot(places, medians, marker=marker, ms=6, color=color, label=label, zorder=3)
    for converged, dot in ((True, "."), (False, _FROM_BELOW)):
        points = [
            (row["layer"] + shift, row["kappa"])
            for row in rows
            if row.get("converged", True) is converged
        ]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=14, marker=dot, color=color, alpha=0.4)


def _run_in_training(axes: Axes, rows: list[dict[str, Any]], number: int, label: str) -> None:
    """The median of a run, and the range of its layers' medians."""
    color, marker = _look(number)
    steps, medians = _medians(rows, "step")
    of_layers = [_medians([row for row in rows if row["step"] == at], "layer")[1] for at in steps]
    lows, highs = ([end(medians) for medians in of_layers] for end in (min, max))
    axes.fill_between(steps, lows, highs, color=color, alpha=0.13, lw=0)
    axes.plot(steps, medians, marker=marker, ms=5, color=color, label=label)
    _hollow(axes, rows, steps, medians, color, marker)


def _hollow(
    axes: Axes,
    rows: list[dict[str, Any]],
    steps: list[int],
    medians: list[float],
    color: Any,
    marker: str,
) -> None:
    """Empties the markers of steps at which a kappa is only known from below."""
    open_steps = {row["step"] for row in rows if row.get("converged") is False}
    points = [point for point in zip(steps, medians, strict=True) if point[0] in open_steps]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(x, y, marker, ms=5, mfc="white", mec=color, zorder=3)


def _look(number: int) -> tuple[str, str]:
    return RUN_COLORS[number % len(RUN_COLORS)], RUN_MARKERS[number % len(RUN_MARKERS)]


def _finish(figure: Figure, axes: Axes, title: str) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("κ(J) of one head, largest / smallest singular value")
    axes.grid(alpha=0.3)
    figure.suptitle(f"{title}\n{WHAT}", fontsize=11)


def _run_legend(axes: Axes, from_below: bool, **look: Any) -> None:
    handles, _ = axes.get_legend_handles_labels()
    if from_below:
        look = {"ls": "", "color": "0.35", "ms": 5, "label": "known from\nbelow only", **look}
        handles.append(Line2D([], [], **look))
    if handles:
        axes.legend(handles=handles, **BESIDE)
