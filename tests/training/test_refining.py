import json
import math

import jax
import numpy as np
import pytest

from condinit_jax.config import MeshConfig, OptimizerConfig
from condinit_jax.errors import UserError
from condinit_jax.training import loop, train
from condinit_jax.training.progress import PlainProgress
from condinit_jax.training.refining import refiner_of, summary
from condinit_jax.training.scale_plot import draw_scales

REFINE = {
    "gradinit": {"name": "gradinit", "steps": 10, "lr": 0.02},
    "nio": {"name": "nio", "steps": 10},
}


@pytest.fixture
def refined_config(run_config):
    def make(name="gradinit", refine=(), **fields):
        init = {"method": "default", "refine": {**REFINE[name], **dict(refine)}}
        return run_config(init=init, **fields)

    return make


@pytest.fixture
def refined_params(monkeypatch):
    """The states that refinements end with, as NumPy."""
    states, original = [], loop.refine_state

    def remember(*args, **kwargs):
        state = original(*args, **kwargs)
        states.append(jax.device_get(state))
        return state

    monkeypatch.setattr(loop, "refine_state", remember)
    return states


@pytest.mark.slow
@pytest.mark.parametrize("name", REFINE)
def test_training_sees_what_it_would_see_had_the_model_drawn_the_refined_parameters(
    fake_task, run_config, refined_config, refined_params, assert_same_run, rows_of, tmp_path, name
):
    train(refined_config(name), tmp_path / "refined", task=fake_task())
    (state,) = refined_params
    task = fake_task()
    original = task.init
    task.init = lambda key: {
        **original(key),
        "params": jax.tree.map(jax.numpy.asarray, state.params),
    }
    train(run_config(), tmp_path / "drawn", task=task)
    rows = rows_of(tmp_path / "refined")
    assert len([row for row in rows if row["kind"] == "refine"]) == 10
    kept = [row for row in rows if row["kind"] != "refine"]
    (tmp_path / "refined/metrics.jsonl").write_text("\n".join(map(json.dumps, kept)))
    assert_same_run(tmp_path / "drawn", tmp_path / "refined")


def test_optimizer_and_average_begin_at_the_refined_parameters(
    fake_task, refined_config, refined_params, tmp_path
):
    train(refined_config(steps=1), tmp_path, task=fake_task())
    (state,) = refined_params
    jax.tree.map(np.testing.assert_array_equal, state.ema, state.params)
    assert int(state.step) == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.opt_state))
    drawn = jax.jit(fake_task().init)(jax.random.fold_in(jax.random.key(0), 0))["params"]
    scales = json.loads((tmp_path / "refine.json").read_text())["scales"]
    assert set(scales) == {"dense/kernel", "head/kernel"}  # the bias is 0
    for module in ("dense", "head"):
        expected = np.asarray(drawn[module]["kernel"]) * np.float32(scales[f"{module}/kernel"])
        np.testing.assert_array_equal(state.params[module]["kernel"], expected)
    assert abs(scales["head/kernel"] - 1) > 0.01


@pytest.mark.parametrize("stop", [3, 11])
def test_a_refined_run_that_was_stopped_and_resumed_ends_with_the_same_bits(
    fake_task, refined_config, refined_params, assert_same_run, tmp_path, stop
):
    train(refined_config(), tmp_path / "whole", task=fake_task())
    # The refinement reads 20 batches of its own: training fails, not it.
    task, opened = fake_task(), []
    batches = task.train_batches

    def failing(start):
        opened.append(start)
        task.faults["fail_at"] = stop if len(opened) == 2 else None
        return batches(start)

    task.train_batches = failing
    with pytest.raises(RuntimeError, match="stopped by the test"):
        train(refined_config(), tmp_path / "resumed", task=task)
    train(refined_config(), tmp_path / "resumed", task=fake_task())
    assert_same_run(tmp_path / "whole", tmp_path / "resumed")
    # Anew where no checkpoint was written, not again where there was one.
    assert len(refined_params) == (3 if stop < 4 else 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "data", "fsdp"),
    [
        pytest.param("gradinit", 8, 1, marks=pytest.mark.slow),
        ("gradinit", 2, 4),
        pytest.param("nio", 8, 1, marks=pytest.mark.slow),
    ],
)
def test_a_mesh_finds_the_scales_of_one_device_and_keeps_the_shardings(
    fake_task, refined_config, monkeypatch, tmp_path, name, data, fsdp
):
    found, shardings, original = [], [], loop.refine_state

    def remember(state, *args, **kwargs):
        before = jax.tree.map(lambda leaf: leaf.sharding, state)
        state = original(state, *args, **kwargs)
        shardings.append((before, jax.tree.map(lambda leaf: leaf.sharding, state)))
        return state

    monkeypatch.setattr(loop, "refine_state", remember)
    for place, mesh in enumerate((MeshConfig(data=1), MeshConfig(data=data, fsdp=fsdp))):
        config = refined_config(name, mesh=mesh, steps=1)
        train(config, tmp_path / str(place), task=fake_task(width=1024))
        record = json.loads((tmp_path / str(place) / "refine.json").read_text())
        found.append(record["scales"])
    assert found[1] == pytest.approx(found[0], rel=1e-3)
    before, after = shardings[1]
    assert before == after
    split = any(not leaf.is_fully_replicated for leaf in jax.tree.leaves(after.params))
    assert split == (fsdp > 1)


def test_a_refinement_says_in_a_few_lines_what_it_does(fake_task, refined_config, tmp_path, capsys):
    config = refined_config(refine={"steps": 40}, steps=1)
    train(config, tmp_path, task=fake_task(), progress=PlainProgress())
    lines = capsys.readouterr().out.splitlines()
    figures = [line for line in lines if line.startswith("refine step=")]
    assert 5 <= len(figures) <= 12
    assert " left=0:0" in figures[3]
    (line,) = [line for line in lines if line.startswith("gradinit: 40 steps in")]
    assert "largest change" in line
    assert (tmp_path / "refine.png").stat().st_size > 1000


def test_a_refinement_that_meets_nan_ends_the_run_with_the_field_to_change(
    fake_task, refined_config, tmp_path, rows_of
):
    with pytest.raises(UserError) as error:
        train(refined_config(), tmp_path, task=fake_task(spoil_at=4))
    assert str(error.value) == (
        "gradinit: loss is NaN at its step 3; lower config.init.refine.lr or config.init.refine.eta"
    )
    assert rows_of(tmp_path)[-1]["kind"] == "failed"
    with pytest.raises(UserError, match=r"loss is NaN at its step 1; so it is in the drawn netw"):
        train(refined_config(), tmp_path, task=fake_task(spoil_at=0))


def test_a_last_step_that_makes_a_scale_nan_ends_the_run(fake_task, refined_config, tmp_path):
    task = fake_task()
    original = task.loss

    def loss(params, *rest):
        value, aux = original(params, *rest)
        # Value and slope are 0; the second derivative, which the scales take, is NaN.
        return value + jax.numpy.sum(jax.numpy.abs(0.0 * params["head"]["kernel"]) ** 1.5), aux

    task.loss = loss
    refine = {"rule": "sgd", "gamma": 1e9, "steps": 1}
    with pytest.raises(UserError, match=r"^gradinit: scale of head/kernel is NaN at its step 1; "):
        train(refined_config(refine=refine), tmp_path, task=task)


def test_control_c_leaves_a_workdir_that_begins_anew(
    fake_task, refined_config, recorder, tmp_path, rows_of
):
    task = fake_task(fail_at=7, error=KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        train(refined_config(), tmp_path, task=task, progress=recorder)
    assert recorder.lines[-1].startswith("stopped during gradinit; nothing is saved yet")
    assert not (tmp_path / "refine.json").exists()
    assert not [path for path in tmp_path.rglob("*") if "tmp" in path.name]
    train(refined_config(), tmp_path, task=fake_task())
    steps = [row["refine_step"] for row in rows_of(tmp_path) if row["kind"] == "refine"]
    assert steps == list(range(1, 11))


def test_a_run_without_a_refinement_removes_the_record_of_one_before(
    fake_task, refined_config, run_config, tmp_path
):
    with pytest.raises(RuntimeError):
        train(refined_config(), tmp_path, task=_failing_in_training(fake_task))
    assert (tmp_path / "refine.json").exists()
    train(run_config(), tmp_path, task=fake_task())
    assert not (tmp_path / "refine.json").exists()
    assert not (tmp_path / "refine.png").exists()


def _failing_in_training(fake_task):
    task = fake_task()
    batches, opened = task.train_batches, []

    def failing(start):
        opened.append(start)
        task.faults["fail_at"] = 1 if len(opened) == 2 else None
        return batches(start)

    task.train_batches = failing
    return task


def test_a_run_is_not_continued_with_another_refinement(
    fake_task, run_config, refined_config, tmp_path
):
    train(run_config(steps=4), tmp_path, task=fake_task())
    with pytest.raises(UserError, match=r"config.init.refine.name: \(absent\) -> gradinit: "):
        train(refined_config(), tmp_path, task=fake_task())


def test_a_run_from_before_refinements_goes_on(fake_task, run_config, tmp_path):
    train(run_config(steps=4), tmp_path, task=fake_task())
    later = run_config(init={"method": "default", "refine": {"name": "none"}})
    assert train(later, tmp_path, task=fake_task()).steps == 12


@pytest.mark.slow
@pytest.mark.parametrize(("optimizer", "norm"), [("adamw", "l1"), ("lamb", "l1"), ("sgd", "l2")])
def test_the_rule_follows_the_runs_optimizer(
    fake_task, refined_config, tmp_path, rows_of, optimizer, norm
):
    config = refined_config(
        refine={"steps": 1, "gamma": 1e9}, optimizer=OptimizerConfig(name=optimizer), steps=1
    )
    assert refiner_of(config).name == "gradinit"
    train(config, tmp_path, task=fake_task())
    (row,) = [row for row in rows_of(tmp_path) if row["kind"] == "refine"]
    # Of some 2,300 numbers the l1 norm is many times the l2 norm.
    assert (row["grad_norm"] > 5) == (norm == "l1")


def test_the_summary_names_the_layer_that_moved_most():
    row = {"loss": 2.0, "constraint": True}
    text = summary("nio", [row], {"a/kernel": [1.0, 0.25], "b": 3.0}, 1.0)
    assert text.endswith("scales 0.25 to 3, largest change a/kernel layer 1 x 0.25")
    assert "(1 on the norm)" in text
    assert summary("nio", [row], {"bias": 0.0, "b": 3.0}, 1.0).endswith("bias x 0")


def test_the_picture_has_a_curve_per_stacked_tensor_and_draws_a_scale_of_zero():
    figure = draw_scales({"a/kernel": [1.0, 0.0], "b/kernel": [2.0, 3.0], "c": 0.5}, "title")
    left, right = figure.axes
    curves = {line.get_label(): list(line.get_ydata()) for line in left.lines}
    assert curves["b/kernel"] == [2.0, 3.0]
    assert curves["a/kernel"][1] > 0
    assert [label.get_text() for label in right.get_xticklabels()] == ["c"]
    assert all(math.isfinite(y) for axes in figure.axes for y in axes.get_ylim())
