from typing import get_args, get_type_hints

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from condinit_jax.config import OptimizerConfig
from condinit_jax.training.optimizer import RULES, build_optimizer, decay_mask


def vit_like():
    """Names and ranks of a stacked transformer: two layers, width 4, two heads."""

    def ones(shape):
        return np.ones(shape, np.float32)

    return {
        "cls_token": ones((4,)),
        "pos_embed": ones((5, 4)),
        "patch_embed": {"kernel": ones((2, 2, 3, 4)), "bias": ones((4,))},
        "blocks": {
            "attention": {
                "query": {"kernel": ones((2, 4, 2, 2)), "bias": ones((2, 2, 2))},
                "out": {"kernel": ones((2, 2, 2, 4)), "bias": ones((2, 4))},
            },
            "norm": {"scale": ones((2, 4)), "bias": ones((2, 4))},
            "layer_scale": {"scale": ones((2, 4))},
        },
        "tokens": {"embedding": ones((7, 4))},
        "head": {"kernel": ones((4, 10)), "bias": ones((10,))},
    }


def _first_update(optimizer, grads, params):
    return jax.jit(lambda g, p: optimizer.update(g, optimizer.init(p), p)[0])(grads, params)


def _decaying(mask):
    leaves = jax.tree_util.tree_leaves_with_path(mask)
    return {jax.tree_util.keystr(p, simple=True, separator="/") for p, keep in leaves if keep}


def test_kernels_and_embeddings_decay_and_nothing_else():
    assert _decaying(decay_mask(vit_like())) == {
        "patch_embed/kernel",
        "blocks/attention/query/kernel",
        "blocks/attention/out/kernel",
        "tokens/embedding",
        "head/kernel",
    }


def test_no_decay_exempts_everything_below_a_name():
    kept = _decaying(decay_mask(vit_like(), ("attention", "head")))
    assert kept == {"patch_embed/kernel", "tokens/embedding"}


@pytest.mark.parametrize("name", RULES)
def test_without_gradients_kernels_shrink_by_the_rate_times_the_decay(name):
    config = OptimizerConfig(name=name, weight_decay=0.1)
    optimizer = build_optimizer(config, lambda t: 0.5)
    params = vit_like()
    zeros = jax.tree.map(np.zeros_like, params)
    updates = _first_update(optimizer, zeros, params)
    # LAMB scales the step to the norm of the parameters, here by 1 / 0.1.
    factor = 0.5 if name == "lamb" else 0.05
    np.testing.assert_allclose(updates["head"]["kernel"], -factor, rtol=1e-6)
    assert not np.any(updates["blocks"]["norm"]["scale"])


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_rules_agree_with_optax(name):
    config = OptimizerConfig(name=name, weight_decay=0.1, b1=0.8)
    schedule = optax.linear_schedule(0.1, 0.0, 10)
    mask = decay_mask
    oracle = {
        "adamw": optax.adamw(schedule, b1=0.8, weight_decay=0.1, mask=mask),
        "sgd": optax.chain(
            optax.trace(0.8),
            optax.add_decayed_weights(0.1, mask),
            optax.scale_by_learning_rate(schedule),
        ),
    }[name]
    params = []
    for optimizer in (build_optimizer(config, schedule), oracle):

        def three_steps(start, optimizer=optimizer):
            now, state = start, optimizer.init(start)
            for step in range(3):
                grads = jax.tree.map(lambda x, s=step: jnp.cos(x + s), now)
                updates, state = optimizer.update(grads, state, now)
                now = optax.apply_updates(now, updates)
            return now

        params.append(jax.jit(three_steps)(vit_like()))
    jax.tree.map(np.testing.assert_array_equal, *params)


def test_lamb_equals_optax_on_layers_taken_apart():
    kernels = (
        jax.random.normal(jax.random.key(0), (3, 4, 4)) * jnp.array([1.0, 5.0, 0.2])[:, None, None]
    )
    grads = jax.random.normal(jax.random.key(1), (3, 4, 4))
    ours = build_optimizer(OptimizerConfig(name="lamb", weight_decay=0.1), lambda t: 0.1)
    stacked = {"blocks": {"kernel": kernels}}
    updates = _first_update(ours, {"blocks": {"kernel": grads}}, stacked)
    oracle = optax.lamb(0.1, eps=1e-8, weight_decay=0.1)
    apart = {str(i): kernels[i] for i in range(3)}
    expected = _first_update(oracle, {str(i): grads[i] for i in range(3)}, apart)
    for i in range(3):
        np.testing.assert_allclose(updates["blocks"]["kernel"][i], expected[str(i)], rtol=2e-5)


def test_clipping_bounds_the_global_norm():
    config = OptimizerConfig(name="sgd", b1=0.0, weight_decay=0.0, clip_norm=0.5)
    optimizer = build_optimizer(config, lambda t: 1.0)
    params = vit_like()
    updates = _first_update(optimizer, params, params)
    assert float(optax.tree.norm(updates)) == pytest.approx(0.5, rel=1e-5)


def test_the_table_and_the_config_know_the_same_names():
    assert set(RULES) == set(get_args(get_type_hints(OptimizerConfig)["name"]))
