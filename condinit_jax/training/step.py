"""One optimizer step and one evaluation step, as pure functions for `jit`."""

import chex
import jax
import jax.numpy as jnp
import optax

from condinit_jax.tasks import Batch, Task
from condinit_jax.training.state import State


def ema_rate(step: jax.Array, decay: float) -> jax.Array:
    """Decay of the parameter average after a number of steps.

    Early parameters are far from late ones, so the average starts short and lengthens: the rate is
    min(decay, (1 + step) / (10 + step)), which needs no separate bias correction.

    Args:
        step: Finished steps, counting the present one.
        decay: The rate reached in the end.

    Returns:
        The share of the old average in the new one.

    Example:
        >>> float(ema_rate(jnp.int32(8), 0.9))
        0.5
    """
    return jnp.minimum(decay, (1.0 + step) / (10.0 + step))


def gradients(
    state: State, batch: Batch, key: jax.Array, *, task: Task, accumulate: int
) -> tuple[chex.ArrayTree, dict[str, jax.Array], chex.ArrayTree]:
    """Gradients of the mean loss over a batch, taken in micro-batches one after another.

    Args:
        state: Present parameters and collections.
        batch: The whole batch.
        key: Randomness of this step; each micro-batch folds in its number.
        task: Gives the loss.
        accumulate: Micro-batches.

    Returns:
        Mean gradients, mean metrics, and the collections after the last micro-batch.
    """
    grad = jax.grad(task.loss, has_aux=True)

    def micro_step(carry: tuple, micro: tuple) -> tuple:
        total, collections = carry
        index, part = micro
        grads, (metrics, collections) = grad(
            state.params, collections, part, jax.random.fold_in(key, index)
        )
        return (jax.tree.map(jnp.add, total, grads), collections), metrics

    if accumulate == 1:
        grads, (metrics, collections) = grad(
            state.params, state.collections, batch, jax.random.fold_in(key, 0)
        )
        return grads, metrics, collections

    def split(x: jax.Array) -> jax.Array:
        # Micro-batch i takes every accumulate-th example: each device keeps its own examples.
        return jnp.swapaxes(x.reshape(-1, accumulate, *x.shape[1:]), 0, 1)

    zeros = jax.tree.map(jnp.zeros_like, state.params)
    (total, collections), metrics = jax.lax.scan(
        micro_step,
        (zeros, state.collections),
        (jnp.arange(accumulate), jax.tree.map(split, batch)),
    )
    grads = jax.tree.map(lambda x: x / accumulate, total)
    return grads, jax.tree.map(lambda x: jnp.mean(x, axis=0), metrics), collections


def train_step(
    state: State,
    batch: Batch,
    key: jax.Array,
    *,
    task: Task,
    optimizer: optax.GradientTransformation,
    schedule: optax.Schedule,
    accumulate: int = 1,
    ema_decay: float = 0.0,
) -> tuple[State, dict[str, jax.Array]]:
    """One update of the parameters.

    Args:
        state: State before the step.
        batch: Global batch.
        key: Key of all steps; the step's number is folded in here.
        task: Gives the loss.
        optimizer: Update rule.
        schedule: The optimizer's learning rate, for the metrics.
        accumulate: Micro-batches in the batch.
        ema_decay: Decay of the parameter average, where the state has one.

    Returns:
        The state after the step, and scalars: the task's metrics, `lr`, `grad_norm` (before
        clipping) and `param_norm` (after the update).
    """
    grads, metrics, collections = gradients(
        state, batch, jax.random.fold_in(key, state.step), task=task, accumulate=accumulate
    )
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = optax.apply_updates(state.params, updates)
    step = state.step + 1
    ema = state.ema
    if ema is not None:
        ema = optax.incremental_update(params, ema, 1.0 - ema_rate(step, ema_decay))
    metrics = {
        **metrics,
        "lr": jnp.asarray(schedule(state.step), jnp.float32),
        "grad_norm": optax.tree.norm(grads),
        "param_norm": optax.tree.norm(params),
    }
    return State(step, params, collections, opt_state, ema), metrics


def eval_step(
    params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch, *, task: Task
) -> dict[str, jax.Array]:
    """Sums of the metrics over one evaluation batch.

    Args:
        params: Parameters to evaluate.
        collections: The model's other variables.
        batch: Global batch; padding is masked.
        task: Gives the sums.

    Returns:
        Sums over the real examples, with their number as `count`.
    """
    return task.evaluate(params, collections, batch)
