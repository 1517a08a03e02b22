"""The commands that make the runs: for this machine, for a person to copy, for SLURM."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import condinit_jax
from condinit_jax.errors import UserError
from condinit_jax.experiments._grid import Cell

ROOT = Path(condinit_jax.__file__).resolve().parents[1]
"""Where `train.py` and `configs/` are."""

HEADER = """\
#!/bin/bash
# Runs of one comparison, one per task of the array; submit with: sbatch {file}
# Add what your cluster needs, such as --partition, --gres and the environment to activate.
#SBATCH --job-name=condinit-compare
#SBATCH --array=0-{last}
#SBATCH --output={logs}

cd {here} || exit 1
case "$SLURM_ARRAY_TASK_ID" in
"""

FOOTER = """\
*) echo "no run has the number $SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
"""


def arguments(cell: Cell, recipe: str, directory: Path) -> list[str]:
    """What `train.py` is given for a run.

    Args:
        cell: The run.
        recipe: As the comparison names it.
        directory: Of the comparison.

    Returns:
        Words of a command line, without the program.
    """
    fields = [f"--config.{assignment}" for assignment in cell.assignments]
    return ["--config", recipe, *fields, "--workdir", str(directory / cell.place)]


def local_command(cell: Cell, recipe: str, directory: Path) -> list[str]:
    """The command of a run on this machine, by this Python.

    Args:
        cell: The run.
        recipe: As the comparison names it.
        directory: Of the comparison.

    Returns:
        Words of the command line.

    Raises:
        UserError: If `train.py` is not beside the package.
    """
    program = ROOT / "train.py"
    if not program.is_file():
        raise UserError(
            f"{program}: no such file; install the package from its repository with pip install -e"
        )
    return [sys.executable, str(program), *arguments(cell, recipe, directory)]


def shell_line(cell: Cell, recipe: str, directory: Path, program: str = "train.py") -> str:
    """The command of a run as a person types it, beside `train.py` by default.

    Args:
        cell: The run.
        recipe: As the comparison names it.
        directory: Of the comparison.
        program: Where `train.py` is.

    Returns:
        One line for a shell.
    """
    return shlex.join(["python", program, *arguments(cell, recipe, directory)])


def slurm_script(cells: Sequence[Cell], recipe: str, directory: Path, file: Path) -> str:
    """A script for SLURM with one task per run.

    Args:
        cells: The runs.
        recipe: As the comparison names it.
        directory: Of the comparison, on a file system that the cluster's nodes see.
        file: Where the script is written, for its own comment.

    Returns:
        The script. Its tasks run in the current directory, and go on with runs that were
        interrupted.
    """
    head = HEADER.format(
        file=shlex.quote(str(file)),
        last=len(cells) - 1,
        # SLURM reads this line itself, without a shell; %a is the task's number.
        logs=str(directory.absolute()).replace("%", "%%").replace(" ", "\\ ") + "/slurm-%a.txt",
        here=shlex.quote(str(Path.cwd())),
    )
    lines = [
        f"{number}) exec {shell_line(cell, recipe, directory, str(ROOT / 'train.py'))} ;;"
        for number, cell in enumerate(cells)
    ]
    return head + "\n".join(lines) + "\n" + FOOTER
