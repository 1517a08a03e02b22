"""What a person sees while a comparison runs: one bar for all, a line for each run under way."""

import contextlib
import json
import math
import sys
import time
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from condinit_jax.experiments._grid import Cell
from condinit_jax.training.files import METRICS, read_rows
from condinit_jax.training.progress import clock_text

TAIL = 1 << 14
"""Bytes of a metrics file that hold its last rows."""


class Display(Protocol):
    """Is told what happens to the runs."""

    def started(self, cell: Cell, workdir: Path) -> None:
        """A run began or goes on."""

    def refresh(self) -> None:
        """Time has passed."""

    def ended(self, cell: Cell, reason: str, seconds: float) -> None:
        """A run is over; `reason` says why it failed, if it did."""

    def close(self) -> None:
        """Nothing more comes."""


def name(cell: Cell) -> str:
    """A run as people call it.

    Args:
        cell: The run.

    Returns:
        Its label and seed, and its learning rate where the directory is named after one.
    """
    rate = f", lr {cell.rate:g}" if "lr=" in cell.place else ""
    return f"{cell.label}{rate}, seed {cell.seed}"


class _Count:
    """How many runs are over, and when the rest will be."""

    def __init__(self, total: int, slots: int) -> None:
        self.total, self.done = total, 0
        self._slots, self._began = slots, time.monotonic()

    def left(self, shares: float = 0.0) -> float:
        """Seconds to the end.

        Args:
            shares: Sum of the shares done of the runs under way.
        """
        done = self.done + shares
        if done <= 0:
            return math.inf
        return (time.monotonic() - self._began) / done * (self.total - done)


def _left(seconds: float) -> str:
    return f"{clock_text(seconds)} left" if math.isfinite(seconds) else ""


class PlainDisplay:
    """One line for every run that is over, for logs.

    Args:
        total: Runs to make.
        slots: Runs at once.
    """

    def __init__(self, total: int, slots: int) -> None:
        self._count = _Count(total, slots)
        self._places: dict[str, Path] = {}

    def started(self, cell: Cell, workdir: Path) -> None:
        """Remembers where it is."""
        self._places[cell.place] = workdir

    def refresh(self) -> None:
        """Says nothing."""

    def ended(self, cell: Cell, reason: str, seconds: float) -> None:
        """Prints a line."""
        self._count.done += 1
        how = f"FAILED: {reason}" if reason else _outcome(self._places[cell.place])
        left = _left(self._count.left()) if self._count.done < self._count.total else ""
        head = f"{self._count.done}/{self._count.total} {name(cell)}"
        print(", ".join(filter(None, [f"{head}: {how}", clock_text(seconds), left])), flush=True)

    def close(self) -> None:
        """Has nothing to close."""


class LiveDisplay:
    """A bar over all runs with the time left, and under it a bar for each that is under way.

    Args:
        console: A terminal.
        total: Runs to make.
        slots: Runs at once.
    """

    def __init__(self, console: Console, total: int, slots: int) -> None:
        self._count = _Count(total, slots)
        self._console = console
        left = TextColumn("{task.fields[left]}")
        self._all = Progress(TextColumn("runs"), BarColumn(), MofNCompleteColumn(), left)
        self._each = Progress(
            TextColumn("  {task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[figures]}"),
        )
        self._whole = self._all.add_task("", total=total, left="")
        self._tasks: dict[str, tuple[Any, Path]] = {}
        self._shares: dict[str, float] = {}
        self._live = Live(
            Group(self._all, self._each), console=console, refresh_per_second=2, transient=True
        )
        self._live.start()

    def started(self, cell: Cell, workdir: Path) -> None:
        """Adds its bar."""
        steps = cell.config.get("steps") or None
        task = self._each.add_task(name(cell), total=steps, figures="starting")
        self._tasks[cell.place] = task, workdir

    def refresh(self) -> None:
        """Moves the bars to what the runs have written."""
        for place, (task, workdir) in self._tasks.items():
            if rows := _last_rows(workdir / METRICS):
                step = rows[-1]["step"]
                total = next(t.total for t in self._each.tasks if t.id == task)
                self._shares[place] = step / total if total else 0.0
                self._each.update(task, completed=step, figures=_figures(rows))
        left = self._count.left(sum(self._shares.values()))
        done = self._count.done + sum(self._shares.values())
        self._all.update(self._whole, completed=done, left=_left(left))

    def ended(self, cell: Cell, reason: str, seconds: float) -> None:
        """Prints how it ended and takes its bar away."""
        self._count.done += 1
        task, workdir = self._tasks.pop(cell.place)
        self._shares.pop(cell.place, None)
        self._each.remove_task(task)
        how = Text(f"FAILED: {reason}", style="red") if reason else Text(_outcome(workdir))
        line = Text(f"{name(cell)}: ").append_text(how).append(f", {clock_text(seconds)}")
        self._live.console.print(line)
        self.refresh()

    def close(self) -> None:
        """Takes the bars away."""
        self._live.stop()


def make_display(total: int, slots: int) -> Display:
    """The display that suits where the output goes.

    Args:
        total: Runs to make.
        slots: Runs at once.

    Returns:
        Bars on a terminal, lines elsewhere.
    """
    if sys.stdout.isatty():
        return LiveDisplay(Console(), total, slots)
    return PlainDisplay(total, slots)


def _outcome(workdir: Path) -> str:
    """The last evaluation's figures."""
    rows = [row for row in read_rows(workdir / METRICS) if row["kind"] == "eval"]
    return _figures(rows) if rows else "done"


def _last_rows(path: Path) -> list[dict[str, Any]]:
    """The last rows of training and evaluation, without reading all of a long run's."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    rows = []
    for line in lines:
        # The first line may be cut by the seek, the last one be on its way.
        with contextlib.suppress(ValueError):
            rows.append(json.loads(line))
    return [row for row in rows if isinstance(row, dict) and row.get("kind") in ("train", "eval")]


def _figures(rows: list[dict[str, Any]]) -> str:
    last = rows[-1]
    return " ".join(f"{key} {last[key]:.4g}" for key in ("accuracy", "loss") if key in last)
