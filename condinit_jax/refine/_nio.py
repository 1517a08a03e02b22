"""Neural initialization optimization: scales with which parts of a batch agree on the gradient."""

from typing import Any

import jax
import jax.numpy as jnp

from condinit_jax.refine._refiner import Refiner, Scales, check, move
from condinit_jax.refine._scales import scaled
from condinit_jax.tasks import Batch, Task


def nio(
    steps: int = 100,
    lr: float = 0.05,
    gamma: float = 5.0,
    splits: int = 2,
    min_scale: float = 0.01,
    clip: float = 1.0,
) -> Refiner:
    """NIO: learns one scale per tensor so that the parts of a batch agree on the gradient.

    A batch is cut into equal parts. Where the mean l2 norm of their gradients is above gamma, a
    step lowers it; otherwise it raises their GradCosine, the mean cosine between two of them. Adam
    moves the scales.

    As in the official code: the default values, its class's (its one recipe for ImageNet takes
    others); the norms; entries of the scales' gradient clipped; scales of at least `min_scale`, of
    a bias at least 0; first moments of Adam kept apart for the norm and the cosine, second moments
    shared. Not as there: parts do not overlap and take every `splits`-th example; the loss is the
    training loss, label smoothing, dropout and drop path included, where the code switches dropout
    off; no term rewards a large norm, as that recipe's has; every parameter that is not zero
    is scaled, not only those of linear layers, convolutions and norms. What the paper says of
    these points was not confirmed.

    Args:
        steps: Steps on the scales.
        lr: Learning rate of the scales.
        gamma: Mean gradient norm above which a step lowers the norm.
        splits: Parts of a batch; must divide the batch size.
        min_scale: Smallest scale of a tensor, at most 1; that of a bias is 0.
        clip: Largest size of each entry of the scales' gradient; 0 does not clip.

    Returns:
        The refinement; each step reads one training batch and takes its parts at once, whatever
        `optimizer.accumulate`. Its figures hold `cosine` as well.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> nio(splits=4).splits
        4

    References:
        Yang et al., Towards Theoretically Inspired Neural Initialization Optimization, NeurIPS
        2022, https://arxiv.org/abs/2210.05956; code: https://github.com/HarborYuan/GradCosine,
        `gradcos/gradcos_initializer.py` and `gradcos/gradinit_optimizers.py`.
    """
    check("steps", steps, least=1)
    check("lr", lr, above=0)
    check("gamma", gamma, above=0)
    check("splits", splits, least=2)
    check("min_scale", min_scale, most=1)
    check("clip", clip)

    def step(
        scales: Scales,
        params: Any,
        collections: Any,
        batches: tuple[Batch, ...],
        key: jax.Array,
        *,
        task: Task,
    ) -> tuple[Scales, dict[str, jax.Array]]:
        parts = jax.tree.map(lambda x: _cut(x, splits), dict(batches[0]))

        def gradients(values: Any) -> tuple[Any, jax.Array]:
            theta = scaled(params, values)

            def of_part(part: Batch) -> tuple[jax.Array, Any]:
                return jax.value_and_grad(lambda t: task.loss(t, collections, part, key)[0])(theta)

            losses, grads = jax.vmap(of_part)(parts)
            return grads, jnp.mean(losses)

        grads, pullback, before = jax.vjp(gradients, scales.values, has_aux=True)
        norm, cosine = mean_norm(grads), mean_cosine(grads)
        constraint = norm > gamma
        change = jax.lax.cond(
            constraint,
            lambda: jax.grad(mean_norm)(grads),
            lambda: jax.tree.map(jnp.negative, jax.grad(mean_cosine)(grads)),
        )
        scales = move(
            scales,
            pullback(change)[0],
            constraint,
            lr=lr,
            clip=clip,
            min_scale=min_scale,
            shared=True,
        )
        figures = {
            "loss": before,
            "objective": jnp.where(constraint, norm, -cosine),
            "grad_norm": norm,
            "cosine": cosine,
            "constraint": constraint,
        }
        return scales, figures

    return Refiner("nio", steps, 1, step, splits=splits, remedy="lr")


def mean_norm(grads: Any) -> jax.Array:
    """The mean l2 norm of several gradients.

    Args:
        grads: A tree of arrays whose first axis counts gradients.

    Returns:
        A scalar.

    Example:
        >>> float(mean_norm({"w": jnp.array([[3.0, 4.0], [0.0, 1.0]])}))
        3.0
    """
    return jnp.mean(jnp.sqrt(jnp.diagonal(_products(grads))))


def mean_cosine(grads: Any) -> jax.Array:
    """GradCosine: the mean cosine between two different ones of several gradients.

    Args:
        grads: A tree of arrays whose first axis counts gradients.

    Returns:
        A scalar in [-1, 1].

    Example:
        >>> round(float(mean_cosine({"w": jnp.array([[1.0, 0.0], [1.0, 1.0]])})), 4)
        0.7071
    """
    products = _products(grads)
    norms = jnp.sqrt(jnp.diagonal(products))
    count = len(norms)
    others = jnp.where(jnp.eye(count, dtype=bool), 0.0, products / jnp.outer(norms, norms))
    return jnp.sum(others) / (count * (count - 1))


def _products(grads: Any) -> jax.Array:
    """Inner products of all pairs of gradients."""

    def of_leaf(g: jax.Array) -> jax.Array:
        axes = tuple(range(1, g.ndim))
        return jnp.tensordot(g, g, (axes, axes), precision=jax.lax.Precision.HIGHEST)

    return jax.tree.reduce(jnp.add, jax.tree.map(of_leaf, grads))


def _cut(x: jax.Array, splits: int) -> jax.Array:
    """Parts along a new first axis; each takes every `splits`-th example."""
    return jnp.swapaxes(x.reshape(-1, splits, *x.shape[1:]), 0, 1)
