import types

import jax
import numpy as np
import pytest

from condinit_jax.config import MeshConfig
from condinit_jax.errors import UserError
from condinit_jax.training.evaluation import evaluate
from condinit_jax.training.sharding import batch_sharding, make_mesh

STATE = types.SimpleNamespace(eval_params=None, collections=None)


def _sums(params, collections, batch):
    del params, collections
    mask = batch["mask"]
    return {"accuracy": (batch["x"] * mask).sum(), "loss": mask.sum() * 2, "count": mask.sum()}


def _evaluate(batches):
    sharding = batch_sharding(make_mesh(MeshConfig()))
    return evaluate(jax.jit(_sums), STATE, batches, sharding)


def test_means_are_over_real_examples_of_all_batches():
    rng = np.random.default_rng(0)
    batches = [
        {"x": rng.random(8, np.float32), "mask": (np.arange(8) < real).astype(np.float32)}
        for real in (8, 8, 8, 8, 8, 8, 3)
    ]
    values = np.concatenate([b["x"][b["mask"] > 0] for b in batches])
    metrics = _evaluate(batches)
    assert list(metrics) == ["loss", "accuracy", "count"]
    assert metrics["accuracy"] == pytest.approx(values.mean(), rel=1e-6)
    assert metrics["loss"] == 2.0
    assert metrics["count"] == 51


@pytest.mark.parametrize("count", [0, 1])
def test_a_split_without_real_examples_is_an_error(count):
    batches = [{"x": np.zeros(8, np.float32), "mask": np.zeros(8, np.float32)}] * count
    with pytest.raises(UserError, match="has no readable example"):
        _evaluate(batches)
