"""The command from its arguments to runs and a report, read from top to bottom."""

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from condinit_jax import config as configs
from condinit_jax.compare._arguments import PROGRAM, Request, read
from condinit_jax.errors import UserError
from condinit_jax.experiments import (
    FINISHED,
    ROOT,
    Comparison,
    Plan,
    Run,
    accelerators,
    compare_runs,
    extended,
    find_runs,
    gather,
    launch,
    local_command,
    make_display,
    make_grid,
    make_slots,
    read_plan,
    shell_line,
    slurm_script,
    verdict,
    write_plan,
    write_report,
)
from condinit_jax.methods import DEFAULT
from condinit_jax.training.files import write_text

INTERRUPTED = 130
"""The exit code after Ctrl-C."""

FAILED = 1
"""The exit code where some runs failed, or nobody reads the output."""


def main(argv: Sequence[str]) -> int:
    """Compare as the arguments say.

    Args:
        argv: the command line without the program's name.

    Returns:
        The exit code: 0 done, 1 some runs failed (the report says which), 2 a mistake in the
        arguments, config or data, 130 interrupted.
    """
    try:
        return _compare(read(argv))
    except UserError as error:
        if "--debug" in argv:
            raise
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        if "--debug" in argv:
            raise
        note = "interrupted; the same command goes on, and --report shows what is there"
        print(f"{PROGRAM}: {note}", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Who read the output has gone; Python's own flush at the end must not say so.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _compare(request: Request) -> int:
    directory = request.workdirs[0]
    if not request.variants:
        plan = read_plan(directory) if len(request.workdirs) == 1 else None
        runs = gather(plan, directory) if plan else find_runs(request.workdirs)
        _report(runs, plan, request)
        return 0

    plan = extended(read_plan(directory), _plan(request), directory)
    if request.dry_run:
        for cell in plan.cells:
            print(shell_line(cell, plan.recipe, directory))
        return 0
    runs = gather(plan, directory)
    if request.report:
        if not directory.is_dir():
            raise UserError(f"--workdir = {str(directory)!r}: no such directory")
        write_plan(plan, directory)
        _report(runs, plan, request)
        return 0
    if request.slurm:
        script = slurm_script(plan.cells, plan.recipe, directory, request.slurm)
        _write_script(script, request.slurm)
        write_plan(plan, directory)
        print(f"wrote {request.slurm}; submit it with: sbatch {request.slurm}")
        print(f"afterwards: {PROGRAM} --report --workdir {directory}")
        return 0

    done = {run.workdir for run in runs if run.state == FINISHED}
    todo = [cell for cell in plan.cells if directory / cell.place not in done]
    failed = 0
    if todo:
        slots = make_slots(request.jobs, *accelerators(), tuple(sorted(os.sched_getaffinity(0))))
        write_plan(plan, directory)
        there = f", {len(done)} are there" if done else ""
        print(f"{len(todo)} runs to make{there}, {len(slots)} at once; {directory}", flush=True)
        display = make_display(len(todo), len(slots))
        try:
            failed = launch(
                todo,
                directory,
                lambda cell: local_command(cell, plan.recipe, directory),
                slots,
                display,
            )
        finally:
            display.close()
    else:
        write_plan(plan, directory)
        print(f"all {len(done)} runs are there already")
    _report(gather(plan, directory), plan, request)
    if failed:
        print(f"{PROGRAM}: {failed} of {len(todo)} runs failed; see the report", file=sys.stderr)
        return FAILED
    return 0


def _plan(request: Request) -> Plan:
    recipe = configs.load(request.recipe, directories=(Path(), ROOT))
    cells = make_grid(
        recipe,
        request.variants,
        request.seeds,
        request.rates,
        request.assignments,
        here=not (request.dry_run or request.slurm or request.report),
    )
    return Plan(
        recipe=request.recipe,
        commands=(request.command(),),
        labels=tuple(variant.label for variant in request.variants),
        against=request.against,
        cells=tuple(cells),
    )


def _report(runs: Sequence[Run], plan: Plan | None, request: Request) -> Comparison:
    directory = request.workdirs[0]
    against = request.against or (plan.against if plan else ())
    # Without a plan, the model's own initialization is the baseline, where it was run.
    found = sorted(dict.fromkeys(run.label for run in runs), key=lambda name: name != DEFAULT)
    labels = plan.labels if plan else tuple(found)
    for label in against:
        if label not in labels:
            raise UserError(f"--against = {label!r}: is not among {', '.join(labels)}")
    commands = plan.commands if plan else (f"{PROGRAM} --report",)
    places = shlex.join(word for place in request.workdirs for word in ("--workdir", str(place)))
    title = plan.recipe if plan else ", ".join(map(str, request.workdirs))
    comparison = compare_runs(
        runs,
        title=title,
        command="\n".join(f"{command} {places}" for command in commands),
        labels=labels,
        against=against,
    )
    said = verdict(comparison)
    written = write_report(comparison, said, directory)
    for sentence in said:
        print(sentence)
    print(f"report: {written[0]}")
    return comparison


def _write_script(script: str, file: Path) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, script)
        file.chmod(0o755)
    except OSError as error:
        raise UserError(
            f"--slurm = {str(file)!r}: {error.strerror}; give a file to write to"
        ) from error
