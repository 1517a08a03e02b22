"""Runs made by processes of their own, several at once; one that fails does not stop the rest."""

import contextlib
import dataclasses
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from condinit_jax.errors import UserError
from condinit_jax.experiments._display import Display
from condinit_jax.experiments._gather import FAILURE
from condinit_jax.experiments._grid import Cell
from condinit_jax.experiments._slots import Slot
from condinit_jax.training.files import write_json

OUTPUT = "output.txt"
"""What a run printed, in its directory."""

LOCK = ".lock"

COMPILED = "compiled"
"""Programs that XLA compiled, while runs are made."""

EVERY = 0.5
"""Seconds between two looks at the processes."""


@dataclasses.dataclass
class _Job:
    cell: Cell
    slot: Slot
    workdir: Path
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    before: int
    began: float


def launch(
    cells: Sequence[Cell],
    directory: Path,
    command: Callable[[Cell], Sequence[str]],
    slots: Sequence[Slot],
    display: Display,
) -> int:
    """Makes runs, in order, as many at once as there are slots.

    A run that ended badly leaves `failure.json` in its directory. Programs that XLA compiled are
    kept for the next run of the same slot; two processes that write one such cache could read half
    a file.

    Args:
        cells: The runs to make; what they have begun, they go on with.
        directory: Of the comparison.
        command: Gives the words that make a run.
        slots: Room for them.
        display: Is told what happens.

    Returns:
        How many failed.

    Raises:
        UserError: If another process makes runs in this directory, or one that was killed left
            runs behind that are still at work.
        KeyboardInterrupt: Passed on, also for SIGTERM and SIGHUP, after every run has saved its
            state.
    """
    with _alone_in(directory) as lock, _signals_interrupt():
        return _launch(cells, directory, command, slots, display, lock)


def _launch(
    cells: Sequence[Cell],
    directory: Path,
    command: Callable[[Cell], Sequence[str]],
    slots: Sequence[Slot],
    display: Display,
    lock: int,
) -> int:
    waiting, free = deque(cells), deque(slots)
    running: list[_Job] = []
    failed = 0
    try:
        while waiting or running:
            while waiting and free:
                cell = waiting.popleft()
                display.started(cell, directory / cell.place)
                try:
                    job = _start(cell, free[0], directory, command, lock)
                except OSError as error:
                    # A file in its place, a full disk: the others may still be made.
                    failed += 1
                    display.ended(cell, f"cannot be started: {error}", 0.0)
                    continue
                free.popleft()
                running.append(job)
            time.sleep(EVERY)
            display.refresh()
            for job in [job for job in running if job.process.poll() is not None]:
                running.remove(job)
                reason = _ended(job)
                failed += bool(reason)
                display.ended(job.cell, reason, time.monotonic() - job.began)
                free.append(job.slot)
    finally:
        _stop(running)
    shutil.rmtree(directory / COMPILED, ignore_errors=True)
    return failed


def _start(
    cell: Cell,
    slot: Slot,
    directory: Path,
    command: Callable[[Cell], Sequence[str]],
    lock: int,
) -> _Job:
    workdir = directory / cell.place
    workdir.mkdir(parents=True, exist_ok=True)
    (workdir / FAILURE).unlink(missing_ok=True)
    cache = {"JAX_COMPILATION_CACHE_DIR": str((directory / COMPILED / slot.name).absolute())}
    output = (workdir / OUTPUT).open("ab")
    before = output.tell()
    with _confined_to(slot.cores):
        process = subprocess.Popen(
            command(cell),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **cache, **slot.variables},
            # The directory stays locked as long as any of its runs is at work.
            pass_fds=(lock,),
            # Ctrl-C reaches this process alone, which then asks each run to stop, once.
            start_new_session=True,
        )
    return _Job(cell, slot, workdir, process, output, before, time.monotonic())


def _ended(job: _Job) -> str:
    """Why a run that is over failed; empty for one that did not."""
    job.output.close()
    code = job.process.returncode
    if code == 0:
        return ""
    said = (job.workdir / OUTPUT).read_bytes()[job.before :].decode(errors="replace")
    reason = failure_reason(code, said)
    write_json(job.workdir / FAILURE, {"exit_code": code, "reason": reason})
    return reason


def failure_reason(code: int, output: str) -> str:
    r"""Why a process failed, as one line.

    Args:
        code: Its exit code; negative for a signal.
        output: What it printed.

    Returns:
        The message of its last line, or which signal ended it.

    Example:
        >>> failure_reason(2, "step 1\ntrain.py: config.batch_size = 0: must be positive\n")
        'config.batch_size = 0: must be positive'
        >>> failure_reason(-9, "step 1")
        'killed by SIGKILL, as a machine does that is out of memory'
    """
    if code < 0:
        known = {number.value: number.name for number in signal.Signals}
        name = known.get(-code, f"signal {-code}")
        hint = ", as a machine does that is out of memory" if name == "SIGKILL" else ""
        return f"killed by {name}{hint}"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = lines[-1].removeprefix("train.py: ") if lines else "it printed nothing"
    return said[:500]


def _stop(running: Sequence[_Job]) -> None:
    """Asks what still runs to save its state and end, and waits for it."""
    for job in running:
        if job.process.poll() is None:
            job.process.send_signal(signal.SIGTERM)
    for job in running:
        try:
            job.process.wait()
        except KeyboardInterrupt:
            # A second Ctrl-C: whoever presses it does not want to wait.
            for other in running:
                other.process.kill()
            job.process.wait()
        job.output.close()


@contextlib.contextmanager
def _confined_to(cores: Sequence[int]) -> Iterator[None]:
    """Processes started meanwhile have these cores; all of them where none are named.

    They inherit them from this thread: code run between fork and exec could deadlock on what
    another thread of JAX holds.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[int]:
    """Locks a directory, also against runs that outlive the process that started them."""
    directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{directory}: another comparison, or runs that one has left, are at work here; "
                "wait for them or stop them"
            ) from None
        yield lock
    finally:
        os.close(lock)


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM and SIGHUP raise KeyboardInterrupt: the runs are stopped as by Ctrl-C."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    # What is ignored stays ignored: nohup is there for that.
    heard = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
