"""The figures of a probe as tidy rows: one for each run, step, layer, head and example."""

import csv
import dataclasses
import os
import re
import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from condinit_jax.errors import UserError

COLUMNS: Mapping[str, type] = {
    "run": str,
    "step": int,
    "layer": int,
    "path": str,
    "head": int,
    "example": int,
    "tokens": int,
    "kappa": float,
    "sigma_max": float,
    "sigma_min": float,
    "rank": int,
    "size": int,
    "dropped": int,
    "rtol": float,
    "method": str,
    "dtype": str,
    "error": float,
    "converged": bool,
    "warning": str,
    "kappa_query": float,
    "kappa_key": float,
    "kappa_value": float,
    "bound": float,
    "bound_note": str,
}
"""Every column of a probe and the type of its values, any of which may be None (not asked for)."""


_TEXTS = ("run", "path", "warning", "bound_note")
"""Columns that are never None, though perhaps empty."""

_SHORT = {
    "kappa_query": "W_Q",
    "kappa_key": "W_K",
    "kappa_value": "W_V",
    "bound": "bound",
}
"""Headings of figures that only some probes have."""


_CAPTION = "kappa of the Jacobian of single heads: median and maximum over heads and examples"


class Place(NamedTuple):
    """Which Jacobian a spectrum belongs to: the columns of that name."""

    run: str
    step: int
    layer: int
    head: int
    example: int


@dataclasses.dataclass(frozen=True)
class Probe:
    """Condition numbers over a model's layers and heads, perhaps of several runs and steps.

    Attributes:
        rows: one dict for each (run, step, layer, head, example), with the keys of `COLUMNS`:
            `layer` counts attention blocks in depth order from 0; `tokens` is the number of queries
            that J has rows for; `kappa` to `warning` are those of `ConditionNumber`, for the
            Jacobian J of one head; `kappa_query`, `kappa_key` and `kappa_value` those of the head's
            kernels; `bound` is B(J) of Theorem 3.1, and `bound_note` says where that does not
            apply. What was not asked for is None.
        spectra: all singular values of J, largest first, where they were asked for.

    Example:
        >>> from condinit_jax.spectra import Probe
        >>> probe = Probe([{"run": "a", "layer": 0, "head": 0, "kappa": 2.0}])
        >>> len((probe + probe).rows)
        2
    """

    rows: list[dict[str, Any]]
    spectra: dict[Place, np.ndarray] = dataclasses.field(default_factory=dict, repr=False)

    def __add__(self, other: "Probe") -> "Probe":
        return Probe.concat([self, other])

    @staticmethod
    def concat(probes: Iterable["Probe"]) -> "Probe":
        """All rows and spectra of several probes, in order.

        Args:
            probes: distinct in `run` or `step`; of equal spectra the last stays.

        Returns:
            One probe.
        """
        probes = list(probes)
        return Probe(
            [row for probe in probes for row in probe.rows],
            {place: values for probe in probes for place, values in probe.spectra.items()},
        )

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes the rows, whole or not at all; spectra are not among them.

        Numbers are written so that `from_csv` gives the same ones back; None is an empty field.

        Args:
            path: the file, as pandas reads it; its directory is made if absent.
        """
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".tmp")
        with beside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, restval=None, lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        beside.replace(path)

    @staticmethod
    def from_csv(path: str | os.PathLike[str]) -> "Probe":
        """Reads what `to_csv` wrote.

        Args:
            path: the file.

        Returns:
            The probe, without spectra.

        Raises:
            UserError: if the file does not exist or is no table of a probe.
        """
        try:
            with Path(path).open(newline="", encoding="utf-8") as file:
                reader = csv.DictReader(file)
                missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
                if missing:
                    raise UserError(f"{path}: has no column {missing[0]!r}; is it a probe's table?")
                return Probe([_parsed(row, f"{path}, line {reader.line_num}") for row in reader])
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from error

    def table(self) -> Table:
        """A table for terminals: for each run, step and layer, median and maximum over heads.

        Returns:
            A rich table; `rich.print` shows it.
        """
        several = [name for name in ("run", "step") if len({_of(r, name) for r in self.rows}) > 1]
        asked = [name for name in _SHORT if any(_of(row, name) is not None for row in self.rows)]
        table = Table(
            box=box.SIMPLE_HEAD,
            padding=0 if len(asked) + len(several) > 4 else (0, 1),
            caption=Text("\n".join((_CAPTION, *_notes(self.rows))), "table.caption"),
            caption_justify="left",
        )
        for name in several:
            table.add_column(name, justify="left" if name == "run" else "right", no_wrap=True)
        headings = ("layer", "median", "max", "rank", *(_SHORT[name] for name in asked))
        for heading in headings:
            table.add_column(heading, justify="right", no_wrap=True)
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            place = tuple(_of(row, name) for name in ("run", "step", "layer"))
            groups.setdefault(place, []).append(row)
        for (run, step, layer), rows in groups.items():
            named = {"run": run, "step": step}
            table.add_row(
                # As `Text`, or brackets in a name would be read as markup.
                *(Text(str(named[name])) for name in several),
                str(layer),
                _figure([row.get("kappa") for row in rows], statistics.median),
                _figure([row.get("kappa") for row in rows], max),
                _ranks(rows),
                *(_figure([_of(row, name) for row in rows], statistics.median) for name in asked),
            )
        return table


def _of(row: Mapping[str, Any], name: str) -> Any:
    return row.get(name)


def _figure(values: Iterable[float | None], summary: Any) -> str:
    known = [value for value in values if value is not None]
    # 1.2e5 for 1.2e+05: a table of all columns fits 80 characters.
    return re.sub(r"e\+?(-?)0*", r"e\1", f"{summary(known):.3g}") if known else "-"


def _ranks(rows: list[dict[str, Any]]) -> str:
    """Rank of size, or the range of ranks."""
    ranks = sorted({row["rank"] for row in rows if row.get("rank") is not None})
    sizes = sorted({row["size"] for row in rows if row.get("size") is not None})
    if not sizes:
        return "-"
    low_high = "?" if not ranks else "-".join(str(rank) for rank in sorted({ranks[0], ranks[-1]}))
    return f"{low_high} of {sizes[-1]}"


def _notes(rows: list[dict[str, Any]]) -> list[str]:
    """Every warning, with how many rows have it."""
    # Figures in a warning differ from row to row: one of each kind is shown.
    kinds: dict[str, list[str]] = {}
    for row in rows:
        if row.get("warning"):
            kinds.setdefault(row["warning"].split(":")[0], []).append(row["warning"])
    return [f"{len(texts)} of {len(rows)} rows: {texts[0]}" for texts in kinds.values()]


def _parsed(row: dict[str, str], where: str) -> dict[str, Any]:
    def value(name: str, kind: type) -> Any:
        text = row[name]
        if text is None:
            raise ValueError("the line is cut short, which")
        if not text:
            return "" if name in _TEXTS else None
        if kind is bool:
            return {"True": True, "False": False}[text]
        return kind(text)

    try:
        return {name: value(name, kind) for name, kind in COLUMNS.items()}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{where}: {error} does not fit its column; is it a probe's table?"
        ) from error
