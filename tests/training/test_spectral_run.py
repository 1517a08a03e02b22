"""Runs whose forward pass adds constants: kept in the state, and out of what is trained."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import config as configs
from condinit_jax import methods, tasks, with_offsets
from condinit_jax.probe import probe_run
from condinit_jax.training import Silent, train
from condinit_jax.training.files import read_rows

ROLES = ("query", "key", "value")

RECIPE = {
    "steps": 4,
    "log_every": 1,
    "eval_every": 2,
    "batch_size": 8,
    "ema_decay": 0.5,
    "data": {"train_split": "train[:64]", "eval_split": "test[:32]"},
    "model": {"name": "vit", "patch_size": 7, "width": 32, "depth": 2, "num_heads": 2},
    "optimizer": {"weight_decay": 0.1},
    "schedule": {"warmup_steps": 1},
    "checkpoint": {"every": 2, "keep": 5},
    "probe": {"every": 0},
    "mesh": {"data": 1},
}


def run_config(init, **fields):
    return configs.parse({**RECIPE, "init": init, **fields})


def losses(workdir):
    return [
        {name: row[name] for name in ("step", "kind", "loss", "accuracy")}
        for row in read_rows(workdir / "metrics.jsonl")
        if row["kind"] in ("train", "eval")
    ]


class Stops(Silent):
    """Presses Ctrl-C after a step."""

    def advance(self, step):
        if step == 3:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def spectral_run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("spectral")
    train(run_config({"method": "spectral"}), workdir, progress=Silent())
    return workdir


def constants(arrays):
    return {name: array for name, array in arrays.items() if "'offsets'" in name}


@pytest.mark.slow
def test_a_resumed_run_ends_with_the_same_bits_and_the_same_constants(
    spectral_run, tmp_path, assert_same_run, saved_arrays
):
    with pytest.raises(KeyboardInterrupt):
        train(run_config({"method": "spectral"}), tmp_path, progress=Stops())
    train(run_config({"method": "spectral"}), tmp_path, progress=Silent())
    assert_same_run(spectral_run, tmp_path, parts=("ema", "opt_state", "params", "offsets"))
    kept = constants(saved_arrays(tmp_path))
    assert len(kept) == 3
    for array in kept.values():
        expected = np.broadcast_to(10 * np.eye(32, 16)[None, :, None], (2, 32, 2, 16))
        np.testing.assert_array_equal(array, expected)


def test_the_constants_have_no_moments_and_no_average(spectral_run, tmp_path, saved_arrays):
    """Everything else in the state has the names that it has without them."""
    train(run_config({"method": "default"}), tmp_path, progress=Silent())
    found, plain = saved_arrays(spectral_run), saved_arrays(tmp_path)
    assert set(found) - set(plain) == set(constants(found))
    for name, array in plain.items():
        assert array.shape == found[name].shape


def test_a_scale_of_zero_trains_as_the_baseline(tmp_path):
    for method in ({"method": "default"}, {"method": "spectral", "scale": 0.0}):
        train(run_config(method), tmp_path / method["method"], progress=Silent())
    assert losses(tmp_path / "default") == losses(tmp_path / "spectral")


@pytest.mark.slow
def test_a_sharded_run_has_the_curve_of_one_device(tmp_path, saved_arrays):
    model = {**RECIPE["model"], "width": 128}  # smaller leaves would stay whole
    for name, mesh in (("one", {"data": 1}), ("many", {"data": 2, "fsdp": 4})):
        config = run_config({"method": "spectral"}, steps=2, model=model, mesh=mesh)
        train(config, tmp_path / name, progress=Silent())
    for expected, found in zip(losses(tmp_path / "one"), losses(tmp_path / "many"), strict=True):
        assert found.pop("kind") == expected.pop("kind")
        assert found == pytest.approx(expected, rel=1e-3)
    one, many = (constants(saved_arrays(tmp_path / name)) for name in ("one", "many"))
    assert len(one) == 3
    for name, array in one.items():
        np.testing.assert_array_equal(array, many[name])


def test_probes_of_a_checkpoint_see_the_kernels_that_the_forward_pass_uses(spectral_run):
    rows = probe_run(spectral_run, steps=4, quantities=("kernels",)).rows
    kappas = [row[f"kappa_{role}"] for row in rows for role in ROLES if f"kappa_{role}" in row]
    assert kappas
    assert max(kappas) < 1.2


class Counting(nn.Module):
    """Attention and a running mean: mutable collections beside the constants."""

    @nn.compact
    def __call__(self, images, *, train=False):
        tokens = images.reshape(len(images), 4, -1)
        mean = self.variable("stats", "mean", jnp.zeros, tokens.shape[-1:])
        if train:
            mean.value = 0.9 * mean.value + 0.1 * tokens.mean(axis=(0, 1))
        mixed = nn.MultiHeadDotProductAttention(num_heads=2, name="attention")(tokens - mean.value)
        return nn.Dense(10)(mixed.reshape(len(images), -1))


@pytest.mark.slow
def test_a_model_with_collections_of_its_own_changes_those_and_keeps_the_constants(tmp_path):
    config = run_config({"method": "spectral"})
    task = dataclasses.replace(tasks.build(config), model=Counting())
    train(config, tmp_path, task=task, progress=Silent())
    batch = next(iter(task.eval_batches()))
    variables = task.init(jax.random.key(0))
    params = variables.pop("params")
    offsets = methods.spectral().offsets(params)
    collections = {**variables, "offsets": offsets}
    loss, (_, after) = task.loss(params, collections, batch, jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, after["offsets"], offsets)
    assert (after["stats"]["mean"] != 0).any()
    added = with_offsets(params, offsets)
    direct, _ = task.loss(added, variables, batch, jax.random.key(1))
    np.testing.assert_allclose(loss, direct, rtol=1e-6)
    plain, _ = task.loss(params, variables, batch, jax.random.key(1))
    assert abs(float(plain) - float(loss)) > 1e-3
    sums = [
        task.evaluate(*state, batch)["loss"]
        for state in ((params, collections), (added, variables))
    ]
    np.testing.assert_allclose(*sums, rtol=1e-6)
