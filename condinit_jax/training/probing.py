"""Spectra of attention's Jacobians while a run trains, on the same few examples every time.

All processes run the forward pass that captures what attention reads; the first one computes the
spectra, on whole copies. Nothing here touches the state, the random keys or the training stream, so
a run ends with the same bits with and without it.
"""

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding
from threadpoolctl import threadpool_limits

from condinit_jax.config import ProbeConfig
from condinit_jax.errors import UserError
from condinit_jax.spectra import CapturedBlock, Recording, assemble, probe_blocks
from condinit_jax.tasks import Batch, Task
from condinit_jax.training.files import MetricWriter, NoWriter
from condinit_jax.training.probe_rows import as_json, layer_kappas, summary
from condinit_jax.training.progress import Progress
from condinit_jax.training.sharding import to_devices
from condinit_jax.training.state import State

FAILURES = (UserError, RuntimeError, MemoryError, np.linalg.LinAlgError)
"""What a probe may fail with that says nothing about the training."""

SMALL = 1024
"""Rows of a Jacobian up to which one thread decomposes it fastest."""

MUCH, LONG = 0.1, 1.0
"""A probe that takes this share of the time between two, and this many seconds, is pointed out."""

LONG_FIRST = 20.0
"""Seconds after which the first probe is pointed out."""

# One small forward pass: optimising it takes longer than running it does.
_QUICK_COMPILATION: dict[str, Any] = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}


class Probing:
    """The probes of one run.

    A probe that cannot work is an error where a person set a field of `config.probe`, found before
    the session's first step; with the section's defaults it is one warning, and the run goes on
    without probes. A probe that fails later never ends a run.

    Attributes:
        seconds: Wall-clock seconds that the run's probes took, compilation included.

    Args:
        config: What is probed, and when.
        task: Captures what attention reads.
        whole: Sharding of a value that every device holds whole.
        progress: Where summaries and warnings go.
        writer: Where rows go.
        record: From `state`, of the session before.
    """

    def __init__(
        self,
        config: ProbeConfig,
        *,
        task: Task,
        whole: NamedSharding,
        progress: Progress,
        writer: MetricWriter | NoWriter,
        record: Mapping[str, Any] | None = None,
    ) -> None:
        record = record or {}
        self.seconds: float = record.get("seconds", 0.0)
        self._step: int | None = record.get("step")
        self._config, self._task, self._whole = config, task, whole
        self._progress, self._writer = progress, writer
        self._explicit = config != ProbeConfig()
        self._on = config.every > 0
        self._warned: set[str] = set()
        self._capture: Any = None
        self._examples: dict[str, jax.Array] = {}
        self._end = time.perf_counter()

    def state(self) -> dict[str, Any]:
        """What the next session needs, JSON-able."""
        return {"seconds": self.seconds, "step": self._step}

    def due(self, step: int, steps: int) -> bool:
        """Whether a step has a probe after it.

        Args:
            step: Finished steps.
            steps: Steps in the run.
        """
        return self._on and (step == steps or step % self._config.every == 0)

    def begin(self, step: int, state: State) -> None:
        """Compiles what captures, and probes if the run begins.

        Args:
            step: Step from which the run goes on; 0 for a new one.
            state: The state there.

        Raises:
            UserError: If probes cannot work and `config.probe` was set.
        """
        if not self._on:
            return
        began = time.perf_counter()
        try:
            self._prepare(state)
        except FAILURES as error:
            self._fail(error)
            self._on = False
        finally:
            self.seconds += time.perf_counter() - began
        if self._on and step == 0:
            self.measure(0, state, first=True)

    def measure(self, step: int, state: State, *, first: bool = False) -> None:
        """Probes the model and writes what was found; a step is probed once.

        Args:
            step: Finished steps.
            state: The state after them; its parameters are probed, not their average.
            first: Whether nobody has trained yet, so that a failure may end the run.

        Raises:
            UserError: If the probe fails, `first`, and `config.probe` was set.
        """
        if not self._on or step == self._step:
            return
        began = time.perf_counter()
        failure: Exception | None = None
        try:
            recording = self._capture(state.params, state.collections, self._examples)
            rows = self._spectra(recording) if jax.process_index() == 0 else []
        except Exception as error:
            if first and not isinstance(error, FAILURES):
                raise
            failure, rows = error, []
        self._agree(failure, first)
        took = time.perf_counter() - began
        self.seconds += took
        self._step = step
        for row in rows:
            self._writer.write({"step": step, "kind": "probe", **row})
        if rows:
            self._writer.scalars(
                step, {f"probe/kappa_layer_{n:02d}": k for n, k in layer_kappas(rows).items()}
            )
            shown = {"step": step, "kind": "probe", **summary(rows), "took": f"{took:.2g}s"}
            self._progress.row(shown, math.inf)
            self._mind_the_cost(took, first)
        self._end = time.perf_counter()

    def _agree(self, failure: Exception | None, first: bool) -> None:
        """Fails on every process, or on none; only the first one computes spectra."""
        fatal = first and self._explicit
        anywhere = failure is not None
        if fatal and jax.process_count() > 1:
            anywhere = bool(multihost_utils.broadcast_one_to_all(np.int32(anywhere)))
        if failure is not None:
            self._fail(failure, fatal=first)
        elif fatal and anywhere:
            raise UserError("config.probe: failed on the first process, which says why")

    def _prepare(self, state: State) -> None:
        examples = first_examples(self._task, self._config.examples)
        self._examples = to_devices(examples, self._whole)
        capture = jax.jit(self._task.attention_inputs, out_shardings=self._whole)
        lowered = capture.lower(state.params, state.collections, self._examples)
        on_cpu = self._whole.mesh.devices.flat[0].platform == "cpu"
        self._capture = lowered.compile(_QUICK_COMPILATION if on_cpu else None)

    def _spectra(self, recording: Recording) -> list[dict[str, Any]]:
        """The rows of one probe, as JSON holds them."""
        config, blocks = self._config, assemble(recording)
        heads = min(block.num_heads for block in blocks)
        tokens = config.tokens or None
        with suitable_threads(blocks, tokens):
            probe = probe_blocks(
                blocks,
                layers=spaced(config.layers, len(blocks)),
                heads=range(min(config.heads, heads)) if config.heads else None,
                tokens=tokens,
                quantities=config.quantities,
                method=config.method,
                memory=int(config.memory * 2**30),
                rtol=config.rtol or None,
            )
        return [as_json(row) for row in probe.rows]

    def _fail(self, error: BaseException, *, fatal: bool = True) -> None:
        """Raises, or warns once."""
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        if fatal and self._explicit:
            raise UserError(f"config.probe: {reason}; set config.probe.every = 0 to train without")
        if reason not in self._warned:
            self._warned.add(reason)
            self._progress.say(f"warning: no probe of attention's Jacobian: {reason}")

    def _mind_the_cost(self, took: float, first: bool) -> None:
        between = time.perf_counter() - self._end
        if first and took > LONG_FIRST:
            self._progress.say(
                f"warning: the first probe took {took:.2g} s, and every later one may; lower "
                "config.probe.layers, heads, examples or tokens"
            )
        if not first and took > max(MUCH * between, LONG) and "cost" not in self._warned:
            self._warned.add("cost")
            self._progress.say(
                f"warning: this probe took {took:.2g} s, {took / between:.0%} of the time since "
                "the last; raise config.probe.every or lower config.probe.layers, heads, examples "
                "or tokens"
            )


@contextlib.contextmanager
def suitable_threads(blocks: Sequence[CapturedBlock], tokens: int | None) -> Iterator[None]:
    """Lets one thread decompose small matrices, and as many as there are large ones.

    Threads that wait for one another over a small matrix take a hundred times as long as a single
    one wherever anything else is running.

    Args:
        blocks: What will be probed.
        tokens: Rows of attention's output that are taken; None for all.
    """
    rows = max(
        min(tokens or math.inf, block.tokens.shape[1]) * block.kernels.value.shape[-1]
        for block in blocks
    )
    with threadpool_limits(1 if rows <= SMALL else None, user_api="blas"):
        yield


def spaced(count: int, length: int) -> list[int]:
    """Evenly spaced places in a row, the first and the last among them.

    Args:
        count: How many, at most; 0 for all.
        length: Of the row.

    Returns:
        The places, from 0.

    Example:
        >>> spaced(4, 12), spaced(1, 12), spaced(4, 2), spaced(0, 3)
        ([0, 4, 7, 11], [0], [0, 1], [0, 1, 2])
    """
    return np.linspace(0, length - 1, min(count or length, length)).round().astype(int).tolist()


def first_examples(task: Task, count: int) -> dict[str, np.ndarray]:
    """The first readable examples of the evaluation split, the same on every process.

    Args:
        task: Gives the split.
        count: How many; fewer if the split has no more.

    Returns:
        A batch without padding.

    Raises:
        UserError: If there is none.
    """
    found: list[dict[str, np.ndarray]] = []
    missing = count
    with contextlib.closing(task.eval_batches()) as batches:
        for batch in batches:
            found.append(_readable(batch, missing))
            missing -= len(found[-1]["mask"])
            if missing <= 0:
                break
    if missing == count:
        raise UserError("config.data.eval_split: has no readable example; give one that has")
    return {name: np.concatenate([part[name] for part in found]) for name in found[0]}


def _readable(batch: Batch, count: int) -> dict[str, np.ndarray]:
    """The first readable examples of a batch over all processes."""
    order = np.argsort(np.asarray(batch["mask"]) <= 0, kind="stable")[:count]
    first = {name: np.asarray(array)[order] for name, array in batch.items()}
    if jax.process_count() > 1:
        # Processes hold consecutive parts of a batch, so this is the order on one process.
        first = multihost_utils.process_allgather(first, tiled=True)
    real = np.flatnonzero(first["mask"] > 0)[:count]
    return {name: array[real] for name, array in first.items()}
