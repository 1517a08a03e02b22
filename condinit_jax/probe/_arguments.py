"""What the command is asked for: its flags, read and checked against one another."""

import argparse
import dataclasses
import typing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from condinit_jax.config import ProbeConfig, read_arguments
from condinit_jax.errors import UserError

PROGRAM = "python -m condinit_jax.probe"
RECIPE = "configs/vit.py"
HELP = f"""examples:
  {PROGRAM} --config configs/vit.py:ti,bundled --init conditioned,xavier --out probes
  {PROGRAM} --workdir runs/a --workdir runs/b --step all --out probes
  {PROGRAM} --init default --layers 0,-1 --heads 0 --values all --out probes

At initialization, parameters are drawn as a run of that config and seed draws them. What attention
reads comes from the first examples of the evaluation split. --out gets probe.csv, a row for each
head, and the pictures as PNG and SVG.
"""

Steps = tuple[int, ...] | Literal["last", "all"]
LAST: Literal["last"] = "last"
ALL: Literal["all"] = "all"


@dataclasses.dataclass(frozen=True)
class Request:
    """The command line, read.

    Attributes:
        recipe: Config to take, as `condinit_jax.config.load` reads it.
        assignments: Changes to its fields.
        inits: Methods to probe at initialization, as written; empty for the config's own.
        workdirs: Runs to probe instead.
        steps: Which of their checkpoints: numbers, "last" or "all".
        out: Directory for files, or None.
        examples: Examples to probe.
        options: Of `condinit_jax.spectra.probe_blocks`.
    """

    recipe: str
    assignments: list[str]
    inits: tuple[str, ...]
    workdirs: tuple[Path, ...]
    steps: Steps
    out: Path | None
    examples: int
    options: dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """The command's flags; those of the config's fields are read beside them."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Measure the condition number of attention's Jacobian, head by head.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    what = made.add_argument_group("what is probed").add_argument
    what("--config", metavar="FILE[:ARG]", help=f"recipe (default: {RECIPE})")
    what("--config.FIELD", metavar="VALUE", help="set a field, such as --config.model.width=64")
    what("--init", metavar="NAMES", type=_names, help="methods such as conditioned,xavier,default")
    what("--seed", metavar="N", type=int, help="seed of the draw; short for --config.seed=N")
    what(
        "--workdir",
        metavar="RUN",
        action="append",
        help="probe a run's checkpoint instead; may be given several times",
    )
    what("--step", metavar="N", type=_steps, help="its step, or 0,500, or all (default: last)")
    how = made.add_argument_group("how").add_argument
    how("--layers", metavar="N", type=_places, help="such as 0,5,-1 (default: all)")
    how("--heads", metavar="N", type=_places, help="such as 0,1 (default: all)")
    how("--examples", metavar="N", type=_count, default=1, help="how many (default: %(default)s)")
    how(
        "--tokens",
        metavar="N",
        type=_count,
        help="rows of attention's output to take, evenly spaced tokens (default: all)",
    )
    how(
        "--quantities",
        metavar="NAMES",
        type=_names,
        default=("jacobian",),
        help="of jacobian, kernels and bound (default: jacobian)",
    )
    how(
        "--values",
        choices=("extremes", "all"),
        default="extremes",
        help="all: every singular value, for a plot of spectra (default: %(default)s)",
    )
    methods = typing.get_args(typing.get_type_hints(ProbeConfig)["method"])
    how("--method", choices=methods, default="auto", help="how spectra are computed")
    how(
        "--memory",
        metavar="GIB",
        type=_positive,
        default=4.0,
        help="memory that one head's spectrum may take (default: %(default)s)",
    )
    how(
        "--rtol",
        metavar="X",
        type=_positive,
        help="singular values up to X times the largest count as zero (default: of rounding)",
    )
    made.add_argument("--out", metavar="DIR", help="directory for the table and the pictures")
    made.add_argument("--debug", action="store_true", help="show where an error comes from")
    return made


def read(argv: Sequence[str]) -> Request:
    """Reads a command line.

    Args:
        argv: Without the program's name.

    Returns:
        The request.

    Raises:
        UserError: If a flag is unknown, does not read, or does not go with another.
    """
    flags, assignments = read_arguments(parser(), _joined(argv))
    if flags.workdir:
        for name in ("config", "init", "seed"):
            if getattr(flags, name) is not None:
                raise UserError(
                    f"--{name}: is for a model at initialization; leave it out beside --workdir"
                )
        for field in (assignment.partition("=")[0] for assignment in assignments):
            if field.partition(".")[0] in ("model", "init", "seed"):
                raise UserError(
                    f"--config.{field}: is what a run began with; leave it out beside --workdir"
                )
    elif flags.step is not None:
        raise UserError("--step: is for a run's checkpoints; give the run as --workdir")
    if flags.seed is not None:
        assignments.append(f"seed={flags.seed}")
    return Request(
        recipe=flags.config or RECIPE,
        assignments=assignments,
        inits=flags.init or (),
        workdirs=tuple(dict.fromkeys(Path(run).expanduser() for run in flags.workdir or ())),
        steps=flags.step or LAST,
        out=_directory(flags.out),
        examples=flags.examples,
        options={
            "layers": flags.layers,
            "heads": flags.heads,
            "tokens": flags.tokens,
            "quantities": _quantities(flags.quantities),
            "values": flags.values,
            "method": flags.method,
            "memory": int(flags.memory * 2**30),
            "rtol": flags.rtol,
        },
    )


def _joined(argv: Sequence[str]) -> list[str]:
    """`--layers -1,0` as `--layers=-1,0`: argparse takes -1,0 for a flag."""
    words: list[str] = []
    for word in argv:
        number = word.startswith("-") and word[1:2].isdigit()
        if number and words and words[-1] in ("--layers", "--heads", "--step"):
            words[-1] += f"={word}"
        else:
            words.append(word)
    return words


def _directory(given: str | None) -> Path | None:
    """Where files go, looked at before anything is computed."""
    if given is None:
        return None
    path = Path(given).expanduser()
    for part in (path, *path.absolute().parents):
        if part.exists():
            if part.is_dir():
                return path
            raise UserError(f"--out = {given!r}: {part} is a file; give a directory")
    return path


def _quantities(names: tuple[str, ...]) -> tuple[str, ...]:
    annotation = typing.get_type_hints(ProbeConfig)["quantities"]
    known = typing.get_args(typing.get_args(annotation)[0])
    for name in names:
        if name not in known:
            raise UserError(f"--quantities = {name!r}: must be among {', '.join(known)}")
    return names


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("needs a name at least")
    return names


def _integers(text: str, right: str) -> tuple[int, ...]:
    try:
        return tuple(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: must be {right}") from None


def _places(text: str) -> tuple[int, ...] | None:
    return None if text == ALL else _integers(text, "numbers such as 0,5,-1, or all")


def _steps(text: str) -> Steps:
    named: dict[str, Steps] = {ALL: ALL, LAST: LAST}
    return named.get(text) or _integers(text, "numbers such as 0,500, last or all")


def _number(text: str, read: Callable[[str], Any], right: str) -> Any:
    try:
        number = read(text)
    except ValueError:
        number = 0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: must be {right}")
    return number


def _count(text: str) -> int:
    return _number(text, int, "a number of at least 1")


def _positive(text: str) -> float:
    return _number(text, float, "a number above 0")
