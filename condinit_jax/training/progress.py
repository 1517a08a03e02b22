"""What a person watching a run sees: a bar on a terminal, plain lines in a log."""

import math
import sys
from collections.abc import Mapping
from typing import Any, Protocol

import jax
from rich import progress as bars
from rich.console import Console
from rich.table import Table
from rich.text import Text

from condinit_jax.tasks import Batches
from condinit_jax.training.result import Result

SHORT = {"images_per_second": "images/s", "steps_per_second": "steps/s", "count": "examples"}
"""Names of figures in a line, where they differ from those in a row."""

BESIDE = {
    "train": ("loss", "accuracy", "images_per_second"),
    "refine": ("loss", "objective", "grad_norm", "cosine"),
}
"""Figures that stand beside a bar, by the kind of their row; other rows scroll above it."""


class Progress(Protocol):
    """Receives what happens in a run, in order."""

    def say(self, text: str) -> None:
        """Shows one line."""

    def begin(self, step: int, steps: int) -> None:
        """Training, or a refinement before it, starts after `step` of `steps`."""

    def advance(self, step: int) -> None:
        """A step was handed to the devices."""

    def row(self, row: Mapping[str, Any], seconds_left: float) -> None:
        """A row of metrics was written."""

    def result(self, result: Result) -> None:
        """The run is over."""

    def close(self) -> None:
        """Nothing more comes; also called after an error."""


def clock_text(seconds: float) -> str:
    """Seconds as hours, minutes and seconds.

    Args:
        seconds: A duration.

    Returns:
        The text.

    Example:
        >>> clock_text(3725.4)
        '1:02:05'
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}"


def _named(name: str, value: Any) -> tuple[str, str]:
    """A figure's name and value as people read them."""
    if name == "accuracy":
        text = f"{value:.4f}"
    elif name.endswith("_per_second"):
        text = f"{value:.4g}" if value < 1000 else f"{value:.0f}"
    elif name == "seconds":
        text = clock_text(value)
    else:
        text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return SHORT.get(name, name), text


def _figure(name: str, value: Any) -> str:
    return "=".join(_named(name, value))


def row_text(row: Mapping[str, Any], steps: int, seconds_left: float = math.inf) -> str:
    """A row of metrics as one line of key=value.

    Args:
        row: "step", "kind" and figures.
        steps: Steps in the run.
        seconds_left: Expected seconds to the end; infinite where unknown.

    Returns:
        The line.

    Example:
        >>> row_text({"step": 20, "kind": "train", "loss": 0.5, "accuracy": 0.75}, 100, 61.0)
        'train step=20/100 loss=0.5 accuracy=0.7500 left=0:01:01'
    """
    figures = [_figure(k, v) for k, v in row.items() if k not in ("step", "kind")]
    left = [f"left={clock_text(seconds_left)}"] if math.isfinite(seconds_left) else []
    return " ".join([row["kind"], f"step={row['step']}/{steps}", *figures, *left])


def _result_figures(result: Result) -> list[tuple[str, str]]:
    best, best_value = _named(result.best_metric, result.best_value)
    return [
        ("steps", str(result.steps)),
        *(_named(name, value) for name, value in result.metrics.items()),
        (f"best_{best}", best_value),
        ("best_step", str(result.best_step)),
        _named("seconds", result.seconds),
        _named("images_per_second", result.images_per_second),
        *([("probes", f"{result.probe_seconds:.2g}s")] if result.probe_seconds else []),
        ("corrupt", str(result.corrupt)),
        ("workdir", result.workdir),
    ]


def result_text(result: Result) -> str:
    """A result as one line of key=value.

    Args:
        result: The outcome of a run.

    Returns:
        The line.
    """
    return " ".join(["result", *("=".join(figure) for figure in _result_figures(result))])


class PlainProgress:
    """One line per event, for logs."""

    def __init__(self) -> None:
        self._steps = 0

    def say(self, text: str) -> None:
        """Prints the line."""
        print(text, flush=True)

    def begin(self, step: int, steps: int) -> None:
        """Remembers how long the run is."""
        self._steps = steps

    def advance(self, step: int) -> None:
        """Prints nothing: a log holds rows, not steps."""

    def row(self, row: Mapping[str, Any], seconds_left: float) -> None:
        """Prints the row."""
        self.say(row_text(row, self._steps, seconds_left))

    def result(self, result: Result) -> None:
        """Prints the result."""
        self.say(result_text(result))

    def close(self) -> None:
        """Has nothing to close."""


class BarProgress:
    """A bar that moves with each step; evaluations and messages scroll above it.

    Args:
        console: Where to draw.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._steps = 0
        self._bar = bars.Progress(
            bars.TextColumn("step {task.completed:.0f}/{task.total:.0f}"),
            bars.BarColumn(bar_width=None),
            bars.TextColumn("{task.fields[figures]}"),
            bars.TextColumn("{task.fields[left]}"),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task("train", total=1, figures="", left="", visible=False)

    def say(self, text: str) -> None:
        """Prints the line above the bar."""
        self._console.print(text, markup=False, highlight=False)

    def begin(self, step: int, steps: int) -> None:
        """Shows the bar."""
        self._steps = steps
        self._bar.update(self._task, total=steps, completed=step, figures="", left="", visible=True)
        self._bar.start()

    def advance(self, step: int) -> None:
        """Moves the bar."""
        self._bar.update(self._task, completed=step)

    def row(self, row: Mapping[str, Any], seconds_left: float) -> None:
        """Refreshes the figures beside the bar; prints evaluations and the like above it."""
        if row["kind"] in BESIDE:
            names = BESIDE[row["kind"]]
            figures = " ".join(_figure(name, row[name]) for name in names if name in row)
            left = f"left={clock_text(seconds_left)}" if math.isfinite(seconds_left) else ""
            self._bar.update(self._task, figures=figures, left=left)
        else:
            self.say(row_text(row, self._steps))

    def result(self, result: Result) -> None:
        """Prints the result as a table."""
        self._bar.stop()
        table = Table(show_header=False, title="result", title_justify="left")
        for name, value in _result_figures(result):
            # As `Text`, or brackets in a path would be read as markup.
            table.add_row(Text(name), Text(value))
        self._console.print(table)

    def close(self) -> None:
        """Leaves the bar as it stands."""
        self._bar.stop()


class Silent(PlainProgress):
    """Shows nothing: for every process but the first, and for sweeps."""

    def say(self, text: str) -> None:
        """Drops the line."""


def default_progress() -> Progress:
    """The progress that suits where the output goes.

    Returns:
        A bar on a terminal, plain lines elsewhere, nothing on any process but the first.
    """
    if jax.process_index() != 0:
        return Silent()
    if sys.stdout.isatty():
        return BarProgress(Console())
    return PlainProgress()


class CorruptWarning:
    """Says one line when more examples turn out unreadable.

    Args:
        progress: Where the line goes.
    """

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._seen: dict[str, int] = {}

    def __call__(self, split: str, batches: Batches) -> None:
        """Looks at an iterator's count.

        Args:
            split: "training" or "evaluation".
            batches: The iterator.
        """
        corrupt = batches.corrupt
        if corrupt.count > self._seen.get(split, 0):
            self._seen[split] = corrupt.count
            names = list(corrupt.names)
            latest = f", such as {names[-1]}" if names else ""
            self._progress.say(
                f"warning: {corrupt.count} unreadable {split} examples left out{latest}"
            )
