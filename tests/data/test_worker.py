import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from condinit_jax.data.worker import start_worker

STREAM = """
import dataclasses, gc, multiprocessing, os, signal, sys, time
from condinit_jax.config import DataConfig
from condinit_jax.data import eval_batches, open_source, train_batches

if __name__ == "__main__":
    config = DataConfig(workers=1)
    batches = train_batches(open_source(config, "train"), config, batch_size=8, seed=0)
    next(batches)
    [worker] = multiprocessing.active_children()
    print(worker.pid, flush=True)
    if sys.argv[1] == "signalled":
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(worker.pid, number)
        for _ in range(50):
            next(batches)
    elif sys.argv[1] == "evaluated":
        batches.close()
        gc.disable()
        config = dataclasses.replace(config, workers=2)
        evaluation = eval_batches(open_source(config, "test"), config, batch_size=200)
        assert len(list(evaluation)) == 5
        held = [entry for entry in gc.get_objects() if type(entry).__name__ == "SharedMemoryArray"]
        assert not held, len(held)
        # A moment for Grain's thread that frees shared memory.
        time.sleep(1)
    elif sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def _ignoring(connection) -> None:
    start_worker(0, 1)
    connection.send(os.getpid())
    time.sleep(60)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        # An orphan that ended stays listed where process 1 does not collect it.
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return pathlib.Path("/proc").exists() is False


def wait_until_gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def test_a_worker_ignores_the_signals_meant_for_the_run():
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_ignoring, args=(theirs,))
    process.start()
    assert ours.poll(60)
    pid = ours.recv()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(pid, number)
    time.sleep(0.2)
    assert process.is_alive()
    process.kill()
    process.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "returncode"),
    [("left open", 0), ("signalled", 0), ("evaluated", 0), ("killed", -signal.SIGKILL)],
)
def test_a_run_leaves_no_worker_behind_and_says_nothing(tmp_path, ending, returncode):
    script = tmp_path / "run.py"
    script.write_text(STREAM)
    run = subprocess.run(
        [sys.executable, "-W", "error", str(script), ending],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert run.returncode == returncode, run.stderr
    assert wait_until_gone(int(run.stdout))
    if ending != "killed":
        assert run.stderr == ""
