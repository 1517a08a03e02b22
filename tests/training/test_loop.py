import contextlib
import dataclasses
import json
import shutil
import signal
import types

import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.config import CheckpointConfig, MeshConfig, OptimizerConfig, ScheduleConfig
from condinit_jax.errors import UserError
from condinit_jax.training import NonFiniteError, Silent, train


def steps_kept(workdir):
    return sorted(int(path.name) for path in (workdir / "checkpoints").iterdir())


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory):
    """An uninterrupted run by mesh, made once."""
    made = {}

    def get(task, config):
        key = (config.mesh.data, config.mesh.fsdp)
        if key not in made:
            workdir = tmp_path_factory.mktemp("whole")
            made[key] = (train(config, workdir, task=task), workdir)
        return made[key]

    return get


def test_a_run_leaves_its_files_and_its_result(fake_task, run_config, recorder, tmp_path, rows_of):
    result = train(run_config(), tmp_path, task=fake_task(), progress=recorder)
    assert {path.name for path in tmp_path.iterdir()} == {
        "checkpoints",
        "config.json",
        "curves.png",
        "metrics.jsonl",
        "result.json",
        "tensorboard",
        "versions.json",
    }
    assert result.steps == 12
    assert result.metrics["count"] == 50
    assert json.loads((tmp_path / "result.json").read_text()) == result.to_dict()
    kinds = [(row["step"], row["kind"]) for row in rows_of(tmp_path)]
    assert kinds == [
        (5, "train"),
        (6, "eval"),
        (10, "train"),
        (12, "train"),
        (12, "eval"),
        (12, "final"),
    ]
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 12
    assert any(line.startswith("result steps=12") for line in recorder.lines)
    assert {12, result.best_step} <= set(steps_kept(tmp_path))


def test_training_learns(fake_task, run_config, tmp_path):
    config = run_config(steps=60, log_every=60, eval_every=60, schedule=run_config().schedule)
    assert train(config, tmp_path, task=fake_task()).metrics["accuracy"] > 0.5


# Before the first checkpoint, inside a log window, right at a checkpoint, on the last step.
@pytest.mark.parametrize("stop", [3, 7, 8, 11])
def test_a_stopped_and_resumed_run_ends_with_the_same_bits(
    fake_task, run_config, whole_run, tmp_path, stop, assert_same_run
):
    whole_result, whole = whole_run(fake_task(), run_config())
    with pytest.raises(RuntimeError, match="stopped by the test"):
        train(run_config(), tmp_path, task=fake_task(fail_at=stop))
    assert not (tmp_path / "result.json").exists()
    result = train(run_config(), tmp_path, task=fake_task())
    assert_same_run(whole, tmp_path)
    assert result.best_step == whole_result.best_step
    assert steps_kept(tmp_path) == steps_kept(whole)


@pytest.mark.slow
def test_the_same_holds_on_a_sharded_mesh(
    fake_task, run_config, whole_run, tmp_path, assert_same_run
):
    config = run_config(mesh=MeshConfig(data=2, fsdp=4))
    _, whole = whole_run(fake_task(width=1024), config)
    with pytest.raises(RuntimeError):
        train(config, tmp_path, task=fake_task(width=1024, fail_at=6))
    train(config, tmp_path, task=fake_task(width=1024))
    assert_same_run(whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "fsdp"), [(8, 1), (2, 4), (1, 8)])
def test_every_mesh_gives_the_curve_of_one_device(
    fake_task, run_config, whole_run, tmp_path, data, fsdp, rows_of
):
    one = train(run_config(), tmp_path / "one", task=fake_task(width=1024))
    config = run_config(mesh=MeshConfig(data=data, fsdp=fsdp))
    result, workdir = whole_run(fake_task(width=1024), config)
    assert result.metrics["loss"] == pytest.approx(one.metrics["loss"], rel=1e-4)
    for expected, found in zip(rows_of(tmp_path / "one"), rows_of(workdir), strict=True):
        assert found.pop("kind") == expected.pop("kind")
        assert found == pytest.approx(expected, rel=1e-3)


def test_a_finished_run_says_so_and_gives_its_result(fake_task, run_config, recorder, tmp_path):
    first = train(run_config(), tmp_path, task=fake_task())
    before = (tmp_path / "metrics.jsonl").read_bytes()
    again = train(run_config(), tmp_path, task=fake_task(fail_at=0), progress=recorder)
    assert again == first
    assert "already complete at step 12" in recorder.lines
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_changed_config_is_shown_and_recorded(fake_task, run_config, recorder, tmp_path, rows_of):
    train(run_config(), tmp_path, task=fake_task())
    config = run_config(steps=16, log_every=4)
    result = train(config, tmp_path, task=fake_task(), progress=recorder)
    assert result.steps == 16
    changes = ["steps: 12 -> 16", "log_every: 5 -> 4"]
    assert [f"config changed: {change}" for change in changes] == [
        line for line in recorder.lines if line.startswith("config changed")
    ]
    assert {"step": 12, "kind": "config", "changes": changes} in rows_of(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 16


@pytest.mark.parametrize(
    ("width", "fields", "reason"),
    [
        (32, {}, "params/dense/bias is float32[64] there, float32[32] in this run"),
        (64, {"ema_decay": 0.0}, "(ema_decay: 0.9 -> 0.0)"),
        (
            64,
            {"optimizer": OptimizerConfig(name="sgd", accumulate=2)},
            "optimizer.name: adamw -> sgd",
        ),
    ],
)
def test_another_runs_checkpoint_is_refused_and_left_alone(
    fake_task, run_config, stopped_run, width, fields, reason
):
    before = {path: path.read_bytes() for path in stopped_run.iterdir() if path.is_file()}
    with pytest.raises(UserError) as error:
        train(run_config(**fields), stopped_run, task=fake_task(width=width))
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
    after = {path: path.read_bytes() for path in stopped_run.iterdir() if path.is_file()}
    assert before == after


def test_fewer_steps_than_saved_are_refused(fake_task, run_config, stopped_run):
    with pytest.raises(UserError, match=r"config.steps = 2: .* already holds step 8"):
        train(run_config(steps=2), stopped_run, task=fake_task())


@pytest.fixture
def stopped_run(fake_task, run_config, tmp_path):
    """A workdir whose run stopped after step 8."""
    with pytest.raises(RuntimeError):
        train(run_config(), tmp_path, task=fake_task(fail_at=8))
    return tmp_path


def test_an_unusable_workdir_is_named(fake_task, run_config, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="file: File exists; give a directory"):
        train(run_config(), tmp_path / "file", task=fake_task())


def test_a_relative_workdir_works(fake_task, run_config, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train(run_config(steps=2), "runs/a", task=fake_task())
    assert result.workdir == str(tmp_path / "runs/a")
    assert steps_kept(tmp_path / "runs/a") == [2]


@pytest.mark.parametrize(("spoil_at", "good"), [(9, 8), (8, 8), (1, None)])
def test_nan_stops_the_run_and_keeps_the_last_good_checkpoint(
    fake_task, run_config, tmp_path, spoil_at, good, rows_of, saved_arrays
):
    task = fake_task(spoil_at=spoil_at)
    with pytest.raises(NonFiniteError) as error:
        train(run_config(), tmp_path, task=task)
    message = str(error.value)
    assert message.startswith(f"loss became NaN at step {spoil_at + 1}; ")
    assert (f"last good checkpoint: step {good}" if good else "no checkpoint yet") in message
    assert "\n" not in message
    assert not (tmp_path / "result.json").exists()
    assert max(steps_kept(tmp_path), default=None) == good
    assert rows_of(tmp_path)[-1]["kind"] == "failed"
    assert rows_of(tmp_path)[-1]["step"] == spoil_at + 1
    if good:
        assert all(np.all(np.isfinite(array)) for array in saved_arrays(tmp_path).values())


def test_an_evaluation_that_is_not_finite_stops_the_run(fake_task, run_config, tmp_path):
    task = fake_task()
    sums = task.evaluate
    task.evaluate = lambda *args: {**sums(*args), "loss": jnp.float32(jnp.nan)}
    with pytest.raises(NonFiniteError, match="evaluation loss became NaN at step 6"):
        train(run_config(), tmp_path, task=task)
    assert steps_kept(tmp_path) == [4]


def test_control_c_closes_everything_and_says_where_it_resumes(
    fake_task, run_config, recorder, tmp_path
):
    task = fake_task(fail_at=9, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(run_config(), tmp_path, task=task, progress=recorder)
    assert recorder.lines[-1] == f"stopped at step 9; --workdir {tmp_path} goes on from step 8"
    assert max(steps_kept(tmp_path)) == 8
    assert not [path for path in tmp_path.rglob("*") if "tmp" in path.name]


class Signals(Silent):
    """Sends this process a signal when a step is done."""

    def __init__(self, number, step):
        super().__init__()
        self.number, self.step = number, step

    def advance(self, step):
        if step == self.step:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_it_and_gives_the_handlers_back(
    fake_task, run_config, whole_run, tmp_path, number, assert_same_run
):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        train(run_config(), tmp_path, task=fake_task(), progress=Signals(number, 7))
    assert max(steps_kept(tmp_path)) == 7
    assert signal.getsignal(number) is before
    _, whole = whole_run(fake_task(), run_config())
    train(run_config(), tmp_path, task=fake_task())
    assert_same_run(whole, tmp_path)


def test_a_run_is_not_continued_under_another_seed(fake_task, run_config, stopped_run):
    with pytest.raises(UserError, match=r"config.seed: 0 -> 1: .* began with the former; use"):
        train(run_config(seed=1), stopped_run, task=fake_task())


def test_clipping_may_be_switched_on_in_a_resumed_run(fake_task, run_config, stopped_run):
    optimizer = dataclasses.replace(run_config().optimizer, clip_norm=1.0)
    result = train(run_config(optimizer=optimizer), stopped_run, task=fake_task())
    assert result.steps == 12


def test_a_damaged_checkpoint_is_named_with_what_to_do(fake_task, run_config, stopped_run):
    for file in (stopped_run / "checkpoints/8/state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(UserError, match=r"checkpoints/8: cannot be read .* go on from step 6"):
        train(run_config(), stopped_run, task=fake_task())


@pytest.mark.parametrize("name", ["checkpoints", "tensorboard", "metrics.jsonl"])
def test_a_workdir_with_something_else_in_a_runs_place_is_named(
    fake_task, run_config, tmp_path, name
):
    if name == "metrics.jsonl":
        (tmp_path / name).mkdir()
    else:
        (tmp_path / name).write_text("")
    with pytest.raises(UserError, match=f"{name}: is not the .* use another workdir"):
        train(run_config(), tmp_path, task=fake_task())


def test_a_finished_run_without_checkpoints_is_not_overwritten(fake_task, run_config, tmp_path):
    train(run_config(steps=2), tmp_path, task=fake_task())
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(UserError, match="a finished run without checkpoints"):
        train(run_config(steps=2), tmp_path, task=fake_task())


def test_a_warm_up_as_long_as_the_run_is_pointed_out(fake_task, run_config, recorder, tmp_path):
    config = run_config(steps=2, schedule=ScheduleConfig(warmup_steps=2))
    train(config, tmp_path, task=fake_task(), progress=recorder)
    assert any("the learning rate never reaches its peak" in line for line in recorder.lines)


@pytest.mark.parametrize("fault", [{"fail_at": 7}, {"spoil_at": 7}, {}])
def test_every_iterator_is_closed(fake_task, run_config, tmp_path, fault):
    task, opened = fake_task(**fault), []

    def remember(make):
        def remembering(*args):
            opened.append(make(*args))
            return opened[-1]

        return remembering

    task.train_batches = remember(task.train_batches)
    task.eval_batches = remember(task.eval_batches)
    with contextlib.suppress(RuntimeError, NonFiniteError):
        train(run_config(steps=8), tmp_path, task=task)
    assert len(opened) >= 2
    assert all(batches.closed for batches in opened)


def test_the_best_step_is_kept_however_early(fake_task, run_config, tmp_path):
    task = fake_task()
    values = iter([0.1, 0.9, 0.2, 0.3, 0.1, 0.1])
    batches = task.eval_batches
    task.eval_batches = lambda: [{**next(batches()), "value": np.full(16, next(values))}]
    task.eval_batches = _with_corrupt(task.eval_batches)
    task.evaluate = lambda params, collections, batch: {
        "accuracy": jnp.sum(batch["value"]),
        "loss": jnp.zeros(()),
        "count": jnp.float32(16.0),
    }
    config = run_config(eval_every=2, checkpoint=CheckpointConfig(every=100, keep=1))
    result = train(config, tmp_path, task=task)
    assert (result.best_step, result.best_value) == (4, pytest.approx(0.9))
    assert steps_kept(tmp_path) == [4, 12]


def test_unreadable_examples_are_reported_when_their_number_grows(
    fake_task, run_config, recorder, tmp_path
):
    task = fake_task()
    batches = task.train_batches(0)
    batches.corrupt.count, batches.corrupt.names = 3, ["a.png: truncated"]
    task.train_batches = lambda start: batches
    result = train(run_config(), tmp_path, task=task, progress=recorder)
    warnings = [line for line in recorder.lines if line.startswith("warning")]
    assert warnings == [
        "warning: 3 unreadable training examples left out, such as a.png: truncated"
    ]
    assert result.corrupt == 3


def test_epochs_count_where_steps_are_not_given(fake_task, run_config, tmp_path):
    result = train(run_config(steps=0, epochs=0.5), tmp_path, task=fake_task())
    assert result.steps == 4  # half of 100 examples, 16 at a time


def test_an_evaluation_split_without_examples_is_named(fake_task, run_config, tmp_path):
    task = fake_task()
    task.eval_batches = _with_corrupt(list)
    with pytest.raises(UserError, match=r"config.data.eval_split: has no readable example"):
        train(run_config(steps=1), tmp_path, task=task)


def _with_corrupt(make):
    class Listed(list):
        corrupt = types.SimpleNamespace(count=0, names=[])

        def close(self):
            pass

    return lambda: Listed(make())
