import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from condinit_jax.training.state import init_state
from condinit_jax.training.step import ema_rate, eval_step, gradients, train_step


def _state(task, average=False, optimizer=None):
    init = functools.partial(
        init_state,
        task=task,
        optimizer=optimizer or optax.sgd(0.1),
        method=None,
        average=average,
    )
    return jax.jit(init)(jax.random.key(0))


def _gradients(state, batch, key, *, task, accumulate):
    take = functools.partial(gradients, task=task, accumulate=accumulate)
    return jax.jit(take)(state, batch, key)


@pytest.mark.parametrize("accumulate", [2, 4, 16])
def test_micro_batches_give_the_gradient_of_the_whole_batch(fake_task, accumulate):
    task = fake_task()
    task.dropout = 0.0
    state, batch = _state(task), next(task.train_batches(0))
    key = jax.random.key(1)
    whole, metrics, _ = _gradients(state, batch, key, task=task, accumulate=1)
    parts, part_metrics, collections = _gradients(
        state, batch, key, task=task, accumulate=accumulate
    )
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), whole, parts)
    assert float(part_metrics["loss"]) == pytest.approx(float(metrics["loss"]), rel=1e-5)
    assert float(part_metrics["accuracy"]) == pytest.approx(float(metrics["accuracy"]))
    assert int(collections["counts"]["batches"]) == accumulate


def test_micro_batches_draw_their_own_randomness(fake_task):
    task = fake_task()
    state, batch = _state(task), next(task.train_batches(0))
    same = jax.tree.map(lambda x: np.repeat(x[:2], 8, axis=0), batch)
    key = jax.random.key(1)
    losses = []
    for index in range(2):
        _, (metrics, _) = jax.jit(task.loss)(
            state.params, state.collections, same, jax.random.fold_in(key, index)
        )
        losses.append(float(metrics["loss"]))
    doubled = jax.tree.map(lambda x: np.repeat(x, 2, axis=0), same)
    _, metrics, _ = _gradients(state, doubled, key, task=task, accumulate=2)
    assert losses[0] != losses[1]
    assert float(metrics["loss"]) == pytest.approx(np.mean(losses), rel=1e-5)


def test_steps_draw_their_own_randomness_and_count(fake_task):
    task = fake_task()
    step = jax.jit(
        functools.partial(
            train_step, task=task, optimizer=optax.sgd(0.0), schedule=lambda t: 0.0 * t
        )
    )
    batch, key = next(task.train_batches(0)), jax.random.key(1)
    state, first = step(_state(task, optimizer=optax.sgd(0.0)), batch, key)
    state, second = step(state, batch, key)
    assert float(first["loss"]) != float(second["loss"])
    assert int(state.step) == 2


def test_figures_are_the_rate_applied_and_the_norms_before_clipping_and_after_the_update(
    fake_task,
):
    task, schedule = fake_task(), optax.linear_schedule(1.0, 0.0, 4)
    optimizer = optax.chain(optax.clip_by_global_norm(1e-3), optax.scale_by_learning_rate(schedule))
    state = _state(task, optimizer=optimizer)
    batch, key = next(task.train_batches(0)), jax.random.key(1)
    step = jax.jit(functools.partial(train_step, task=task, optimizer=optimizer, schedule=schedule))
    rates = []
    for _ in range(3):
        grads, *_ = _gradients(
            state, batch, jax.random.fold_in(key, state.step), task=task, accumulate=1
        )
        state, figures = step(state, batch, key)
        rates.append(float(figures["lr"]))
        norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(grads)))
        assert float(figures["grad_norm"]) == pytest.approx(norm, rel=1e-5)
        norm = np.sqrt(sum(np.sum(np.square(x)) for x in jax.tree.leaves(state.params)))
        assert float(figures["param_norm"]) == pytest.approx(norm, rel=1e-5)
    assert rates == [1.0, 0.75, 0.5]


def test_the_average_follows_its_closed_form(fake_task):
    task = fake_task()
    state = _state(task, average=True)
    expected = np.asarray(state.params["dense"]["kernel"])
    step = jax.jit(
        functools.partial(
            train_step,
            task=task,
            optimizer=optax.sgd(0.1),
            schedule=lambda t: 0.1,
            ema_decay=0.7,
        )
    )
    for t, batch in zip(range(1, 30), task.train_batches(0), strict=False):
        state, _ = step(state, batch, jax.random.key(1))
        rate = min(0.7, (1 + t) / (10 + t))
        expected = rate * expected + (1 - rate) * np.asarray(state.params["dense"]["kernel"])
    np.testing.assert_allclose(state.ema["dense"]["kernel"], expected, rtol=1e-5, atol=1e-6)


def test_the_average_lengthens_up_to_its_decay():
    rates = [float(ema_rate(jnp.int32(t), 0.99)) for t in (1, 10, 100, 10_000)]
    assert rates == pytest.approx([2 / 11, 11 / 20, 101 / 110, 0.99])


def test_evaluation_sums_leave_padding_out(fake_task):
    task = fake_task()
    state = _state(task)
    *_, last = task.eval_batches()
    sums = eval_step(state.params, state.collections, last, task=task)
    assert float(sums["count"]) == 2
    spoiled = {**last, "x": np.where(last["mask"][:, None] > 0, last["x"], 1e6)}
    again = eval_step(state.params, state.collections, spoiled, task=task)
    assert float(again["loss"]) == pytest.approx(float(sums["loss"]))
