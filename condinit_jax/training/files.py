"""The files of a run: rows of metrics, TensorBoard events, and small JSON documents.

Nothing is ever half written: whole documents are written beside their place and moved there, and
rows are flushed one by one.
"""

import json
import os
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
from tensorboardX import SummaryWriter

from condinit_jax._version import __version__
from condinit_jax.config import diff
from condinit_jax.errors import UserError

PACKAGES = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy", "grain")

METRICS = "metrics.jsonl"

KEPT = ("train", "eval", "probe", "config", "refine")
"""Kinds of rows that a resumed run keeps; it writes its own end."""


def write_text(path: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Args:
        path: The file.
        text: Its content.
    """
    beside = path.with_name(path.name + ".tmp")
    beside.write_text(text)
    os.replace(beside, path)


def write_json(path: Path, value: Any) -> None:
    """Writes a JSON document whole or not at all.

    Args:
        path: The file.
        value: Its content; without NaN and infinities, which JSON does not have.
    """
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a metrics file.

    Args:
        path: The file; one that does not exist has no rows.

    Returns:
        Its rows, without a last line that was cut short.
    """
    if not path.exists():
        return []
    rows = []
    for line in path.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            # Only a killed process leaves such a line, and only as the last.
            break
    return rows


def versions() -> dict[str, Any]:
    """Versions and devices of this process.

    Returns:
        Version by package, and what it runs on.
    """
    found: dict[str, Any] = {"condinit-jax": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        found[package] = metadata.version(package)
    found["platform"] = jax.default_backend()
    found["device"] = jax.devices()[0].device_kind
    found["devices"] = jax.device_count()
    found["processes"] = jax.process_count()
    return found


def check_workdir(workdir: Path) -> None:
    """Makes a run's directory, or checks that it can be one.

    Args:
        workdir: The directory.

    Raises:
        UserError: If it cannot be made, or holds a file where a run has a directory or the reverse.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{workdir}: {error.strerror}; give a directory to write to") from error
    for path, right in {
        workdir / "checkpoints": Path.is_dir,
        workdir / "tensorboard": Path.is_dir,
        workdir / METRICS: Path.is_file,
    }.items():
        if path.exists() and not right(path):
            kind = "directory" if right is Path.is_dir else "file"
            raise UserError(f"{path}: is not the {kind} that a run has there; use another workdir")


def changes(before: Mapping[str, Any], after: Mapping[str, Any], workdir: Path) -> list[str]:
    """What a config changes in the run that it continues.

    Args:
        before: The config of the run so far, as JSON holds it.
        after: The config it goes on with.
        workdir: Directory of the run, for the message.

    Returns:
        Lines as `condinit_jax.config.diff` gives them.

    Raises:
        UserError: If the run's beginning would have been another.
    """
    # A run from before there were refinements had none.
    lines = [line for line in diff(before, after) if line != "init.refine.name: (absent) -> none"]
    for line in lines:
        if line.startswith(("init.", "seed:")):
            raise UserError(
                f"config.{line}: {workdir} holds a run that began with the former; "
                "use another workdir"
            )
    return lines


class MetricWriter:
    """Writes rows to `metrics.jsonl` and to `tensorboard/`.

    Rows after the given step are dropped first, so that each step stands there once.

    Args:
        workdir: Directory of the run.
        step: Step from which the run goes on; 0 for a new one.
    """

    def __init__(self, workdir: Path, step: int) -> None:
        path = workdir / METRICS
        rows = [r for r in read_rows(path) if r["step"] <= step and r["kind"] in KEPT and step]
        write_text(path, "".join(json.dumps(row) + "\n" for row in rows))
        self._file = path.open("a")
        self._board = SummaryWriter(str(workdir / "tensorboard"), purge_step=step + 1)

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row.

        Args:
            row: "step", "kind", and figures.
        """
        self._file.write(json.dumps(row, allow_nan=False) + "\n")
        self._file.flush()
        if row["kind"] in ("train", "eval"):
            for name, value in row.items():
                if name not in ("step", "kind"):
                    self._board.add_scalar(f"{row['kind']}/{name}", value, row["step"])

    def scalars(self, step: int, figures: Mapping[str, float]) -> None:
        """Adds figures to TensorBoard alone.

        Args:
            step: Where they were measured.
            figures: Values by name.
        """
        for name, value in figures.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Flushes and closes the files."""
        self._file.close()
        self._board.close()


class NoWriter:
    """Stands in for `MetricWriter` on the processes that write nothing."""

    def write(self, row: Mapping[str, Any]) -> None:
        """Leaves the row to the first process."""

    def scalars(self, step: int, figures: Mapping[str, float]) -> None:
        """Leaves the figures to the first process."""

    def close(self) -> None:
        """Has nothing to close."""
