"""The command that trains one model; `python train.py --help` says how it is called."""

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent
HELP = """examples:
  python train.py
  python train.py --config configs/vit.py:ti,cifar10 --workdir runs/ti
  python train.py --config.optimizer.lr=3e-3 --config.init.method=xavier_uniform
  python train.py --config configs/vit.py:b,imagenet --help-config

The same command with the same --workdir continues that run from its last checkpoint.

Several processes train as one where JAX_COORDINATOR_ADDRESS is set (with JAX_NUM_PROCESSES and
JAX_PROCESS_ID outside a cluster that JAX knows), in a Slurm step of several tasks, and with
--distributed. Each runs the same command, with a --workdir that all of them see.
"""


def main(argv: Sequence[str]) -> int:
    """Train as the arguments say.

    Args:
        argv: the command line without the program's name.

    Returns:
        The exit code: 0 done, 2 a mistake in the arguments, config or data, 130 interrupted.
    """
    parser = _parser()
    if {"-h", "--help"} & set(argv):
        # JAX takes seconds to import: help is given before.
        parser.print_help()
        return 0
    try:
        return _train(parser, argv)
    except KeyboardInterrupt:
        if "--debug" in argv:
            raise
        note = "interrupted; give the run's --workdir to continue it"
        print(f"train.py: {note}", file=sys.stderr)
        return 130


def _train(parser: argparse.ArgumentParser, argv: Sequence[str]) -> int:
    from condinit_jax import config as configs
    from condinit_jax.errors import UserError

    try:
        flags, assignments = configs.read_arguments(parser, argv)
        config = configs.load(flags.config, directories=(Path(), ROOT))
        config = configs.override(config, assignments)
        if flags.help_config:
            print(configs.describe(config))
            return 0
        run = configs.parse(config)
        several = _join_cluster(flags.distributed)
        workdir = _workdir(flags.workdir, flags.config, several)
        print(f"workdir: {workdir}", flush=True)
        from condinit_jax.training import train

        try:
            train(run, workdir)
        except UserError:
            _remove_if_unused(workdir, made=flags.workdir is None)
            raise
    except UserError as error:
        if "--debug" in argv:
            raise
        print(f"train.py: {error}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    """The plain flags; those of the config's fields are read beside them."""
    parser = argparse.ArgumentParser(
        prog="train.py",
        description="Train a model as a config says.",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    add = parser.add_argument
    add(
        "--config",
        metavar="FILE[:ARG]",
        default="configs/vit.py",
        help="recipe, from the current directory or else from train.py's (default: %(default)s)",
    )
    add("--config.FIELD", metavar="VALUE", help="set a field, such as --config.optimizer.lr=1e-3")
    add("--workdir", metavar="DIR", help="where the run is kept (default: a new one in runs/)")
    add("--help-config", action="store_true", help="print the config's fields and their meaning")
    add("--distributed", action="store_true", help="wait for the other processes of the cluster")
    add("--debug", action="store_true", help="show where an error comes from")
    return parser


def _join_cluster(asked: bool) -> bool:
    """Start JAX's runtime for several processes where there are some; whether there are."""
    from condinit_jax.errors import UserError

    variables = os.environ
    in_slurm = "SLURM_STEP_NODELIST" in variables and variables.get("SLURM_NTASKS", "1") != "1"
    if not (asked or in_slurm or "JAX_COORDINATOR_ADDRESS" in variables):
        return False
    import jax

    names = {"num_processes": "JAX_NUM_PROCESSES", "process_id": "JAX_PROCESS_ID"}
    try:
        given = {name: int(variables[key]) for name, key in names.items() if key in variables}
        jax.distributed.initialize(**given)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"--distributed: the processes did not find one another: {reason}"
        ) from error
    return jax.process_count() > 1


def _remove_if_unused(workdir: Path, made: bool) -> None:
    """Takes away the directory that this command made, where the run put nothing into it."""
    if made and workdir.is_dir() and not any(workdir.iterdir()):
        workdir.rmdir()


def _workdir(given: str | None, recipe: str, several: bool) -> Path:
    """The directory of the run, made; a new one named after the recipe if none is given."""
    from condinit_jax.errors import UserError

    if given is None and several:
        raise UserError("--workdir: has to be given where several processes train as one")
    name = Path(recipe).name.replace(".py", "").replace(":", "-").replace(",", "-")
    workdir = Path(given or f"runs/{name}-{time.strftime('%Y%m%d-%H%M%S')}").expanduser()
    right = "must be a directory on a file system that can be made and written"
    if "://" in (given or ""):
        raise UserError(f"--workdir = {given!r}: {right}")
    try:
        if given is None:
            workdir.parent.mkdir(parents=True, exist_ok=True)
            return _fresh(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--workdir = {str(workdir)!r}: {right} ({error.strerror})") from error
    return workdir


def _fresh(directory: Path) -> Path:
    """Make the directory, or the first of DIRECTORY-2, DIRECTORY-3, ... that nobody has made."""
    for number in itertools.count(1):
        candidate = directory if number == 1 else Path(f"{directory}-{number}")
        try:
            candidate.mkdir()
        except FileExistsError:
            continue
        return candidate
    raise AssertionError("unreachable")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
