"""The refinement of a run's drawn parameters, between their draw and the first training step.

It reads the training split's own first batches through an iterator of its own, so that training
afterwards sees the batches that it would have seen without.
"""

import contextlib
import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import jax
import numpy as np
import optax
from jax.sharding import NamedSharding

from condinit_jax.config import Config
from condinit_jax.errors import UserError
from condinit_jax.refine import Refiner, Scales, begin, build, effective, scaled
from condinit_jax.tasks import Task
from condinit_jax.training import files
from condinit_jax.training.paths import is_stacked, path_names
from condinit_jax.training.progress import Progress
from condinit_jax.training.scale_plot import save_scales
from condinit_jax.training.sharding import to_devices
from condinit_jax.training.state import State
from condinit_jax.training.window import RUN_AHEAD, ordered

RECORD, PICTURE = "refine.json", "refine.png"

LINES = 8
"""Lines of figures that a whole refinement prints."""


def refiner_of(config: Config) -> Refiner | None:
    """The refinement that a run's config names; what it leaves open follows the run's optimizer.

    Args:
        config: The run's fields.

    Returns:
        The refinement; None where there is none.

    Raises:
        UserError: If a field of `config.init.refine` is wrong.
    """
    return build(config.init, {"rule": "sgd" if config.optimizer.name == "sgd" else "adam"})


def refine_state(
    state: State,
    refiner: Refiner,
    key: jax.Array,
    *,
    task: Task,
    optimizer: optax.GradientTransformation,
    shardings: Any,
    on_batch: NamedSharding,
    progress: Progress,
    writer: files.MetricWriter | files.NoWriter,
    workdir: Path,
) -> State:
    """The state at step 0 with its parameters scaled as the refinement finds best.

    The first process leaves a row of kind "refine" per step, `refine.json` with every scale, and
    `refine.png`, once the refinement is over.

    Args:
        state: As drawn; its arrays are given up.
        refiner: The refinement.
        key: Randomness of its steps; the step's number is folded in here.
        task: Gives the loss and the batches.
        optimizer: Its state begins anew with the scaled parameters.
        shardings: Of the state.
        on_batch: Sharding of a batch.
        progress: Where the bar and the lines go.
        writer: Where the rows go.
        workdir: Directory of the run.

    Returns:
        The new state.

    Raises:
        UserError: If a loss, a gradient or a scale is NaN or infinite.
        KeyboardInterrupt: Passed on; the run has not begun.
    """
    began = time.perf_counter()
    whole = NamedSharding(on_batch.mesh, jax.sharding.PartitionSpec())
    scales = jax.jit(functools.partial(begin, stacked=is_stacked), out_shardings=whole)(
        state.params
    )
    step_fn = jax.jit(functools.partial(refiner.step, task=task), out_shardings=whole)
    fold = jax.jit(jax.random.fold_in, out_shardings=whole)
    rows = _Rows(refiner, progress, writer)
    progress.say(f"{refiner.name}: learning the scales of the parameters in {refiner.steps} steps")
    try:
        with contextlib.closing(task.train_batches(0)) as batches:
            stream = (to_devices(batch, on_batch) for batch in batches)
            for step in range(1, refiner.steps + 1):
                group = tuple(itertools.islice(stream, refiner.batches))
                scales, figures = step_fn(
                    scales, state.params, state.collections, group, fold(key, step)
                )
                rows.add(step, figures)
        rows.fetch(0)
    except KeyboardInterrupt:
        progress.say(
            f"stopped during {refiner.name}; nothing is saved yet, the same command begins anew"
        )
        raise
    matter = jax.jit(effective, out_shardings=whole)(state.params, scales.values)
    on_host, matter = jax.device_get((scales, matter))
    for path, values in jax.tree_util.tree_leaves_with_path(on_host.values):
        # The figures of the last step are those before its move.
        rows.check(refiner.steps, f"scale of {'/'.join(path_names(path))}", float(np.sum(values)))
    found = by_path(on_host, matter)
    state = _restarted(state, scales.values, optimizer, shardings)
    seconds = time.perf_counter() - began
    progress.say(summary(refiner.name, rows.all, found, seconds))
    if jax.process_index() == 0:
        first, last = rows.all[0], rows.all[-1]
        record = {
            "name": refiner.name,
            "steps": refiner.steps,
            "constraint_steps": sum(row["constraint"] for row in rows.all),
            "seconds": seconds,
            "loss": [first["loss"], last["loss"]],
            "scales": found,
        }
        save_scales(found, f"scales learned by {refiner.name}", workdir / PICTURE)
        files.write_json(workdir / RECORD, record)
    return state


def forget(workdir: Path) -> None:
    """Removes what an earlier beginning in the same directory left.

    Args:
        workdir: Directory of the run.
    """
    for name in (RECORD, PICTURE):
        (workdir / name).unlink(missing_ok=True)


class _Rows:
    """Figures of a refinement's steps, fetched a few steps late so that the devices stay busy."""

    def __init__(
        self, refiner: Refiner, progress: Progress, writer: files.MetricWriter | files.NoWriter
    ) -> None:
        self.all: list[dict[str, Any]] = []
        self._refiner, self._progress, self._writer = refiner, progress, writer
        self._waiting: list[tuple[int, dict[str, jax.Array]]] = []
        self._begin = math.inf
        progress.begin(0, refiner.steps)

    def add(self, step: int, figures: dict[str, jax.Array]) -> None:
        """Takes a step's figures."""
        self._waiting.append((step, figures))
        self.fetch(RUN_AHEAD)

    def fetch(self, leave: int) -> None:
        """Brings all but the latest few to the host, checks and writes them."""
        while len(self._waiting) > leave:
            step, figures = self._waiting.pop(0)
            found = {name: float(value) for name, value in jax.device_get(figures).items()}
            self._take(step, ordered(found))

    def _take(self, step: int, figures: dict[str, float]) -> None:
        # Compilation is no guide to how long the rest takes.
        now = time.perf_counter()
        self._begin = now if step == 1 else self._begin
        for name, value in figures.items():
            self.check(step, name.replace("_", " "), value)
        row = {**figures, "constraint": bool(figures["constraint"])}
        self.all.append(row)
        # All of a refinement is before the run's first step.
        self._writer.write({"step": 0, "kind": "refine", "refine_step": step, **row})
        self._progress.advance(step)
        steps = self._refiner.steps
        if step in (1, steps) or step % math.ceil(steps / LINES) == 0:
            left = (now - self._begin) / (step - 1) * (steps - step) if step > 1 else math.inf
            self._progress.row({"step": step, "kind": "refine", **row}, left)

    def check(self, step: int, name: str, value: float) -> None:
        """Ends the run at a number that is none."""
        if math.isfinite(value):
            return
        kind = "NaN" if math.isnan(value) else "infinite"
        what = f"{self._refiner.name}: {name} is {kind} at its step {step}"
        fields = " or ".join(
            f"config.init.refine.{field}" for field in self._refiner.remedy.split(" or ")
        )
        remedy = (
            "so it is in the drawn network; change config.init.method or config.data"
            if step == 1
            else f"lower {fields}"
        )
        self._writer.write({"step": 0, "kind": "failed", "reason": what})
        raise UserError(f"{what}; {remedy}")


def _restarted(
    state: State, scales: Any, optimizer: optax.GradientTransformation, shardings: Any
) -> State:
    """The state at step 0 with scaled parameters, on which optimizer and average begin."""

    def restart(state: State, scales: Any) -> State:
        params: chex.ArrayTree = scaled(state.params, scales)
        return dataclasses.replace(
            state,
            params=params,
            opt_state=optimizer.init(params),
            ema=None if state.ema is None else params,
        )

    restart_fn: Callable[..., State] = jax.jit(restart, donate_argnums=0, out_shardings=shardings)
    return restart_fn(state, scales)


def by_path(scales: Scales, matter: Any) -> dict[str, float | list[float]]:
    """The scales of all parameters that are not zero, by path.

    Args:
        scales: On the host.
        matter: Which of them change anything, as `effective` gives it.

    Returns:
        A number per tensor; for a stacked tensor a list with one per layer.
    """
    leaves = jax.tree_util.tree_leaves_with_path(scales.values)
    marks = jax.tree.leaves(matter)
    return {
        "/".join(path_names(path)): np.asarray(leaf).tolist()
        for (path, leaf), mark in zip(leaves, marks, strict=True)
        if np.any(mark)
    }


def summary(
    name: str,
    rows: list[dict[str, Any]],
    found: dict[str, float | list[float]],
    seconds: float,
) -> str:
    """What a refinement did, in one line.

    Args:
        name: Of the refinement.
        rows: Figures of its steps.
        found: Scales by path.
        seconds: What it took.

    Returns:
        The line.

    Example:
        >>> row = {"loss": 2.5, "constraint": False}
        >>> print(summary("nio", [row, row], {"a/kernel": [1.0, 4.0], "b": 0.5}, 3.0))
        nio: 2 steps in 3 s (0 on the norm), loss 2.5 to 2.5, scales 0.5 to 4, \
largest change a/kernel layer 1 x 4
    """
    places = [
        (value, path if isinstance(values, float) else f"{path} layer {layer}")
        for path, values in found.items()
        for layer, value in enumerate([values] if isinstance(values, float) else values)
    ]
    on_norm = sum(row["constraint"] for row in rows)
    first, last = rows[0]["loss"], rows[-1]["loss"]
    text = f"{name}: {len(rows)} steps in {seconds:.3g} s ({on_norm} on the norm)"
    text += f", loss {first:.4g} to {last:.4g}"
    if not places:
        return text
    # A bias may be scaled to 0, further from 1 than anything.
    value, place = max(places, key=lambda p: abs(math.log(p[0])) if p[0] > 0 else math.inf)
    least, most = min(places)[0], max(places)[0]
    return f"{text}, scales {least:.3g} to {most:.3g}, largest change {place} x {value:.3g}"
