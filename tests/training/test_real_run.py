"""The default recipe itself, short: real images, the ViT, conditioned kernels, no fakes."""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest

from condinit_jax import config as configs
from condinit_jax import methods, tasks
from condinit_jax.config import MeshConfig, ProbeConfig
from condinit_jax.errors import UserError
from condinit_jax.training import Silent, train
from condinit_jax.training.files import read_rows
from condinit_jax.training.optimizer import build_optimizer
from condinit_jax.training.schedule import build_schedule
from condinit_jax.training.sharding import make_mesh, param_shardings
from condinit_jax.training.state import init_state

RECIPE = pathlib.Path(__file__).resolve().parents[2] / "configs/vit.py"
SHORT = [
    "steps=9",
    "schedule.warmup_steps=2",
    "log_every=2",
    "eval_every=4",
    "checkpoint.every=3",
    "probe.every=0",
]


def recipe(*changes):
    return configs.parse(configs.override(configs.load(str(RECIPE)), [*SHORT, *changes]))


class Recorder(Silent):
    """Keeps what a person would have read."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def say(self, text):
        self.lines.append(text)


class StopsAt(Silent):
    """Presses Ctrl-C when a step is done."""

    def __init__(self, step):
        super().__init__()
        self.step = step

    def advance(self, step):
        if step == self.step:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_an_interrupted_run_of_the_recipe_ends_with_the_same_bits(
    tmp_path_factory, tmp_path, assert_same_run
):
    config = recipe("ema_decay=0.9", "model.drop_path=0.1", "data.train_crop=pad", "data.flip=true")
    whole = tmp_path_factory.mktemp("whole")
    train(config, whole, progress=Silent())
    for stop in (2, 8):
        with pytest.raises(KeyboardInterrupt):
            train(config, tmp_path, progress=StopsAt(stop))
    # Its beginning was conditioned, whatever a later command line says.
    other = dataclasses.replace(config, init={"method": "xavier_uniform", "kernels": ("query",)})
    with pytest.raises(UserError, match=r"config.init.method: conditioned -> xavier_uniform"):
        train(other, tmp_path, progress=Silent())
    train(config, tmp_path, progress=Silent())
    assert_same_run(whole, tmp_path, parts=("ema", "opt_state", "params"))


def first_state(config, mesh):
    """The state before step 1, born on a mesh."""
    optimizer = build_optimizer(config.optimizer, build_schedule(config.schedule, 1.0, 9))
    init = functools.partial(
        init_state,
        task=tasks.build(config),
        optimizer=optimizer,
        method=methods.build(config.init),
        average=False,
    )
    key = jax.random.key(config.seed)
    shardings = param_shardings(jax.eval_shape(init, key), mesh)
    return jax.jit(init, out_shardings=shardings)(key)


@pytest.mark.slow
@pytest.mark.parametrize(("data", "fsdp"), [(8, 1), (2, 4), (1, 8)])
def test_conditioned_parameters_are_born_with_the_same_bits_on_every_mesh(data, fsdp):
    config = recipe()
    alone = first_state(config, make_mesh(MeshConfig(data=1, fsdp=1)))
    born = first_state(config, make_mesh(MeshConfig(data=data, fsdp=fsdp)))
    jax.tree.map(np.testing.assert_array_equal, alone.params, born.params)
    query = born.params["blocks"]["attention"]["query"]["kernel"]
    assert query.sharding.is_fully_replicated == (fsdp == 1)


def test_methods_differ_in_the_named_kernels_and_in_nothing_else():
    mesh = make_mesh(MeshConfig(data=1, fsdp=1))
    ours, baseline = (
        first_state(recipe(f"init.method={method}"), mesh).params
        for method in ("conditioned", "truncated_normal")
    )
    differing = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, a), b in zip(
            jax.tree_util.tree_leaves_with_path(ours), jax.tree.leaves(baseline), strict=True
        )
        if (a != b).any()
    }
    assert differing == {f"blocks/attention/{r}/kernel" for r in ("query", "key", "value")}


def test_the_seed_changes_the_draw():
    mesh = make_mesh(MeshConfig(data=1, fsdp=1))
    first, second = (first_state(dataclasses.replace(recipe(), seed=s), mesh) for s in (0, 1))
    kernels = [s.params["blocks"]["attention"]["query"]["kernel"] for s in (first, second)]
    assert (kernels[0] != kernels[1]).any()


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_recipes_own_probes_see_every_layer_and_never_a_rounded_token(tmp_path, dtype):
    recorder = Recorder()
    config = recipe("steps=1", "schedule.warmup_steps=0", f"compute_dtype={dtype}")
    train(dataclasses.replace(config, probe=ProbeConfig()), tmp_path, progress=recorder)
    rows = [row for row in read_rows(tmp_path / "metrics.jsonl") if row["kind"] == "probe"]
    assert [(row["step"], row["layer"], row["head"]) for row in rows] == [
        (step, layer, 0) for step in (0, 1) for layer in range(4)
    ]
    for row in rows:
        assert (row["tokens"], row["rank"], row["size"]) == (17, 272, 272)
        assert (row["dtype"], row["converged"], row["warning"]) == ("float64", True, "")
    assert not [line for line in recorder.lines if line.startswith("warning: no probe")]


@pytest.mark.slow
def test_a_sharded_run_of_the_recipe_ends_under_xlas_own_flags(tmp_path):
    """Eight devices on few cores: a draw that waited for other threads would hang here."""
    environment = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
    changes = ["steps=2", "schedule.warmup_steps=1", "mesh.fsdp=8", "model.width=256"]
    command = [sys.executable, str(RECIPE.parents[1] / "train.py"), "--workdir", str(tmp_path)]
    command += [f"--config.{change}" for change in changes]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "result steps=2" in done.stdout
