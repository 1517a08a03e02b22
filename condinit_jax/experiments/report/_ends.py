"""Panels whose curves bear their names at their ends, so that nobody looks up a legend."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from condinit_jax.experiments.report._theme import Theme, new_figure, text_width

WIDTH = 4.9
"""Width of a panel in inches: on a phone its letters are still large enough to read."""

SIZE = 9.0
"""Letters of names in points."""

LONGEST = 24
"""Letters of a name that a picture shows."""


def shortened(label: str) -> str:
    """A name that leaves room for the picture.

    Args:
        label: The name.

    Returns:
        It, or its beginning and end where it is long.

    Example:
        >>> shortened("conditioned"), shortened("conditioned:kernels=query+key+value")
        ('conditioned', 'conditioned:…ry+key+value')
    """
    label = "".join(letter if letter.isprintable() else "�" for letter in label)
    if len(label) <= LONGEST:
        return label
    half = (LONGEST - 1) // 2
    return f"{label[: half + 1]}…{label[-half - 1 :]}"


def panel(labels: Sequence[str], ylabel: str, xlabel: str = "step") -> tuple[Figure, Axes]:
    """A panel with room for names on its right.

    Args:
        labels: The names.
        ylabel: What its vertical axis shows.
        xlabel: What its horizontal axis shows.

    Returns:
        The figure and its axes.
    """
    height = max(3.4, 0.19 * len(labels) + 1.1)
    figure = new_figure(WIDTH, height)
    right = text_width(figure, [shortened(label) for label in labels], SIZE) + 0.2
    left, bottom, top = 0.62, 0.5, 0.3
    axes = figure.add_axes(
        (left / WIDTH, bottom / height, 1 - (left + right) / WIDTH, 1 - (bottom + top) / height)
    )
    # Across the top left, where it is read first and needs no turning of the head.
    axes.set_title(ylabel, loc="left", fontsize=9.5, color=axes.yaxis.label.get_color(), pad=8)
    axes.set_xlabel(xlabel)
    return figure, axes


def label_ends(axes: Axes, ends: Sequence[tuple[float, float, str, str]], theme: Theme) -> None:
    """Writes the names of curves beside their ends, as near as they fit.

    The limits of the axes must be final.

    Args:
        axes: Where.
        ends: For each curve the place of its end, its name and its colour.
        theme: The theme.
    """
    if not ends:
        return
    width, height = (side / axes.figure.dpi for side in axes.bbox.size)
    to_axes = axes.transData + axes.transAxes.inverted()
    places = [to_axes.transform((x, y)) for x, y, _, _ in ends]
    heights = spread([y for _, y in places], 1.25 * SIZE / 72 / height)
    for (x, y), at, (_, _, label, color) in zip(places, heights, ends, strict=True):
        axes.annotate(
            shortened(label),
            (x, y),
            (1 + 0.14 / width, at),
            xycoords="axes fraction",
            textcoords="axes fraction",
            va="center",
            fontsize=SIZE,
            color=theme.ink,
            arrowprops={
                "arrowstyle": "-", "color": color, "lw": 0.9, "alpha": 0.8, "shrinkA": 1,
                "shrinkB": 0, "relpos": (0, 0.5),
            },
            annotation_clip=False,
        )  # fmt: skip


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Places for names, at least a gap apart and near where they belong.

    Args:
        heights: Where they belong, as shares of the height.
        gap: The least distance.

    Returns:
        The places, in the order given; within 0 and 1 where they fit.

    Example:
        >>> [round(float(place), 3) for place in spread([0.5, 0.5, 0.1], 0.1)]
        [0.45, 0.55, 0.1]
    """
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    # Blocks of names that touch; each sits where the mean of its names belongs.
    blocks: list[tuple[float, int]] = []
    for place in order:
        center, count = min(max(heights[place], 0.0), 1.0), 1
        while blocks and blocks[-1][0] + blocks[-1][1] * gap / 2 > center - count * gap / 2:
            below, others = blocks.pop()
            center = (below * others + center * count) / (others + count)
            count += others
            half = (count - 1) * gap / 2
            center = min(max(center, half), max(1 - half, half))
        blocks.append((center, count))
    placed = [
        center + (number - (count - 1) / 2) * gap
        for center, count in blocks
        for number in range(count)
    ]
    found = [0.0] * len(heights)
    for place, at in zip(order, placed, strict=True):
        found[place] = at
    return found
