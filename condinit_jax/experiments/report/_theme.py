"""How the pictures look: two themes, one colour per method, SVG that stands on its own."""

import dataclasses
import io
import re
import warnings
from collections.abc import Callable
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
"""What the reader's machine has; the page takes the same."""

DASHES = ("solid", "dashed", "dotted")
"""Lines of the methods after the colours are used up; the names are those of CSS too."""


@dataclasses.dataclass(frozen=True)
class Theme:
    """Colours of a page, light or dark.

    Attributes:
        page: Background.
        ink: Text.
        muted: Text of second rank, axes.
        line: Grids and rules.
        panel: Background of code.
        accent: Links.
        band: Opacity of bands.
        methods: Colours of methods, by number; the first is the baseline's.
    """

    page: str
    ink: str
    muted: str
    line: str
    panel: str
    accent: str
    band: float
    methods: tuple[str, ...]

    def settings(self) -> dict[Any, Any]:
        """What matplotlib is told."""
        return {
            "axes.edgecolor": self.muted,
            "axes.facecolor": "none",
            "axes.grid": True,
            "axes.labelcolor": self.muted,
            "axes.labelsize": 9.5,
            "axes.linewidth": 0.8,
            "axes.spines.right": False,
            "axes.spines.top": False,
            "figure.facecolor": "none",
            "font.size": 9.5,
            "grid.color": self.line,
            "grid.linewidth": 0.8,
            "svg.fonttype": "none",
            # The same figure gives the same file.
            "svg.hashsalt": "condinit",
            "text.color": self.ink,
            # A label is no formula, whatever signs it has.
            "text.parse_math": False,
            "text.usetex": False,
            "xtick.color": self.muted,
            "xtick.labelsize": 9,
            "ytick.color": self.muted,
            "ytick.labelsize": 9,
        }


# The colours of Okabe and Ito, which colour-blind readers can tell apart, after the ink of the
# baseline; those for dark pages are the same hues, lighter.
LIGHT = Theme(
    page="#ffffff", ink="#1b1f24", muted="#57606a", line="#e1e4e8", panel="#f6f7f9",
    accent="#0b5cad", band=0.14,
    methods=("#3d444d", "#0072b2", "#d55e00", "#009e73", "#cc6fa0", "#b98500", "#3ea6dd"),
)  # fmt: skip

DARK = Theme(
    page="#14171a", ink="#e4e7ea", muted="#9aa4af", line="#2d333a", panel="#1d2126",
    accent="#79b8ff", band=0.2,
    methods=("#d0d5da", "#4c9fe0", "#ff8a4c", "#2fc79a", "#e79bc6", "#f0b93a", "#a5dcff"),
)  # fmt: skip


def look(number: int, theme: Theme) -> dict[str, Any]:
    """Colour and line of a method.

    Args:
        number: Its place among the methods.
        theme: The theme.

    Returns:
        Keywords of matplotlib's lines.

    Example:
        >>> look(0, LIGHT), look(8, LIGHT)
        ({'color': '#3d444d', 'ls': 'solid'}, {'color': '#0072b2', 'ls': 'dashed'})
    """
    colors = theme.methods
    return {"color": colors[number % len(colors)], "ls": dash(number)}


def dash(number: int) -> str:
    """The line of a method.

    Args:
        number: Its place among the methods.

    Returns:
        A name that matplotlib and CSS know.
    """
    return DASHES[number // len(LIGHT.methods) % len(DASHES)]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure with its own canvas.

    Args:
        width: In inches.
        height: In inches.

    Returns:
        The figure.
    """
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def text_width(figure: Figure, texts: list[str], size: float) -> float:
    """The width of the longest of some texts.

    Args:
        figure: Where they will stand.
        texts: They.
        size: Of the letters, in points.

    Returns:
        Inches; 0 without texts.
    """
    widths = [0.0]
    for text in texts:
        artist = figure.text(0, 0, text, fontsize=size)
        widths.append(_quietly(artist.get_window_extent).width / figure.dpi)
        artist.remove()
    return max(widths)


def svg(draw: Callable[[Theme], Figure], theme: Theme) -> tuple[str, tuple[int, int]]:
    """A picture as an SVG document without any address but that of SVG itself.

    Args:
        draw: Makes the figure.
        theme: Its colours.

    Returns:
        The document, whose text is text, in the fonts of the reader's machine; and its width and
        height in CSS pixels.
    """
    held = io.StringIO()
    nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with matplotlib.rc_context(theme.settings()):
        figure = draw(theme)
        _quietly(lambda: figure.savefig(held, format="svg", metadata=nothing))
    text = held.getvalue()
    text = text[text.index("<svg") :]
    width, height = (round(96 * float(side)) for side in figure.get_size_inches())
    return re.sub(r"(?<=px )'DejaVu Sans'[^;\"]*", FONTS, text), (width, height)


def _quietly(act: Callable[[], Any]) -> Any:
    """What an act gives, without matplotlib's word on signs that its own font lacks."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        return act()
