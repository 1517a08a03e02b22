"""A training run from a config to a directory of results, read from top to bottom."""

import contextlib
import functools
import itertools
import math
import os
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from condinit_jax import methods, tasks
from condinit_jax.config import Config, parse, to_dict
from condinit_jax.errors import UserError
from condinit_jax.saved_runs import quiet_logs, saved_steps
from condinit_jax.tasks import Task
from condinit_jax.training import files
from condinit_jax.training.checkpoints import Checkpoints, check_layout, layout
from condinit_jax.training.clock import Clock
from condinit_jax.training.curves import save_curves
from condinit_jax.training.evaluation import evaluate
from condinit_jax.training.optimizer import build_optimizer
from condinit_jax.training.probing import Probing
from condinit_jax.training.progress import CorruptWarning, Progress, default_progress
from condinit_jax.training.refining import forget, refine_state, refiner_of
from condinit_jax.training.result import Result, read_result
from condinit_jax.training.schedule import build_schedule
from condinit_jax.training.sharding import (
    batch_sharding,
    check_batch,
    make_mesh,
    param_shardings,
    replicated,
    to_devices,
)
from condinit_jax.training.state import REFINE_KEY, STEP_KEY, init_state, method_data
from condinit_jax.training.step import eval_step, train_step
from condinit_jax.training.stop import Stop
from condinit_jax.training.texts import advice, init_text, setup_text
from condinit_jax.training.window import NonFiniteError, Window, check_finite


def total_steps(config: Config, train_size: int) -> int:
    """Optimizer steps in a run.

    Args:
        config: The run's fields; where `steps` is 0, `epochs` counts.
        train_size: Examples in the training split.

    Returns:
        The steps; a last partial batch of the last epoch counts as one.

    Example:
        >>> total_steps(Config(epochs=1.5, batch_size=64), 100)
        3
    """
    return config.steps or math.ceil(config.epochs * train_size / config.batch_size)


def train(
    config: Config | Mapping[str, Any],
    workdir: str | os.PathLike[str],
    *,
    task: Task | None = None,
    progress: Progress | None = None,
) -> Result:
    """Trains, evaluates and saves one run; goes on where an earlier call in `workdir` stopped.

    A run that was stopped, at any step and in any way, and resumed ends with the same bits as one
    that was not. `workdir` then holds `config.json`, `versions.json`, `metrics.jsonl`,
    `tensorboard/`, `checkpoints/`, `curves.png` and `result.json`, and after a refinement
    `refine.json` and `refine.png`.

    Args:
        config: The run's fields, as parsed or as `condinit_jax.config.default` gives them.
        workdir: Directory of the run on a file system that all processes see; made if absent.
        task: What to train; None builds the task that the config names.
        progress: Where messages go; None draws a bar on a terminal and prints lines elsewhere.

    Returns:
        The outcome.

    Raises:
        UserError: If the config or the workdir is wrong.
        NonFiniteError: If the loss becomes NaN or infinite.
        KeyboardInterrupt: Passed on, after everything was closed.
    """
    config = config if isinstance(config, Config) else parse(config)
    workdir = Path(os.path.abspath(os.path.expanduser(workdir)))
    progress = progress or default_progress()
    with contextlib.ExitStack() as stack:
        stack.callback(progress.close)
        stack.enter_context(quiet_logs())
        return _run(config, workdir, task, progress, stack)


def _run(
    config: Config,
    workdir: Path,
    task: Task | None,
    progress: Progress,
    stack: contextlib.ExitStack,
) -> Result:
    first_process = jax.process_index() == 0

    # Mesh.
    mesh = make_mesh(config.mesh)
    check_batch(config, mesh)
    on_batch, whole = batch_sharding(mesh), replicated(mesh)

    # Task, optimizer, initialization.
    task = task or tasks.build(config)
    steps = total_steps(config, task.train_size)
    schedule = build_schedule(config.schedule, config.optimizer.lr, steps)
    optimizer = build_optimizer(config.optimizer, schedule)
    method = methods.build(config.init, task.facts())
    refiner = refiner_of(config)
    # A run that goes on needs no teacher any more.
    data = None if saved_steps(workdir) else method_data(method)

    # State: known by shape, not yet drawn.
    root = jax.jit(functools.partial(jax.random.key, config.seed), out_shardings=whole)()
    init = functools.partial(
        init_state, task=task, optimizer=optimizer, method=method, average=config.ema_decay > 0
    )
    shapes = jax.eval_shape(init, root, data)
    shardings = param_shardings(shapes, mesh)
    progress.say(task.summary())
    in_blocks = method is not None and not isinstance(method, methods.NetworkMethod)
    progress.say(setup_text(config, shapes, mesh, in_blocks))
    progress.say(f"{steps} steps of {config.batch_size} examples; workdir {workdir}")
    if config.schedule.warmup_steps >= steps:
        progress.say(
            f"warning: config.schedule.warmup_steps = {config.schedule.warmup_steps} is not below "
            f"the run's {steps} steps; the learning rate never reaches its peak"
        )

    # Resume.
    files.check_workdir(workdir)
    checkpoints = Checkpoints(workdir / "checkpoints", config.checkpoint.keep)
    stack.callback(checkpoints.close)
    identity = {"layout": layout(shapes), "config": to_dict(config)}
    start = checkpoints.latest() or 0
    record: dict[str, Any] = {}
    changes: list[str] = []
    if start:
        record = checkpoints.record(start)
        check_layout(record, identity, checkpoints.directory, start)
        changes = files.changes(record["config"], identity["config"], workdir)
        for change in changes:
            progress.say(f"config changed: {change}")
        if start > steps:
            raise UserError(
                f"config.steps = {steps}: {workdir} already holds step {start}; "
                "give at least that many, or another workdir"
            )
        if start == steps and (workdir / "result.json").exists():
            progress.say(f"already complete at step {start}")
            result = read_result(workdir)
            progress.result(result)
            return result
        progress.say(f"resuming from step {start}")
        state = checkpoints.restore(start, shapes, shardings)
    else:
        if (workdir / "result.json").exists():
            raise UserError(
                f"{workdir}: holds a finished run without checkpoints, which a new one would "
                "overwrite; use another workdir"
            )
        state = jax.jit(init, out_shardings=shardings)(root, data or method_data(method))
    best = record.get("best", {"value": -math.inf, "step": 0})
    evaluation = record.get("evaluation", {"step": 0})
    window = Window(record.get("window"))

    # Files.
    writer = files.MetricWriter(workdir, start) if first_process else files.NoWriter()
    stack.callback(writer.close)
    if first_process:
        (workdir / "result.json").unlink(missing_ok=True)
        files.write_json(workdir / "config.json", identity["config"])
        files.write_json(workdir / "versions.json", files.versions())
        if changes:
            writer.write({"step": start, "kind": "config", "changes": changes})
        if not start:
            forget(workdir)

    # Refinement: of parameters that nobody has trained yet.
    if refiner and not start:
        state = refine_state(
            state,
            refiner,
            jax.jit(jax.random.fold_in, static_argnums=1, out_shardings=whole)(root, REFINE_KEY),
            task=task,
            optimizer=optimizer,
            shardings=shardings,
            on_batch=on_batch,
            progress=progress,
            writer=writer,
            workdir=workdir,
        )

    # Step and evaluation.
    step_fn: Any = jax.jit(
        functools.partial(
            train_step,
            task=task,
            optimizer=optimizer,
            schedule=schedule,
            accumulate=config.optimizer.accumulate,
            ema_decay=config.ema_decay,
        ),
        donate_argnums=0,
        out_shardings=(shardings, whole),
    )
    eval_fn = jax.jit(functools.partial(eval_step, task=task), out_shardings=whole)
    key = jax.jit(jax.random.fold_in, static_argnums=1, out_shardings=whole)(root, STEP_KEY)
    warn = CorruptWarning(progress)
    probing = Probing(
        config.probe,
        task=task,
        whole=whole,
        progress=progress,
        writer=writer,
        record=record.get("probe"),
    )

    def evaluate_now(step: int) -> None:
        nonlocal evaluation, best
        with contextlib.closing(task.eval_batches()) as batches:
            metrics = evaluate(eval_fn, state, batches, on_batch)
            warn("evaluation", batches)
        for name, value in metrics.items():
            check_finite(step, f"evaluation {name}", value)
        evaluation = {"step": step, "metrics": metrics}
        if metrics[task.best_metric] > best["value"]:
            best = {"value": metrics[task.best_metric], "step": step}
        row = {"step": step, "kind": "eval", **metrics, "seconds": clock.seconds}
        writer.write(row)
        progress.row(row, seconds_left)

    # Loop.
    stop = Stop()
    stack.enter_context(stop.listening())
    batches = task.train_batches(start)
    stack.callback(batches.close)
    step, seconds_left = start, math.inf
    clock = Clock(**record.get("clock", {}))
    try:
        stream: Iterator[dict[str, jax.Array]] = iter(())
        if start < steps:
            example = to_devices(next(batches), on_batch)
            with clock.paused():
                began = time.perf_counter()
                step_fn = step_fn.lower(state, example, key).compile()
                progress.say(f"step compiled in {time.perf_counter() - began:.1f} s")
            stream = itertools.chain([example], (to_devices(b, on_batch) for b in batches))
        progress.begin(start, steps)
        with clock.paused():
            probing.begin(start, state)
        for step, batch in zip(range(start + 1, steps + 1), stream, strict=False):
            state, figures = step_fn(state, batch, key)
            window.add(step, figures)
            clock.count(config.batch_size)
            progress.advance(step)
            last = step == steps

            if last or step % config.log_every == 0:
                means, rates = window.close(), clock.lap()
                seconds_left = (steps - step) / rates["steps_per_second"]
                row = {"step": step, "kind": "train", **means, **rates}
                writer.write(row)
                progress.row(row, seconds_left)
                warn("training", batches)

            if last or step % config.eval_every == 0:
                window.fetch()
                with clock.paused():
                    evaluate_now(step)

            if probing.due(step, steps):
                window.fetch()
                with clock.paused():
                    probing.measure(step, state)

            if last or stop.asked or step % config.checkpoint.every == 0 or best["step"] == step:
                record = {
                    **identity,
                    "window": window.fetch(),
                    "clock": clock.state(),
                    "best": best,
                    "evaluation": evaluation,
                    "probe": probing.state(),
                }
                with clock.paused():
                    checkpoints.save(step, state, record, best["step"])
            if stop.asked and not last:
                raise KeyboardInterrupt
        if evaluation["step"] != steps:
            evaluate_now(steps)
        if probing.due(steps, steps):
            probing.measure(steps, state)
    except NonFiniteError as error:
        checkpoints.wait()
        writer.write({"step": error.step, "kind": "failed", "reason": str(error)})
        raise NonFiniteError(error.step, f"{error}; {advice(checkpoints.latest())}") from None
    except KeyboardInterrupt:
        checkpoints.wait()
        saved = checkpoints.latest() or 0
        progress.say(f"stopped at step {step}; --workdir {workdir} goes on from step {saved}")
        raise

    # Result.
    checkpoints.wait()
    result = Result(
        steps=steps,
        metrics=evaluation["metrics"],
        best_metric=task.best_metric,
        best_value=best["value"],
        best_step=best["step"],
        seconds=clock.seconds,
        images_per_second=clock.images_per_second,
        corrupt=_over_processes(batches.corrupt.count),
        workdir=str(workdir),
        probe_seconds=probing.seconds,
    )
    if first_process:
        times = {"seconds": result.seconds, "probe_seconds": result.probe_seconds}
        writer.write({"step": steps, "kind": "final", **result.metrics, **times})
        title = f"{task.summary()}; {init_text(config)}, seed {config.seed}"
        rows = files.read_rows(workdir / files.METRICS)
        save_curves(rows, "\n".join(textwrap.wrap(title, 100)), workdir / "curves.png")
        files.write_json(workdir / "result.json", result.to_dict())
    progress.result(result)
    return result


def _over_processes(count: int) -> int:
    """The sum of a count over all processes."""
    if jax.process_count() == 1:
        return count
    return int(multihost_utils.process_allgather(np.int32(count)).sum())
