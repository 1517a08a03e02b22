"""What the pictures of probes share: figures, colours and legends of layers, files.

Figures carry their own canvas and no global state of matplotlib is touched.
"""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.cm import ScalarMappable
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from condinit_jax.spectra._probe_table import Probe

BESIDE: dict[str, Any] = {
    "loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0, "frameon": False,
}  # fmt: skip

WHAT = "J: the Jacobian of one head's output in its query, key and value kernels"


def save_figure(figure: Figure, stem: str | os.PathLike[str]) -> tuple[Path, Path]:
    """Writes a figure as PNG and SVG, each whole or not at all.

    Args:
        figure: The figure.
        stem: Path of the files without their ending; its directory is made if absent.

    Returns:
        The paths of the PNG and of the SVG.

    Example:
        >>> import tempfile
        >>> from matplotlib.figure import Figure
        >>> from condinit_jax.spectra import save_figure
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     [path.name for path in save_figure(Figure(), directory + "/depth")]
        ['depth.png', 'depth.svg']
    """
    stem = Path(stem)
    stem.parent.mkdir(parents=True, exist_ok=True)
    written = []
    for kind, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
        path = stem.with_name(f"{stem.name}.{kind}")
        beside = path.with_name(path.name + ".tmp")
        # The same figure gives the same file.
        with matplotlib.rc_context({"svg.hashsalt": "condinit"}):
            figure.savefig(beside, format=kind, **options)
        beside.replace(path)
        written.append(path)
    return written[0], written[1]


def joined(probe: Probe | Sequence[Probe]) -> Probe:
    return probe if isinstance(probe, Probe) else Probe.concat(probe)


def new_figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def series_name(run: str, step: int, probe: Probe) -> str:
    """What a run at a step is called: no more than tells it from the others."""
    several = len({row["step"] for row in probe.rows}) > 1
    return ", ".join([run] * bool(run) + [f"step {step}"] * (several or not run))


def layer_colors(layers: list[int]) -> dict[int, Any]:
    cmap = matplotlib.colormaps["viridis"]
    # The yellow end is too faint on white.
    places = np.linspace(0.0, 0.88, len(layers)) if len(layers) > 1 else [0.3]
    return {layer: cmap(place) for layer, place in zip(layers, places, strict=True)}


def layer_legend(figure: Figure, axes: Axes, colors: dict[int, Any]) -> None:
    """A legend beside the axes for a few layers, a colour bar for many."""
    if len(colors) <= 6:
        lines = [
            Line2D([], [], color=color, label=f"layer {layer}") for layer, color in colors.items()
        ]
        axes.legend(handles=lines, **BESIDE)
        return
    layers = list(colors)
    edges = np.arange(len(layers) + 1) - 0.5
    scale = ScalarMappable(BoundaryNorm(edges, len(layers)), ListedColormap(list(colors.values())))
    every = math.ceil(len(layers) / 12)
    bar = figure.colorbar(scale, ax=figure.axes, label="layer", ticks=range(0, len(layers), every))
    bar.ax.set_yticklabels([str(layer) for layer in layers[::every]])
    bar.ax.minorticks_off()
