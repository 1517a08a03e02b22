import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.refine import begin, mean_cosine, nio
from condinit_jax.refine._refiner import B1

KEY = jax.random.key(0)
FREE = {"clip": 0.0, "min_scale": 0.0}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def parts(by_hand, params, scales, batch, splits):
    """The gradient of each part of a batch, as rows."""
    rows = []
    for first in range(splits):
        part = {name: x[first::splits] for name, x in batch.items()}
        found = by_hand(params["a"] * scales["a"], params["b"] * scales["b"], part)
        rows.append(np.append(found.b, found.a))
    return np.array(rows)


def cosine_of(rows):
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = [unit[i] @ unit[j] for i in range(len(rows)) for j in range(i)]
    return np.mean(pairs)


def norm_of(rows):
    return np.mean(np.linalg.norm(rows, axis=1))


def slopes(function, width=1e-6):
    ones = {"a": 1.0, "b": 1.0}

    def of(name):
        return (function({**ones, name: 1 + width}) - function({**ones, name: 1 - width})) / (
            2 * width
        )

    return {name: of(name) for name in ones}


def one_step(refiner, task, params, batch):
    params = jax.tree.map(jnp.asarray, params)
    step = jax.jit(functools.partial(refiner.step, task=task))
    after, figures = step(begin(params), params, {}, (batch,), KEY)
    kind = int(figures["constraint"])
    return after, figures, jax.tree.map(lambda m: float(m[kind]) / (1 - B1), after.first)


@pytest.mark.parametrize("splits", [2, 4])
def test_the_cosine_is_numpys_and_the_scales_move_up_its_finite_differences(
    linear, points, drawn, by_hand, splits
):
    batch = points(0)
    _, figures, gradient = one_step(nio(gamma=1e9, splits=splits, **FREE), linear, drawn, batch)

    def value(scales):
        return cosine_of(parts(by_hand, drawn, scales, batch, splits))

    assert float(figures["cosine"]) == pytest.approx(value({"a": 1.0, "b": 1.0}), rel=1e-9)
    assert float(figures["objective"]) == -float(figures["cosine"])
    expected = {name: -slope for name, slope in slopes(value).items()}
    assert gradient == pytest.approx(expected, rel=1e-5)


def test_above_gamma_the_mean_norm_is_lowered(linear, points, drawn, by_hand):
    batch = points(0)

    def value(scales):
        return norm_of(parts(by_hand, drawn, scales, batch, 2))

    size = value({"a": 1.0, "b": 1.0})
    _, figures, gradient = one_step(nio(gamma=0.99 * size, **FREE), linear, drawn, batch)
    assert figures["constraint"]
    assert float(figures["grad_norm"]) == pytest.approx(size, rel=1e-9)
    assert gradient == pytest.approx(slopes(value), rel=1e-5)
    assert not one_step(nio(gamma=1.01 * size, **FREE), linear, drawn, batch)[1]["constraint"]


def test_the_loss_is_that_of_the_whole_batch(linear, points, drawn, by_hand):
    _, figures, _ = one_step(nio(gamma=1e9, splits=4), linear, drawn, points(0))
    expected = by_hand(drawn["a"], drawn["b"], points(0)).loss
    assert float(figures["loss"]) == pytest.approx(expected, rel=1e-9)


def test_many_steps_raise_the_cosine(linear, points, drawn):
    batch, refiner = points(3), nio(steps=60, gamma=1e9)
    params = jax.tree.map(jnp.asarray, drawn)
    step = jax.jit(functools.partial(refiner.step, task=linear))
    scales, cosines = begin(params), []
    for _ in range(refiner.steps):
        scales, figures = step(scales, params, {}, (batch,), KEY)
        cosines.append(float(figures["cosine"]))
    assert cosines[-1] > cosines[0] + 0.01
    assert min(jax.tree.leaves(scales.values)) >= 0.01


def test_second_moments_are_shared_and_first_ones_are_not(linear, points, drawn):
    params = jax.tree.map(jnp.asarray, drawn)
    refiner = nio(gamma=1e9)
    scales, _ = refiner.step(begin(params), params, {}, (points(0),), KEY, task=linear)
    scales, _ = nio(gamma=1e-9).step(scales, params, {}, (points(1),), KEY, task=linear)
    assert scales.counts.tolist() == [1, 1]
    for moment in jax.tree.leaves(scales.first):
        assert np.all(np.asarray(moment) != 0)
    for moment in jax.tree.leaves(scales.second):
        assert (moment[0] > 0, moment[1]) == (True, 0)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_the_mean_cosine_takes_each_pair_once(count):
    rng = np.random.default_rng(count)
    grads = {"w": rng.normal(size=(count, 2, 3)), "b": rng.normal(size=(count,))}
    rows = np.concatenate([grads["w"].reshape(count, -1), grads["b"][:, None]], axis=1)
    found = mean_cosine(jax.tree.map(jnp.asarray, grads))
    assert float(found) == pytest.approx(cosine_of(rows), rel=1e-12)
