"""GradInit: scales with which the first optimizer step lowers the loss most."""

from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp

from condinit_jax.refine._refiner import Refiner, Scales, check, move
from condinit_jax.refine._scales import scaled
from condinit_jax.tasks import Batch, Task

GAMMA = {"sgd": 1.0, "adam": 1000.0}
ETA = {"sgd": 0.1, "adam": 5e-4}
"""Defaults by rule: of the official script for images (sgd), and of the fields in the code for
translation (adam), whose script takes eta 1e-3 and does not clip."""


def gradinit(
    steps: int = 390,
    lr: float = 1e-3,
    rule: Literal["sgd", "adam"] | None = None,
    gamma: float | None = None,
    eta: float | None = None,
    normalize: bool = True,
    second_order: bool = True,
    min_scale: float = 0.01,
    clip: float = 1.0,
) -> Refiner:
    """GradInit: learns one scale per tensor so that one step of the optimizer lowers the loss most.

    With theta the scaled parameters and g their gradient on a batch S, a step lowers ||g|| where
    that is above gamma, and otherwise L(theta - eta A(g)) / eta on a batch that shares half of its
    examples with S. For sgd the norm is l2 and A(g) = g / ||g||; for adam it is l1 and A(g) =
    sign(g). Adam moves the scales.

    As in the official code: the norms and A; the division by eta, which matters to `clip` only;
    entries of the scales' gradient clipped; scales of at least `min_scale`, of a bias at least 0;
    moments of Adam kept apart for the norm and the loss (so in its code for translation; that for
    images was not found). Not as there: S is one training batch and not two joined; the loss is the
    training loss, label smoothing, dropout and drop path included, where the code switches dropout
    off; the gradient passes through g, which the code holds constant (`second_order=False` does);
    every parameter that is not zero is scaled, position embeddings and class tokens too; the
    defaults of adam are those of the code for translation. What the paper says of these points
    was not confirmed.

    Args:
        steps: Steps on the scales.
        lr: Learning rate of the scales; the official scripts take 1e-3 to 1e-1.
        rule: The optimizer whose first step is meant: sgd or adam; none takes adam where the run's
            optimizer is adamw or lamb, and sgd otherwise.
        gamma: Gradient norm above which a step lowers the norm; none: 1 for sgd (l2), 1000 for adam
            (l1).
        eta: Size of the optimizer's step; none: 0.1 for sgd, 5e-4 for adam.
        normalize: Whether the step of sgd is along g / ||g||, as in the official scripts, or g.
        second_order: Whether the change of the step itself with the scales counts; the official
            code leaves it out. Without effect on adam, whose sign does not change.
        min_scale: Smallest scale of a tensor, at most 1; that of a bias is 0.
        clip: Largest size of each entry of the scales' gradient; 0 does not clip.

    Returns:
        The refinement; each step reads two training batches and takes each whole, whatever
        `optimizer.accumulate`.

    Raises:
        ValueError: If an argument is out of its range.

    Example:
        >>> gradinit(rule="adam").steps
        390

    References:
        Zhu et al., GradInit: Learning to Initialize Neural Networks for Stable and Efficient
        Training, NeurIPS 2021, https://arxiv.org/abs/2102.08098; code:
        https://github.com/zhuchen03/gradinit, `gradinit_utils.py` and `launch/`, and
        `fairseq/gradinit/utils/gradinit_optimizers.py` for Adam on the scales.
    """
    rule = rule or "sgd"
    if rule not in GAMMA:
        raise ValueError(f"rule = {rule!r}: must be sgd or adam")
    largest = GAMMA[rule] if gamma is None else gamma
    size = ETA[rule] if eta is None else eta
    check("steps", steps, least=1)
    for name, value in {"lr": lr, "gamma": largest, "eta": size}.items():
        check(name, value, above=0)
    check("min_scale", min_scale, most=1)
    check("clip", clip)
    norm_of, direction = _sgd(normalize) if rule == "sgd" else (_l1, _signs)

    def step(
        scales: Scales,
        params: Any,
        collections: Any,
        batches: tuple[Batch, ...],
        key: jax.Array,
        *,
        task: Task,
    ) -> tuple[Scales, dict[str, jax.Array]]:
        batch, fresh = batches

        def loss(theta: Any, examples: Batch, number: int) -> jax.Array:
            return task.loss(theta, collections, examples, jax.random.fold_in(key, number))[0]

        def gradient(values: Any) -> tuple[Any, jax.Array]:
            before, grads = jax.value_and_grad(loss)(scaled(params, values), batch, 0)
            return grads, before

        grads, pullback, before = jax.vjp(gradient, scales.values, has_aux=True)
        norm = norm_of(grads)

        def after(values: Any, grads: Any) -> jax.Array:
            theta = jax.tree.map(
                lambda leaf, change: (leaf - size * change).astype(leaf.dtype),
                scaled(params, values),
                direction(grads),
            )
            return loss(theta, half_of_each(batch, fresh), 1) / size

        def on_the_norm() -> tuple[jax.Array, Any]:
            return norm, pullback(jax.grad(norm_of)(grads))[0]

        def on_the_loss() -> tuple[jax.Array, Any]:
            found, (change, inner) = jax.value_and_grad(after, (0, 1))(scales.values, grads)
            if second_order and rule == "sgd":
                change = jax.tree.map(jnp.add, change, pullback(inner)[0])
            return (found * size).astype(norm.dtype), change

        constraint = norm > largest
        objective, change = jax.lax.cond(constraint, on_the_norm, on_the_loss)
        scales = move(
            scales, change, constraint, lr=lr, clip=clip, min_scale=min_scale, shared=False
        )
        figures = {
            "loss": before,
            "objective": objective,
            "grad_norm": norm,
            "constraint": constraint,
        }
        return scales, figures

    return Refiner("gradinit", steps, 2, step, remedy="lr or eta")


def half_of_each(first: Batch, second: Batch) -> dict[str, jax.Array]:
    """A batch of which every second example comes from the one and the others from the other.

    Taken example by example, so that no device needs another's examples.

    Args:
        first: Gives the examples 0, 2, ...
        second: Gives the examples 1, 3, ...; of the same size.

    Returns:
        The batch.

    Example:
        >>> mixed = half_of_each({"x": jnp.arange(4)}, {"x": jnp.arange(10, 14)})
        >>> mixed["x"].tolist()
        [0, 11, 2, 13]
    """

    def mix(x: jax.Array, y: jax.Array) -> jax.Array:
        even = jnp.arange(len(x)) % 2 == 0
        return jnp.where(even.reshape(-1, *(1,) * (x.ndim - 1)), x, y)

    return {name: mix(first[name], second[name]) for name in first}


def _l1(grads: Any) -> jax.Array:
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda g: jnp.sum(jnp.abs(g)), grads))


def _l2(grads: Any) -> jax.Array:
    squares = jax.tree.map(lambda g: jnp.sum(jnp.square(g)), grads)
    return jnp.sqrt(jax.tree.reduce(jnp.add, squares))


def _signs(grads: Any) -> Any:
    return jax.tree.map(jnp.sign, grads)


def _sgd(normalize: bool) -> tuple[Callable[[Any], jax.Array], Callable[[Any], Any]]:
    """The norm and the step of sgd."""

    def direction(grads: Any) -> Any:
        norm = _l2(grads) if normalize else 1.0
        return jax.tree.map(lambda g: g / norm, grads)

    return _l2, direction
