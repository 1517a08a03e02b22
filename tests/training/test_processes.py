"""Two processes with two devices each, as on a cluster of two machines, against one process."""

import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from condinit_jax.config import MeshConfig, ProbeConfig
from condinit_jax.training import train
from condinit_jax.training.files import read_rows

WORKER = textwrap.dedent(
    """
    import importlib.util
    import sys

    import jax

    port, index, workdir, fixtures, stop = sys.argv[1:]
    jax.config.update("jax_num_cpu_devices", 2)
    jax.distributed.initialize(f"localhost:{port}", 2, int(index))

    from condinit_jax.config import MeshConfig, ProbeConfig
    from condinit_jax.training import train

    spec = importlib.util.spec_from_file_location("fixtures", fixtures)
    fixtures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fixtures)


    class Half(fixtures.AttentiveTask):
        # This process's share of the batches that one process would see.
        def train_batches(self, start_step):
            return fixtures.Share(super().train_batches(start_step), int(index), 2)

        def eval_batches(self):
            return fixtures.Share(super().eval_batches(), int(index), 2)


    task = Half(width=1024, fail_at=int(stop) if stop != "never" else None)
    probe = ProbeConfig(every=5, heads=0, examples=10)
    config = fixtures.short_config(mesh=MeshConfig(data=2, fsdp=2), probe=probe)
    try:
        train(config, workdir, task=task)
    except RuntimeError as error:
        assert "stopped by the test" in str(error), error
        print("stopped as asked")
    """
)


def _run_both(workdir, stop):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    fixtures = str(Path(__file__).with_name("conftest.py"))
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, port, str(i), str(workdir), fixtures, stop],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for i in range(2)
    ]
    try:
        outputs = [worker.communicate(timeout=180) for worker in workers]
    finally:
        for worker in workers:
            worker.kill()
    for worker, (_, errors) in zip(workers, outputs, strict=True):
        assert worker.returncode == 0, errors[-3000:]
    return [out for out, _ in outputs]


@pytest.mark.slow
def test_two_processes_train_stop_and_resume_like_one(attentive_task, run_config, tmp_path):
    first, second = _run_both(tmp_path / "two", "6")
    assert "train step=5/12" in first
    assert "stopped as asked" in second
    assert "step=" not in second
    _run_both(tmp_path / "two", "never")
    # Ten examples are more than the first process's share of a batch.
    probe = ProbeConfig(every=5, heads=0, examples=10)
    config = run_config(mesh=MeshConfig(data=2, fsdp=2), probe=probe)
    train(config, tmp_path / "one", task=attentive_task(width=1024))
    expected, found = (read_rows(tmp_path / name / "metrics.jsonl") for name in ("one", "two"))
    assert [(r["step"], r["kind"]) for r in expected] == [(r["step"], r["kind"]) for r in found]
    for one, two in zip(expected, found, strict=True):
        if one["kind"] == "probe":
            assert (one["head"], one["example"]) == (two["head"], two["example"])
            assert two["kappa"] == pytest.approx(one["kappa"], rel=1e-2 if one["step"] else 1e-4)
            continue
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-4)
        assert two["accuracy"] == pytest.approx(one["accuracy"])
        assert two.get("count") == one.get("count")
