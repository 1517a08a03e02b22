import contextlib
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.config import MeshConfig, ProbeConfig
from condinit_jax.errors import UserError
from condinit_jax.spectra import condition_number
from condinit_jax.training import NonFiniteError, probing, sharding, train
from condinit_jax.training.checkpoints import Checkpoints
from condinit_jax.training.files import read_rows
from condinit_jax.training.probing import first_examples
from condinit_jax.training.state import INIT_KEY

EVERY = ProbeConfig(every=5, heads=0, examples=2)
PLACES = [(head, example) for example in range(2) for head in range(2)]


@pytest.fixture
def probed_config(run_config):
    return functools.partial(run_config, probe=EVERY)


@pytest.fixture(scope="module")
def probed_run(tmp_path_factory):
    """An uninterrupted run with probes, made once."""
    made = []

    def get(task, config):
        if not made:
            made.append(tmp_path_factory.mktemp("probed"))
            train(config, made[0], task=task)
        return made[0]

    return get


def probes_of(workdir):
    return [row for row in read_rows(workdir / "metrics.jsonl") if row["kind"] == "probe"]


def test_probes_come_before_the_first_step_every_n_steps_and_after_the_last(
    attentive_task, probed_config, probed_run
):
    rows = probes_of(probed_run(attentive_task(), probed_config()))
    assert [row["step"] for row in rows] == [step for step in (0, 5, 10, 12) for _ in PLACES]
    assert [(row["head"], row["example"]) for row in rows[:4]] == PLACES


def test_a_row_says_all_that_its_condition_number_rests_on(
    attentive_task, probed_config, probed_run
):
    for row in probes_of(probed_run(attentive_task(), probed_config())):
        assert row["kappa"] == pytest.approx(row["sigma_max"] / row["sigma_min"])
        assert (row["layer"], row["tokens"], row["size"], row["dtype"]) == (0, 4, 16, "float64")
        assert row["rank"] + row["dropped"] == row["size"]
        assert 0 < row["rtol"] < 1e-9
        assert 0 <= row["error"] < 1e-3
        assert {"path", "method", "converged", "warning"} <= row.keys()
        assert not {"run"} & row.keys()


def test_the_figure_before_the_first_step_is_that_of_the_first_examples_and_parameters(
    attentive_task, probed_config, probed_run
):
    rows = probes_of(probed_run(attentive_task(), probed_config()))[:4]
    task = attentive_task()
    key = jax.random.fold_in(jax.random.key(0), INIT_KEY)
    block = jax.device_get(jax.jit(task.init)(key))["params"]["attention"]
    points = next(task.eval_batches())["x"].reshape(-1, 4, 8)
    with jax.enable_x64(True):
        for row, (head, example) in zip(rows, PLACES, strict=True):
            kernels = [
                np.float64(block[role]["kernel"][:, head]) for role in ("query", "key", "value")
            ]
            tokens = np.float64(points[example])

            def output(kernels, tokens=tokens):
                query, key, value = (tokens @ kernel for kernel in kernels)
                return jax.nn.softmax(query @ key.T / 2.0) @ value

            parts = jax.jacfwd(output)([jnp.asarray(kernel) for kernel in kernels])
            jacobian = np.concatenate([part.reshape(16, -1) for part in parts], axis=1)
            expected = condition_number(jacobian)
            assert row["kappa"] == pytest.approx(expected.kappa, rel=1e-6)
            assert row["rank"] == expected.rank


def test_a_run_ends_with_the_same_bits_with_and_without_probes(
    attentive_task, probed_config, probed_run, run_config, tmp_path, rows_of, saved_arrays
):
    probed = probed_run(attentive_task(), probed_config())
    train(run_config(), tmp_path, task=attentive_task())
    assert rows_of(tmp_path) == [row for row in rows_of(probed) if row["kind"] != "probe"]
    expected, found = saved_arrays(tmp_path), saved_arrays(probed)
    assert expected.keys() == found.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(array, found[name], err_msg=name)


# Before the first checkpoint, at a probe, after one and before its checkpoint, on the last step.
@pytest.mark.slow
@pytest.mark.parametrize("stop", [3, 5, 7, 11])
def test_a_resumed_run_has_each_probe_once_and_with_the_same_bits(
    attentive_task, probed_config, probed_run, tmp_path, assert_same_run, stop
):
    with pytest.raises(RuntimeError, match="stopped by the test"):
        train(probed_config(), tmp_path, task=attentive_task(fail_at=stop))
    train(probed_config(), tmp_path, task=attentive_task())
    assert_same_run(probed_run(attentive_task(), probed_config()), tmp_path)


def test_a_run_that_ends_earlier_than_planned_is_probed_at_its_end(
    attentive_task, probed_config, tmp_path
):
    with pytest.raises(RuntimeError):
        train(probed_config(steps=16), tmp_path, task=attentive_task(fail_at=8))
    train(probed_config(steps=8), tmp_path, task=attentive_task())
    assert [row["step"] for row in probes_of(tmp_path)] == [s for s in (0, 5, 8) for _ in PLACES]


@pytest.mark.slow
def test_sharded_parameters_give_the_figures_of_whole_ones(
    attentive_task, probed_config, probed_run, tmp_path, monkeypatch
):
    monkeypatch.setattr(sharding, "SMALLEST_SPLIT", 1)
    train(probed_config(mesh=MeshConfig(data=2, fsdp=4)), tmp_path, task=attentive_task())
    expected = probes_of(probed_run(attentive_task(), probed_config()))
    for one, other in zip(expected, probes_of(tmp_path), strict=True):
        # Training rounds differently on another mesh; the first probe is before any.
        assert other["kappa"] == pytest.approx(one["kappa"], rel=1e-2 if one["step"] else 1e-6)
        assert other["rank"] == one["rank"]


def test_a_person_reads_a_line_per_probe_and_what_they_took(
    attentive_task, probed_config, recorder, tmp_path
):
    result = train(probed_config(), tmp_path, task=attentive_task(), progress=recorder)
    lines = recorder.starting("probe")
    assert [line.split()[1] for line in lines] == [f"step={step}/12" for step in (0, 5, 10, 12)]
    assert all(" kappa=" in line and " took=" in line for line in lines)
    assert " probes=" in recorder.starting("result")[0]
    (final,) = (row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "final")
    assert 0 < final["probe_seconds"] == result.probe_seconds < result.seconds


def test_probes_are_not_counted_as_training(attentive_task, probed_config, probed_run):
    workdir = probed_run(attentive_task(), probed_config())
    checkpoints = Checkpoints(workdir / "checkpoints", 2)
    record = checkpoints.record(12)
    checkpoints.close()
    clock = record["clock"]
    assert record["probe"]["step"] == 12
    assert clock["seconds"] - clock["training"] > record["probe"]["seconds"] > 0


def test_a_task_without_attention_is_warned_about_once_and_trained(
    fake_task, run_config, recorder, tmp_path
):
    train(run_config(probe=ProbeConfig()), tmp_path, task=fake_task(), progress=recorder)
    assert recorder.starting("warning: no probe", "probe") == [
        "warning: no probe of attention's Jacobian: fake task: has no attention block"
    ]
    assert probes_of(tmp_path) == []


def test_a_task_without_attention_is_an_error_where_probes_were_asked_for(
    fake_task, probed_config, tmp_path
):
    with pytest.raises(UserError) as error:
        train(probed_config(), tmp_path, task=fake_task())
    assert str(error.value) == (
        "config.probe: fake task: has no attention block; set config.probe.every = 0 to train "
        "without"
    )
    assert not [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "train"]


@pytest.fixture
def failing(monkeypatch):
    """Spectra that fail from the given call on."""

    def fail_from(first, error):
        calls, real = [], probing.probe_blocks

        def fake(*args, **options):
            calls.append(None)
            if len(calls) >= first:
                raise error
            return real(*args, **options)

        monkeypatch.setattr(probing, "probe_blocks", fake)

    return fail_from


@pytest.mark.slow
@pytest.mark.parametrize(
    "error", [UserError("layer 0: bad\ntokens"), np.linalg.LinAlgError("no"), MemoryError()]
)
def test_a_probe_that_fails_in_the_middle_does_not_end_the_run(
    attentive_task, probed_config, recorder, tmp_path, failing, error
):
    failing(2, error)
    result = train(probed_config(), tmp_path, task=attentive_task(), progress=recorder)
    assert result.steps == 12
    assert len(recorder.starting("warning: no probe")) == 1
    assert "\n" not in recorder.starting("warning: no probe")[0]
    assert {row["step"] for row in probes_of(tmp_path)} == {0}


def test_a_probe_that_fails_before_the_first_step_ends_the_run_that_asked_for_it(
    attentive_task, probed_config, tmp_path, failing
):
    failing(1, UserError("memory: too small for layer 0"))
    with pytest.raises(UserError, match=r"config.probe: memory: too small for layer 0; set "):
        train(probed_config(), tmp_path, task=attentive_task())


def test_a_loss_that_became_nan_is_found_before_it_is_probed(
    attentive_task, run_config, recorder, tmp_path
):
    config = run_config(probe=ProbeConfig(every=1))
    with pytest.raises(NonFiniteError, match="NaN at step 4"):
        train(config, tmp_path, task=attentive_task(spoil_at=3), progress=recorder)
    assert not recorder.starting("warning: no probe")


def test_probes_that_take_long_are_pointed_out_once(
    attentive_task, probed_config, recorder, tmp_path, monkeypatch
):
    monkeypatch.setattr(probing, "MUCH", 0.0)
    monkeypatch.setattr(probing, "LONG", 0.0)
    train(probed_config(), tmp_path, task=attentive_task(), progress=recorder)
    (line,) = recorder.starting("warning: this probe took")
    assert "raise config.probe.every or lower config.probe.layers" in line


def test_quantities_and_rows_are_what_the_config_says(attentive_task, run_config, tmp_path):
    probe = ProbeConfig(every=100, tokens=3, quantities=("kernels",))
    train(run_config(steps=1, probe=probe), tmp_path, task=attentive_task())
    first, _ = probes_of(tmp_path)
    assert (first["head"], first["tokens"], first["size"], first["kappa"]) == (0, 3, None, None)
    assert first["kappa_query"] > 1


@pytest.mark.parametrize(("tokens", "threads"), [(None, None), (64, 1), (65, None), (10_000, None)])
def test_small_matrices_are_decomposed_by_one_thread(monkeypatch, tokens, threads):
    given = []

    def limits(number, user_api):
        given.append((number, user_api))
        return contextlib.nullcontext()

    monkeypatch.setattr(probing, "threadpool_limits", limits)
    block = types.SimpleNamespace(
        tokens=np.zeros((1, 100, 8)),
        kernels=types.SimpleNamespace(value=np.zeros((8, 2, 16))),
    )
    with probing.suitable_threads([block], tokens):
        assert given == [(threads, "blas")]


class Listed(list):
    corrupt = types.SimpleNamespace(count=0, names=[])

    def close(self):
        self.closed = True


def batch(values, mask):
    return {"x": np.float32(values), "mask": np.float32(mask)}


@pytest.mark.parametrize(
    ("count", "found"), [(1, [2]), (2, [2, 4]), (3, [2, 4, 5]), (9, [2, 4, 5])]
)
def test_the_examples_are_the_first_readable_ones(count, found):
    batches = Listed([batch([1, 2, 3], [0, 1, 0]), batch([4, 5, 6], [1, 1, 0])])
    task = types.SimpleNamespace(eval_batches=lambda: batches)
    assert first_examples(task, count)["x"].tolist() == found
    assert batches.closed


def test_a_split_without_a_readable_example_is_named():
    task = types.SimpleNamespace(eval_batches=lambda: Listed([batch([1], [0])]))
    with pytest.raises(UserError, match=r"config.data.eval_split: has no readable example"):
        first_examples(task, 1)
