import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.refine import begin, gradinit, scaled
from condinit_jax.refine._gradinit import half_of_each
from condinit_jax.refine._refiner import B1, Scales

KEY = jax.random.key(0)
# Far from any bound: what is left is the gradient.
FREE = {"clip": 0.0, "min_scale": 0.0}


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def one_step(refiner, task, params, batches, scales=None):
    """The state and figures after one step, and the gradient that it took."""
    params = jax.tree.map(jnp.asarray, params)
    scales = scales or begin(params)
    step = jax.jit(functools.partial(refiner.step, task=task))
    after, figures = step(scales, params, {}, batches, KEY)
    kind = int(figures["constraint"])
    gradient = jax.tree.map(lambda m: float(m[kind]) / (1 - B1), after.first)
    return after, {name: float(value) for name, value in figures.items()}, gradient


def objective(by_hand, params, scales, batch, fresh, rule, eta, normalize, held=None):
    """GradInit's objective in NumPy; `held` is a step to take instead of the scales' own."""
    a, b = params["a"] * scales["a"], params["b"] * scales["b"]
    found = by_hand(a, b, batch)
    step_a, step_b = found.a, found.b
    if rule == "adam":
        step_a, step_b = np.sign(step_a), np.sign(step_b)
    elif normalize:
        norm = np.sqrt(found.a**2 + np.sum(found.b**2))
        step_a, step_b = step_a / norm, step_b / norm
    if held is not None:
        step_a, step_b = held
    mixed = {name: np.asarray(x) for name, x in half_of_each(batch, fresh).items()}
    after = by_hand(a - eta * step_a, b - eta * step_b, mixed)
    return after.loss, (step_a, step_b)


def norm(by_hand, params, scales, batch, rule):
    found = by_hand(params["a"] * scales["a"], params["b"] * scales["b"], batch)
    whole = np.append(found.b, found.a)
    return np.sum(np.abs(whole)) if rule == "adam" else np.sqrt(np.sum(whole**2))


def differences(function, scales, width=1e-6):
    """Central differences of a function of the scales."""

    def of(name):
        up, down = ({**scales, name: scales[name] + sign * width} for sign in (1, -1))
        return (function(up) - function(down)) / (2 * width)

    return {name: of(name) for name in scales}


ONES = {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_the_scales_move_along_finite_differences_of_the_loss_after_one_step(
    linear, points, drawn, by_hand, rule, normalize
):
    batches = points(0), points(1)
    refiner = gradinit(rule=rule, gamma=1e9, eta=0.1, normalize=normalize, **FREE)
    _, figures, gradient = one_step(refiner, linear, drawn, batches)

    def value(scales):
        return objective(by_hand, drawn, scales, *batches, rule, 0.1, normalize)[0]

    assert figures["constraint"] == 0
    assert figures["objective"] == pytest.approx(value(ONES), rel=1e-9)
    expected = {name: slope / 0.1 for name, slope in differences(value, ONES).items()}
    assert gradient == pytest.approx(expected, rel=1e-5)


def test_without_second_order_the_step_is_held_constant(linear, points, drawn, by_hand):
    batches = points(0), points(1)
    refiner = gradinit(gamma=1e9, eta=0.1, second_order=False, **FREE)
    _, _, gradient = one_step(refiner, linear, drawn, batches)
    _, held = objective(by_hand, drawn, ONES, *batches, "sgd", 0.1, True)

    def value(scales):
        return objective(by_hand, drawn, scales, *batches, "sgd", 0.1, True, held)[0]

    expected = {name: slope / 0.1 for name, slope in differences(value, ONES).items()}
    assert gradient == pytest.approx(expected, rel=1e-5)
    _, _, through = one_step(gradinit(gamma=1e9, eta=0.1, **FREE), linear, drawn, batches)
    assert abs(through["a"] - gradient["a"]) > 1e-3


@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_above_gamma_the_scales_move_along_finite_differences_of_the_norm(
    linear, points, drawn, by_hand, rule
):
    batches = points(0), points(1)

    def value(scales):
        return norm(by_hand, drawn, scales, batches[0], rule)

    size = value(ONES)
    refiner = gradinit(rule=rule, gamma=0.99 * size, eta=0.1, **FREE)
    after, figures, gradient = one_step(refiner, linear, drawn, batches)
    assert (figures["constraint"], figures["grad_norm"]) == (1, pytest.approx(size, rel=1e-9))
    assert gradient == pytest.approx(differences(value, ONES), rel=1e-5)
    assert after.counts.tolist() == [0, 1]
    below = gradinit(rule=rule, gamma=1.01 * size, eta=0.1, **FREE)
    assert one_step(below, linear, drawn, batches)[1]["constraint"] == 0


def test_adam_finds_the_best_scales_of_a_quadratic(quadratic):
    """One step of sgd from p ends at p - eta (p - c): at the minimum only if p = c already."""
    params, c = {"p": jnp.float64(2.0), "q": jnp.float64(-4.0)}, 3.0
    batch = {"c": jnp.full(4, c)}
    refiner = gradinit(
        steps=600, lr=0.02, gamma=1e9, eta=0.5, normalize=False, clip=0, min_scale=0.0
    )
    step = jax.jit(functools.partial(refiner.step, task=quadratic))
    scales = begin(params)
    for _ in range(refiner.steps):
        scales, figures = step(scales, params, {}, (batch, batch), KEY)
    # q cannot change its sign: its best scale is the smallest.
    assert float(scales.values["p"]) == pytest.approx(c / 2.0, abs=1e-3)
    assert float(scales.values["q"]) == 0.0
    after = (0.5 * 3.0) ** 2 / 2
    assert float(figures["objective"]) == pytest.approx(after, rel=1e-3)


def test_every_second_example_is_fresh_and_a_whole_axis_moves_with_it():
    first = {"x": jnp.zeros((5, 2)), "y": jnp.arange(5)}
    second = {"x": jnp.ones((5, 2)), "y": jnp.arange(10, 15)}
    mixed = half_of_each(first, second)
    assert mixed["y"].tolist() == [0, 11, 2, 13, 4]
    np.testing.assert_array_equal(mixed["x"][:, 0], mixed["x"][:, 1])
    assert mixed["x"][:, 0].tolist() == [0, 1, 0, 1, 0]


def test_scales_are_clipped_and_kept_above_their_bounds(quadratic):
    params = {"p": jnp.float64(2.0), "bias": jnp.float64(2.0)}

    class Both:
        def loss(self, params, collections, batch, key):
            loss = 50 * (params["p"] ** 2 + params["bias"] ** 2)
            return loss, ({}, collections)

    refiner = gradinit(lr=0.3, gamma=1e9, min_scale=0.25, clip=1.0)
    step = functools.partial(refiner.step, task=Both())
    scales = begin(params)
    for number in range(8):
        scales, _ = step(scales, params, {}, ({"x": jnp.ones(2)},) * 2, KEY)
        if number == 0:
            sizes = jax.tree.leaves(jax.tree.map(lambda m: float(m[0]), scales.first))
            assert sizes == pytest.approx([0.1, 0.1])  # (1 - B1) times the clipped 1
    assert float(scales.values["p"]) == 0.25
    assert float(scales.values["bias"]) == 0.0


def test_a_tensor_of_zeros_keeps_its_scale(linear, points, drawn):
    zeros = {**drawn, "b": np.zeros(3)}
    after, _, _ = one_step(gradinit(gamma=1e9), linear, zeros, (points(0), points(1)))
    assert float(after.values["b"]) == 1.0


def test_stacked_leaves_get_a_scale_per_layer():
    params = {"blocks": {"w": jnp.ones((3, 2))}, "w": jnp.ones(2)}
    scales = begin(params, lambda path: path[0].key == "blocks")
    assert isinstance(scales, Scales)
    values = jax.tree.map(lambda s: s * jnp.arange(1.0, 4.0), scales.values)
    values["w"] = jnp.float64(5.0)
    new = scaled(params, values)
    assert new["blocks"]["w"].tolist() == [[1, 1], [2, 2], [3, 3]]
    assert new["w"].tolist() == [5, 5]
