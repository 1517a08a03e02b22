"""What the command is asked for: its flags, read and checked against one another."""

import argparse
import dataclasses
import math
import shlex
from collections.abc import Sequence
from pathlib import Path

from condinit_jax import methods
from condinit_jax.config import read_arguments
from condinit_jax.errors import UserError
from condinit_jax.experiments import Variant, read_variants

PROGRAM = "python -m condinit_jax.compare"
RECIPE = "configs/vit.py"
WORKDIR = "runs/compare"
SEEDS = 3
HELP = f"""examples:
  {PROGRAM} --init default,xavier,conditioned --seeds 5 --workdir runs/first
  {PROGRAM} --init default,conditioned,conditioned:value=joint --lr 3e-4,1e-3,3e-3
  {PROGRAM} --config configs/vit.py:b,imagenet --init default,conditioned --slurm compare.sh
  {PROGRAM} --report --workdir runs/first

The first of --init is the baseline, also when methods are added later. The same command with the
same --workdir goes on where it was stopped, and more seeds, rates or methods are added to what is
there. DIR gets report.html, report.md, runs.csv and methods.csv; a run's own output is in its
directory's output.txt. --report without --init takes what DIR holds: a plan that a call left there,
or runs that differ in initialization, seed and rate alone.
"""


@dataclasses.dataclass(frozen=True)
class Request:
    """The command line, read.

    Attributes:
        recipe: Config to take, as `condinit_jax.config.load` reads it.
        assignments: Changes to its fields, for all runs.
        variants: What is compared; empty for what the directories hold.
        seeds: Seeds.
        rates: Peak learning rates; empty for the recipe's own.
        against: References as labels; empty for the baseline alone.
        workdirs: Directory of the comparison; several only where runs are read and not made.
        jobs: Runs at once; None for what suits the machine.
        dry_run: Whether commands are printed and nothing is done.
        slurm: File for a script that makes the runs on a cluster, or None.
        report: Whether the report is made of what is there.
    """

    recipe: str
    assignments: tuple[str, ...]
    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    rates: tuple[float, ...]
    against: tuple[str, ...]
    workdirs: tuple[Path, ...]
    jobs: int | None
    dry_run: bool
    slurm: Path | None
    report: bool

    def command(self) -> str:
        """The command that makes the comparison again, without its directory."""
        words = [*PROGRAM.split(), "--config", self.recipe]
        words += [f"--config.{assignment}" for assignment in self.assignments]
        words += ["--init", ",".join(variant.label for variant in self.variants)]
        counted = self.seeds == tuple(range(len(self.seeds)))
        words += ["--seeds", str(len(self.seeds)) if counted else ",".join(map(str, self.seeds))]
        if self.rates:
            words += ["--lr", ",".join(map(repr, self.rates))]
        if self.against:
            words += ["--against", ",".join(self.against)]
        return shlex.join(words)


def parser() -> argparse.ArgumentParser:
    """The command's flags; those of the config's fields are read beside them."""
    made = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Train one model with several initializations and seeds, and compare them.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    what = made.add_argument_group("what is compared").add_argument
    what("--config", metavar="FILE[:ARG]", help=f"recipe (default: {RECIPE})")
    what("--config.FIELD", metavar="VALUE", help="set a field of all runs, as in train.py")
    what(
        "--init",
        metavar="NAMES",
        type=_names,
        help="methods, each with fields of its own after colons, as in conditioned:value=joint",
    )
    what(
        "--seeds",
        metavar="N",
        type=_seeds,
        help=f"how many, or which, as in 0,7,8 (default: {SEEDS})",
    )
    what(
        "--lr",
        metavar="X",
        type=_rates,
        help="peak learning rates to try; each method is then judged at its own best one",
    )
    what(
        "--against",
        metavar="NAMES",
        type=_names,
        help="methods that all others are compared with (default: the first of --init)",
    )
    how = made.add_argument_group("how").add_argument
    how(
        "--workdir",
        metavar="DIR",
        action="append",
        help=f"where the runs are kept (default: {WORKDIR}); with --report it may be given again",
    )
    how(
        "--jobs",
        metavar="N",
        type=_count,
        help="runs at once, sharing GPUs or cores (default: one per GPU, or per core up to 4)",
    )
    how("--dry-run", action="store_true", help="print a train.py command for each run, no more")
    how("--slurm", metavar="FILE", help="write an array script for SLURM instead of running")
    how("--report", action="store_true", help="make the report of the runs that are there")
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
    flags, assignments = read_arguments(parser(), argv)
    ways = [f"--{way}" for way in ("dry-run", "slurm", "report") if vars(flags)[_attribute(way)]]
    if len(ways) > 1:
        raise UserError(f"{ways[1]}: does not go with {ways[0]}; give one of them")
    if flags.init is None:
        if not flags.report:
            raise UserError("--init: needed, as in --init default,conditioned, or --report")
        for name in ("config", "seeds", "lr"):
            if getattr(flags, name) is not None:
                raise UserError(f"--{name}: is for runs to make; give --init, or leave it out")
        if assignments:
            raise UserError(f"--config.{assignments[0]}: is for runs to make; leave it out")
    workdirs = tuple(dict.fromkeys(Path(d).expanduser() for d in flags.workdir or [WORKDIR]))
    if len(workdirs) > 1 and not (flags.report and flags.init is None):
        raise UserError(
            "--workdir: one, where runs are made; several are for --report without --init"
        )
    for assignment in assignments:
        path = assignment.partition("=")[0]
        for field, flag in {"seed": "--seeds", "optimizer.lr": "--lr"}.items():
            if path == field:
                raise UserError(f"--config.{path}: give it as {flag}")
        if path.partition(".")[0] == "init":
            raise UserError(f"--config.{path}: give it with its method, as --init NAME:FIELD=VALUE")
    variants = read_variants(flags.init or ())
    against = tuple(read_label(name) for name in flags.against or ())
    for label in against:
        if variants and label not in [variant.label for variant in variants]:
            raise UserError(f"--against = {label!r}: is not among --init")
    return Request(
        recipe=flags.config or RECIPE,
        assignments=tuple(assignments),
        variants=variants,
        seeds=flags.seeds or tuple(range(SEEDS)),
        rates=flags.lr or (),
        against=against,
        workdirs=workdirs,
        jobs=flags.jobs,
        dry_run=flags.dry_run,
        slurm=Path(flags.slurm).expanduser() if flags.slurm else None,
        report=flags.report,
    )


def read_label(text: str) -> str:
    """The label of one entry of `--against`, with the method's alias spelt out."""
    name, colon, rest = text.partition(":")
    return methods.resolve(name, "--against") + colon + rest


def _attribute(flag: str) -> str:
    return flag.replace("-", "_")


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise argparse.ArgumentTypeError("needs a name at least")
    return names


def _seeds(text: str) -> tuple[int, ...]:
    right = argparse.ArgumentTypeError(
        f"{text!r}: must be a count such as 5, or seeds such as 0,1,7"
    )
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise right from None
    # A number alone is a count; "7," is the seed 7.
    if len(numbers) == 1 and "," not in text:
        numbers = list(range(numbers[0]))
    if not numbers or min(numbers) < 0:
        raise right
    return tuple(dict.fromkeys(numbers))


def _rates(text: str) -> tuple[float, ...]:
    try:
        rates = tuple(dict.fromkeys(float(word) for word in text.split(",")))
    except ValueError:
        rates = ()
    if not rates or not all(0 < rate < math.inf for rate in rates):
        raise argparse.ArgumentTypeError(f"{text!r}: must be numbers above 0, such as 3e-4,1e-3")
    return rates


def _count(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of at least 1")
    return int(text)
