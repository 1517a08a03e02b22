"""A picture of all singular values, layer by layer."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from condinit_jax.errors import UserError
from condinit_jax.spectra._figures import (
    WHAT,
    joined,
    layer_colors,
    layer_legend,
    new_figure,
    series_name,
)
from condinit_jax.spectra._probe_table import Place, Probe

_Spectrum = tuple[np.ndarray, int]
"""Singular values over the largest, and how many of them are not zero."""


def plot_spectra(probe: Probe | Sequence[Probe]) -> Figure:
    """The singular values of J over the layers, a panel for each run and step.

    Each is divided by the largest, so that a curve ends at 1 / kappa(J). A line is the median over
    heads and examples. Where values counted as zero begin, crosses stand at the lower edge.

    Args:
        probe: One or several probes, made with `values="all"`.

    Returns:
        The figure.

    Raises:
        UserError: If there are no singular values.

    Example:
        >>> import numpy as np
        >>> from condinit_jax.spectra import Place, Probe, plot_spectra
        >>> row = {"run": "", "step": 0, "layer": 0, "head": 0, "example": 0, "rank": 3}
        >>> spectra = {Place("", 0, 0, 0, 0): np.array([4.0, 2.0, 1.0, 0.0])}
        >>> len(plot_spectra(Probe([row], spectra)).axes)
        1
    """
    probe = joined(probe)
    if not probe.spectra:
        raise UserError(
            'plot_spectra: the probe holds no singular values; make it with values="all"'
        )
    panels: dict[tuple[str, int], dict[int, list[_Spectrum]]] = {}
    for row in probe.rows:
        values = probe.spectra.get(Place(*(row[name] for name in Place._fields)))
        if values is not None and row["rank"]:
            layers = panels.setdefault((row["run"], row["step"]), {})
            layers.setdefault(row["layer"], []).append((values / values[0], row["rank"]))
    if not panels:
        raise UserError("plot_spectra: every singular value of the probe is zero")
    every = sorted({layer for layers in panels.values() for layer in layers})
    columns = min(len(panels), 3)
    lines = math.ceil(len(panels) / columns)
    figure = new_figure(max(3.2 * columns + 1.2, 6.8), 3.2 * lines + 0.9)
    grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    colors = layer_colors(every)
    known = [one for layers in panels.values() for spectra in layers.values() for one in spectra]
    floor = min(values[rank - 1] for values, rank in known)
    for axes, ((run, step), layers) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, layers, colors, floor / 4)
        axes.set_title(series_name(run, step, probe), fontsize=10)
        axes.tick_params(labelbottom=True)
        axes.set_xticks([0, 0.5, 1], ["0", "½", "1"])
    for axes in grid.flat[len(panels) :]:
        axes.remove()
    for axes in grid[:, 0]:
        axes.set_ylabel("singular value / largest")
    figure.supxlabel(
        "place of the singular value, from the largest (0) to the last (1)", fontsize=10
    )
    figure.suptitle(f"Singular values of J by layer, median over heads\n{WHAT}", fontsize=11)
    layer_legend(figure, grid[0, columns - 1], colors)
    return figure


def _panel(
    axes: Axes, layers: dict[int, list[_Spectrum]], colors: dict[int, Any], low: float
) -> None:
    """The median spectrum of each layer as far as it is not zero, and where zeros begin."""
    zeros, start = 0, 1.0
    for layer, spectra in layers.items():
        length = min(len(values) for values, _ in spectra)
        rank = min(int(np.median([rank for _, rank in spectra])), length)
        place = np.arange(length) / max(length - 1, 1)
        median = np.median(np.stack([values[:length] for values, _ in spectra]), axis=0)
        marker = "o" if rank == 1 else ""
        axes.plot(place[:rank], median[:rank], marker=marker, color=colors[layer], lw=1.3)
        if length - rank > zeros:
            zeros, start = length - rank, place[rank]
    if zeros:
        places = np.linspace(start, 1, min(zeros, max(int(40 * (1 - start)), 2)))
        axes.plot(places, np.full(len(places), low), "x", color="0.4", ms=4, clip_on=False)
        text = f"{'up to ' if len(layers) > 1 else ''}{zeros} counted as zero"
        axes.annotate(
            text, (1, low), (-2, 6), textcoords="offset points", ha="right", fontsize=8, color="0.3"
        )
    axes.set_yscale("log")
    axes.set_xlim(-0.01, 1.01)
    axes.grid(alpha=0.3)
