"""The models that are probed: freshly drawn as a run draws them, or out of a run's checkpoints."""

import dataclasses
import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import chex
import jax
import optax
from ml_collections import ConfigDict

import condinit_jax
from condinit_jax import config as configs
from condinit_jax import methods, tasks
from condinit_jax.config import Config
from condinit_jax.errors import UserError
from condinit_jax.probe._arguments import LAST, Request, Steps
from condinit_jax.saved_runs import restore_saved, saved_steps
from condinit_jax.tasks import Task
from condinit_jax.training.state import init_state, method_data

Variables = tuple[chex.ArrayTree, chex.ArrayTree]


@dataclasses.dataclass(frozen=True)
class Subject:
    """One model to probe.

    Attributes:
        run: What the rows call it: the method, or the run's directory.
        step: Its step.
        task: Captures what its attention reads.
        load: Gives the parameters and the other collections.
    """

    run: str
    step: int
    task: Task
    load: Callable[[], Variables]


def subjects(request: Request) -> list[Subject]:
    """The models that a command asks for, with everything checked that can be before computing.

    Args:
        request: The command.

    Returns:
        The models, in the order asked for.

    Raises:
        UserError: If a config, method, run or step is not there.
    """
    if request.workdirs:
        return _of_runs(request)
    return _at_initialization(request)


def _at_initialization(request: Request) -> list[Subject]:
    root = Path(condinit_jax.__file__).parents[1]
    recipe = configs.load(request.recipe, directories=(Path(), root))
    recipe = configs.override(recipe, request.assignments)
    own = configs.parse(recipe)
    names = [methods.resolve(name) for name in request.inits] or [own.init["method"]]
    # The model and the data are the same for all of them.
    task = tasks.build(own)
    found = []
    for name in dict.fromkeys(names):
        run = configs.parse(configs.override(recipe, [f"init.method={name}"]))
        found.append(Subject(name, 0, task, functools.partial(_draw, run, task)))
    return found


def _draw(run: Config, task: Task) -> Variables:
    """The parameters before the first step of a run, with the same bits."""
    method = methods.build(run.init, task.facts())
    draw = functools.partial(
        init_state, task=task, optimizer=optax.identity(), method=method, average=False
    )
    state = jax.jit(draw)(jax.random.key(run.seed), method_data(method))
    return state.params, state.collections


def _of_runs(request: Request) -> list[Subject]:
    found = []
    names = _short_names(request.workdirs)
    for workdir, name in zip(request.workdirs, names, strict=True):
        run = _config_of(workdir, request.assignments)
        steps = _steps_of(workdir, request.steps)
        task = tasks.build(run)
        for step in steps:
            found.append(Subject(name, step, task, functools.partial(_restore, workdir, step)))
    return found


def _short_names(workdirs: Sequence[Path]) -> list[str]:
    """The directories' own names, or whole paths where two have the same."""
    names = [workdir.absolute().name for workdir in workdirs]
    same = len(set(names)) < len(names)
    return [str(workdir) for workdir in workdirs] if same else names


def _config_of(workdir: Path, assignments: Sequence[str]) -> Config:
    file = workdir / "config.json"
    try:
        stored = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "is no JSON"
        raise UserError(
            f"--workdir = {str(workdir)!r}: holds no run ({file.name}: {reason})"
        ) from error
    return configs.parse(configs.override(ConfigDict(stored, type_safe=False), assignments))


def _steps_of(workdir: Path, wanted: Steps) -> tuple[int, ...]:
    saved = saved_steps(workdir)
    if not saved:
        raise UserError(f"--workdir = {str(workdir)!r}: holds no checkpoint")
    if isinstance(wanted, str):
        return tuple(saved[-1:] if wanted == LAST else saved)
    for step in wanted:
        if step not in saved:
            there = ", ".join(map(str, saved))
            raise UserError(f"--step = {step}: {workdir} has checkpoints of steps {there}")
    return tuple(sorted(wanted))


def _restore(workdir: Path, step: int) -> Variables:
    """Parameters and collections alone."""
    state = restore_saved(workdir, step, ("params", "collections"))
    return state["params"], state["collections"] or {}
