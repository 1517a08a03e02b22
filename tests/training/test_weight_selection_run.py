"""A student that begins from another run's weights."""

import itertools
import shutil

import numpy as np
import pytest

from condinit_jax import config as configs
from condinit_jax import methods
from condinit_jax.errors import UserError
from condinit_jax.saved_runs import restore_saved
from condinit_jax.training import Silent, train
from condinit_jax.training.files import read_rows

RECIPE = {
    "steps": 4,
    "log_every": 1,
    "eval_every": 4,
    "batch_size": 8,
    "data": {"train_split": "train[:64]", "eval_split": "test[:32]"},
    "schedule": {"warmup_steps": 1},
    "checkpoint": {"every": 2, "keep": 5},
    "probe": {"every": 0},
    "mesh": {"data": 1},
}


def run_config(width, init, **fields):
    model = {"name": "vit", "patch_size": 7, "width": width, "depth": 2, "num_heads": 2}
    return configs.parse({**RECIPE, "model": model, "init": init, **fields})


@pytest.fixture(scope="module")
def teacher_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("teacher")
    init = {"method": "spectral", "scale": 0.5}
    train(run_config(32, init, ema_decay=0.5), workdir, progress=Silent())
    return workdir


class Stops(Silent):
    """Presses Ctrl-C after a step."""

    def advance(self, step):
        if step == 3:
            raise KeyboardInterrupt


def losses(workdir):
    return [row["loss"] for row in read_rows(workdir / "metrics.jsonl") if row["kind"] == "train"]


@pytest.mark.slow
def test_a_student_begins_from_what_a_run_evaluates_and_is_resumed_without_it(
    teacher_run, tmp_path
):
    copy = tmp_path / "teacher"
    shutil.copytree(teacher_run, copy)
    config = run_config(16, {"method": "weight_selection", "teacher": str(copy)})
    train(config, tmp_path / "whole", progress=Silent())
    with pytest.raises(KeyboardInterrupt):
        train(config, tmp_path / "stopped", progress=Stops())
    shutil.rmtree(copy)
    train(config, tmp_path / "stopped", progress=Silent())
    assert losses(tmp_path / "whole") == losses(tmp_path / "stopped")

    with pytest.raises(UserError, match=r"^config.init.teacher = .*: is no directory; give the"):
        train(config, tmp_path / "third", progress=Silent())


def test_the_average_with_its_constants_is_what_a_run_gives(teacher_run):
    found = methods.weight_selection(teacher_run, step=2).data()
    state = restore_saved(teacher_run, 2, ("ema", "collections"))
    for name, role in itertools.product(("kernel", "bias"), ("query", "out")):
        expected = np.array(state["ema"]["blocks"]["attention"][role][name])
        if (name, role) == ("kernel", "query"):
            expected += 0.5 * np.eye(32, 16)[None, :, None].astype(np.float32)
        np.testing.assert_array_equal(found[f"blocks/attention/{role}/{name}"], expected)


def test_a_step_that_was_not_saved_is_named_with_those_that_were(teacher_run):
    with pytest.raises(UserError, match=r"^config.init.step = 3: .* has checkpoints of steps 2, 4"):
        methods.weight_selection(str(teacher_run), step=3).data()
    with pytest.raises(UserError, match=r"^config.init.teacher = .*: holds no checkpoint of a run"):
        methods.weight_selection(str(teacher_run / "tensorboard")).data()
