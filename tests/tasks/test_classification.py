import dataclasses
import types

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax import tasks
from condinit_jax.config import Config, DataConfig, TaskConfig
from condinit_jax.errors import UserError
from condinit_jax.tasks import _classification as module
from condinit_jax.tasks._classification import Classification, cross_entropy

SMALL = {"name": "vit", "patch_size": 7, "width": 16, "depth": 2, "num_heads": 2}


class Tiny(nn.Module):
    """A linear classifier with dropout and a running mean, to have every kind of variable."""

    @nn.compact
    def __call__(self, images, *, train=False):
        flat = images.reshape(len(images), -1)
        mean = self.variable("stats", "mean", jnp.zeros, (flat.shape[1],))
        if train:
            mean.value = 0.9 * mean.value + 0.1 * flat.mean(axis=0)
        flat = nn.Dropout(0.5, deterministic=not train)(flat - mean.value)
        return nn.Dense(10, bias_init=nn.initializers.normal(1.0))(flat)


def _task(**task_fields):
    source = types.SimpleNamespace(num_classes=10, channels=1, name="fake")
    config = Config(data=DataConfig(image_size=4), task=TaskConfig(**task_fields))
    return Classification(config, Tiny(), source, source)


def _batch(seed=0, size=8):
    rng = np.random.default_rng(seed)
    return {
        "image": rng.normal(size=(size, 4, 4, 1)).astype(np.float32),
        "label": rng.integers(0, 10, size).astype(np.int32),
        "mask": np.ones(size, np.float32),
    }


def _variables(task):
    variables = jax.jit(task.init)(jax.random.key(0))
    return variables.pop("params"), variables


@given(st.integers(2, 20), st.floats(0.0, 0.9), st.integers(0, 100))
def test_cross_entropy_follows_its_definition(classes, smoothing, seed):
    rng = np.random.default_rng(seed)
    logits, label = rng.normal(size=classes), rng.integers(classes)
    target = np.full(classes, smoothing / classes)
    target[label] += 1 - smoothing
    expected = -np.sum(target * (logits - np.log(np.sum(np.exp(logits)))))
    found = cross_entropy(jnp.asarray(logits[None], jnp.float32), jnp.array([label]), smoothing)
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)


def test_cross_entropy_of_bfloat16_logits_is_float32():
    loss = cross_entropy(jnp.zeros((2, 10), jnp.bfloat16), jnp.array([1, 2]))
    assert loss.dtype == jnp.float32


def test_training_smooths_labels_and_evaluation_does_not():
    plain, smooth = _task(), _task(label_smoothing=0.3)
    params, collections = _variables(plain)
    key, batch = jax.random.key(1), _batch()
    losses = [jax.jit(t.loss)(params, collections, batch, key)[0] for t in (plain, smooth)]
    sums = [jax.jit(t.evaluate)(params, collections, batch)["loss"] for t in (plain, smooth)]
    assert float(losses[0]) != float(losses[1])
    assert float(sums[0]) == float(sums[1])


def test_the_loss_is_its_metric_and_updates_collections():
    task = _task()
    params, collections = _variables(task)
    loss, (metrics, after) = jax.jit(task.loss)(params, collections, _batch(), jax.random.key(1))
    assert float(metrics["loss"]) == float(loss)
    assert 0 <= float(metrics["accuracy"]) <= 1
    expected = 0.1 * _batch()["image"].reshape(8, -1).mean(axis=0)
    np.testing.assert_allclose(after["stats"]["mean"], expected, rtol=1e-5, atol=1e-7)


def test_dropout_depends_on_the_key():
    task = _task()
    params, collections = _variables(task)
    loss = jax.jit(task.loss)
    one, two, again = (
        float(loss(params, collections, _batch(), jax.random.key(k))[0]) for k in (1, 2, 1)
    )
    assert one == again
    assert one != two


def test_padding_counts_nowhere_even_where_it_is_not_finite():
    task = _task()
    params, collections = _variables(task)
    batch = _batch()
    evaluate = jax.jit(task.evaluate)
    real = evaluate(params, collections, {k: v[:5] for k, v in batch.items()})
    batch["mask"][5:] = 0
    batch["image"][5:] = np.nan
    padded = evaluate(params, collections, batch)
    assert float(padded["count"]) == 5
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(padded[name], real[name], rtol=1e-6)


def test_building_opens_the_bundled_images_and_the_named_model():
    config = Config(model=SMALL, batch_size=8, compute_dtype="bfloat16")
    task = tasks.build(config)
    assert isinstance(task, tasks.Task)
    assert task.model.dtype == jnp.bfloat16
    assert task.model.num_classes == 10
    assert task.train_size == len(task.train_source)
    text = task.summary()
    assert "vit" in text
    assert str(task.eval_size) in text
    assert "\n" not in text
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes["params"])} == {jnp.dtype("float32")}


def test_batches_start_at_the_asked_step():
    task = tasks.build(Config(model=SMALL, batch_size=8))
    first, later = task.train_batches(0), task.train_batches(2)
    for _ in range(2):
        next(first)
    jax.tree.map(np.testing.assert_array_equal, next(first), next(later))
    first.close()
    later.close()


def test_splits_that_disagree_are_named(monkeypatch):
    sources = {
        "train": types.SimpleNamespace(num_classes=10, channels=3),
        "test": types.SimpleNamespace(num_classes=7, channels=3),
    }
    monkeypatch.setattr(module, "open_source", lambda data, split: sources[split])
    with pytest.raises(UserError) as error:
        tasks.build(Config(model=SMALL))
    assert str(error.value) == (
        "config.data.eval_split = 'test': has num_classes 7, but must have the training split's 10"
    )


@pytest.mark.parametrize("field", ["train_split", "eval_split"])
@pytest.mark.parametrize(
    ("split", "reason"),
    [("valid", "is not in the bundled data"), ("test[:0]", "keeps none of the 1000 examples")],
)
def test_a_split_that_cannot_be_opened_names_its_field(field, split, reason):
    with pytest.raises(UserError) as error:
        tasks.build(Config(model=SMALL, data=DataConfig(**{field: split})))
    assert str(error.value).startswith(f"config.data.{field} = {split!r}: {reason}")


def test_a_config_that_does_not_fit_the_images_is_refused_before_training():
    colour = DataConfig(mean=(0.5,) * 3, std=(0.5,) * 3)
    with pytest.raises(UserError, match=r"^config.data.mean = .*: must have 1 entry, as bundled"):
        tasks.build(Config(model=SMALL, data=colour))


def test_fields_of_a_model_that_contradict_each_other_are_named_as_the_config_has_them():
    task = tasks.build(Config(model={**SMALL, "norm": "none", "residual": "post_norm"}))
    with pytest.raises(UserError, match=r"^config\.model\.norm: 'none' leaves residual post_norm"):
        jax.eval_shape(task.init, jax.random.key(0))


def test_the_table_and_the_config_know_the_same_names():
    (field,) = (f for f in dataclasses.fields(TaskConfig) if f.name == "name")
    assert set(tasks.TASKS) == set(field.type.__args__)
