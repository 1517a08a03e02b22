"""What a comparison consists of, kept in its directory, so that it can be gone on with."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from condinit_jax.config import diff
from condinit_jax.errors import UserError
from condinit_jax.experiments._grid import Cell
from condinit_jax.training.files import write_json

PLAN = "compare.json"


@dataclasses.dataclass(frozen=True)
class Plan:
    """A comparison.

    Attributes:
        recipe: The config that all runs start from, as the command names it.
        labels: What is compared, the baseline first.
        against: References; the baseline alone where empty.
        commands: What made it, each a line for a shell but for the directory.
        cells: The runs.
    """

    recipe: str
    labels: tuple[str, ...]
    against: tuple[str, ...]
    commands: tuple[str, ...]
    cells: tuple[Cell, ...]


def read_plan(directory: Path) -> Plan | None:
    """The plan of a directory.

    Args:
        directory: Of the comparison.

    Returns:
        The plan; None where there is none.

    Raises:
        UserError: If it cannot be read.
    """
    path = directory / PLAN
    if not path.exists():
        return None
    try:
        held = json.loads(path.read_text())
        cells = tuple(
            Cell(**{**cell, "assignments": tuple(cell["assignments"])}) for cell in held["cells"]
        )
        for cell in cells:
            # Runs are made there: never outside, whoever wrote the file.
            if Path(cell.place).is_absolute() or ".." in Path(cell.place).parts:
                raise ValueError(cell.place)
        return Plan(
            recipe=held["recipe"],
            labels=tuple(held["labels"]),
            against=tuple(held["against"]),
            commands=tuple(held["commands"]),
            cells=cells,
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(
            f"{path}: is no plan of a comparison ({type(error).__name__}); use another directory"
        ) from error


def write_plan(plan: Plan, directory: Path) -> None:
    """Writes the plan whole or not at all.

    Args:
        plan: What to keep.
        directory: Of the comparison; made if absent.

    Raises:
        UserError: If the directory cannot be made.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--workdir = {str(directory)!r}: {error.strerror}; give a directory to write to"
        ) from error
    write_json(directory / PLAN, dataclasses.asdict(plan))


def extended(old: Plan | None, new: Plan, directory: Path) -> Plan:
    """A plan with the methods, seeds and rates that a directory already holds.

    Args:
        old: What the directory holds, or None.
        new: What is asked for.
        directory: For messages.

    Returns:
        What is asked for first, and after it what only the old plan has; the baseline and the
        references stay the old ones, unless others are named.

    Raises:
        UserError: If the two start from different configs: a comparison of both would be of
            nothing.
    """
    if old is None or not old.cells:
        return new
    known = {cell.place: cell for cell in new.cells}
    for cell in old.cells:
        same = known.get(cell.place)
        if same and (lines := diff(cell.config, same.config)):
            raise UserError(
                f"config.{lines[0]}: {directory / cell.place} belongs to a comparison with the "
                "former; use another --workdir"
            )
    check_alike([*old.cells, *new.cells], directory)
    rest = tuple(cell for cell in old.cells if cell.place not in known)
    labels = tuple(dict.fromkeys([*old.labels, *new.labels]))
    commands = tuple(dict.fromkeys([*old.commands, *new.commands])) if rest else new.commands
    return dataclasses.replace(
        new,
        labels=labels,
        against=new.against or old.against,
        commands=commands,
        cells=(*new.cells, *rest),
    )


def check_alike(cells: Sequence[Cell], directory: Path) -> None:
    """Cells may differ in what they are compared by, and in nothing else.

    Those of one label differ in seed and rate alone; those of two also in `init` and in what a
    label names.

    Args:
        cells: Of one comparison.
        directory: For messages.

    Raises:
        UserError: If two of them differ in a field that no variant, seed or rate changes.
    """
    first = cells[0]
    own = {path for cell in cells for path in map(_path, cell.assignments) if _varied(cell, path)}
    same: dict[str, Cell] = {}
    for cell in cells:
        alike = same.setdefault(cell.label, cell)
        lines = diff(alike.config, cell.config)
        lines += [
            line
            for line in diff(first.config, cell.config)
            if not line.startswith("init.") and _path_of(line) not in own
        ]
        for line in lines:
            if _path_of(line) not in ("seed", "optimizer.lr"):
                raise UserError(
                    f"config.{line}: {directory} holds a comparison with the former; "
                    "use another --workdir"
                )


def _path_of(line: str) -> str:
    """The field that a line of a diff is about."""
    return line.partition(":")[0]


def _path(assignment: str) -> str:
    return assignment.partition("=")[0]


def _varied(cell: Cell, path: str) -> bool:
    """Whether the cell's variant names this field."""
    return f":{path}=" in cell.label
