"""The update rule: clipping, a base rule by name, and decay of kernels only."""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import optax

from condinit_jax.config import OptimizerConfig
from condinit_jax.training.paths import is_stacked, path_names

DECAYED = frozenset({"kernel", "embedding"})
"""Leaf names that weight decay acts on."""

Mask = Callable[[chex.ArrayTree], chex.ArrayTree]


def decay_mask(params: chex.ArrayTree, no_decay: tuple[str, ...] = ()) -> chex.ArrayTree:
    """Which parameters decay: leaves named "kernel" or "embedding", and no others.

    The number of axes cannot tell a kernel from a bias once layers are stacked (a stacked bias has
    two axes), so names decide. Biases, norm and residual scales, and position embeddings have other
    names and never decay.

    Args:
        params: Parameter tree.
        no_decay: Names that exempt every leaf at or below them.

    Returns:
        A tree of the same structure with True where decay applies.

    Example:
        >>> decay_mask({"blocks": {"kernel": jnp.ones((2, 3, 3)), "bias": jnp.ones((2, 3))}})
        {'blocks': {'bias': False, 'kernel': True}}
    """

    def decays(path: tuple, leaf: chex.Array) -> bool:
        del leaf
        names = path_names(path)
        return names[-1] in DECAYED and not set(names) & set(no_decay)

    return jax.tree_util.tree_map_with_path(decays, params)


def scale_by_layer_trust_ratio() -> optax.GradientTransformation:
    """Scales each layer's update to the norm of its parameters, stacked layers one by one.

    `optax.scale_by_trust_ratio` takes one norm per leaf, which for stacked layers would tie all
    layers together; here the norm of a stacked leaf keeps the layer axis.

    Returns:
        The transformation; a ratio with a zero norm in it is 1.

    References:
        You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes,
        https://arxiv.org/abs/1904.00962, Algorithm 2.
    """

    def scale(path: tuple, update: jax.Array, param: jax.Array) -> jax.Array:
        axes = tuple(range(1 if is_stacked(path) else 0, update.ndim))
        param_norm = jnp.sqrt(jnp.sum(jnp.square(param), axis=axes, keepdims=True))
        update_norm = jnp.sqrt(jnp.sum(jnp.square(update), axis=axes, keepdims=True))
        defined = (param_norm > 0) & (update_norm > 0)
        return update * jnp.where(defined, param_norm / jnp.where(defined, update_norm, 1.0), 1.0)

    def init(params: optax.Params) -> optax.EmptyState:
        del params
        return optax.EmptyState()

    def update(
        updates: optax.Updates, state: optax.EmptyState, params: optax.Params | None = None
    ) -> tuple[optax.Updates, optax.EmptyState]:
        return jax.tree_util.tree_map_with_path(scale, updates, params), state

    return optax.GradientTransformation(init, update)  # type: ignore[arg-type]


def _adamw(c: OptimizerConfig, mask: Mask) -> tuple[optax.GradientTransformation, ...]:
    return (
        optax.scale_by_adam(b1=c.b1, b2=c.b2, eps=c.eps),
        optax.add_decayed_weights(c.weight_decay, mask),
    )


def _sgd(c: OptimizerConfig, mask: Mask) -> tuple[optax.GradientTransformation, ...]:
    return (optax.trace(decay=c.b1), optax.add_decayed_weights(c.weight_decay, mask))


def _lamb(c: OptimizerConfig, mask: Mask) -> tuple[optax.GradientTransformation, ...]:
    return (*_adamw(c, mask), scale_by_layer_trust_ratio())


RULES = {"adamw": _adamw, "sgd": _sgd, "lamb": _lamb}
"""Every rule by its name in a config."""


def build_optimizer(
    config: OptimizerConfig, schedule: optax.Schedule
) -> optax.GradientTransformation:
    """Optimizer of a run.

    Every rule decays decoupled from the gradient: the decay term is added after the moments and is
    scaled by the learning rate, as in AdamW. For sgd, `b1` is the momentum and `b2` and `eps` are
    not used.

    Args:
        config: Rule and its constants.
        schedule: Learning rate of each update.

    Returns:
        The transformation: clip by global norm (where `clip_norm` is positive), rule, decay, rate.

    Example:
        >>> optimizer = build_optimizer(OptimizerConfig(name="sgd", b1=0.0), lambda t: 0.5)
        >>> params = {"bias": jnp.ones(())}
        >>> updates, _ = optimizer.update({"bias": jnp.ones(())}, optimizer.init(params), params)
        >>> float(updates["bias"])
        -0.5
    """

    def mask(params: chex.ArrayTree) -> chex.ArrayTree:
        return decay_mask(params, tuple(config.no_decay))

    # In its place also where nothing is clipped: a resumed run may switch clipping on.
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm > 0 else optax.identity()
    return optax.chain(
        clip, *RULES[config.name](config, mask), optax.scale_by_learning_rate(schedule)
    )
