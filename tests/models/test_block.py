"""Blocks and stacks: MLP, LayerScale, drop-path, and a scan that equals a loop."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from condinit_jax.models.block import Block, Mlp, gelu, stacked

TOKENS = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)


def test_gelu_is_the_exact_one_and_so_is_its_slope(quick_jit):
    values = np.linspace(-8, 8, 101, dtype=np.float32)
    found, slope = quick_jit(jax.vmap(jax.value_and_grad(gelu)))(values)
    np.testing.assert_allclose(found, values * scipy.stats.norm.cdf(values), rtol=1e-5, atol=1e-6)
    expected = scipy.stats.norm.cdf(values) + values * scipy.stats.norm.pdf(values)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


def test_gelu_in_bfloat16_is_the_rounded_exact_value(quick_jit):
    values = jnp.linspace(-4, 4, 65, dtype=jnp.bfloat16)
    found = quick_jit(gelu)(values)
    assert found.dtype == jnp.bfloat16
    wide = np.asarray(values, np.float32)
    expected = wide * scipy.stats.norm.cdf(wide)
    np.testing.assert_allclose(np.asarray(found, np.float32), expected, rtol=2**-8, atol=1e-6)


def test_the_mlp_has_an_exact_gelu(draw_variables):
    layer = Mlp(6)
    variables = draw_variables(layer, TOKENS)
    params = variables["params"]
    hidden = TOKENS @ params["fc1"]["kernel"] + params["fc1"]["bias"]
    hidden = hidden * scipy.stats.norm.cdf(hidden)
    expected = hidden @ params["fc2"]["kernel"] + params["fc2"]["bias"]
    np.testing.assert_allclose(layer.apply(variables, TOKENS), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_scale_of_zero_leaves_the_tokens(draw_variables, quick_jit):
    block = Block(num_heads=2, hidden=16, layer_scale=1.0)
    variables = draw_variables(block, TOKENS, 0.0)
    params = variables["params"]
    for name in ("layer_scale1", "layer_scale2"):
        params[name] = jnp.zeros_like(params[name])
    tokens, _ = quick_jit(block.apply)(variables, TOKENS, 0.0)
    np.testing.assert_array_equal(tokens, TOKENS)


def test_layer_scale_starts_at_its_value(quick_jit):
    block = Block(num_heads=2, hidden=16, layer_scale=0.25)
    params = quick_jit(block.init)(jax.random.key(0), TOKENS, 0.0)["params"]
    np.testing.assert_array_equal(params["layer_scale1"], 0.25)
    np.testing.assert_array_equal(params["layer_scale2"], 0.25)


@pytest.mark.parametrize("unroll", [1, 2])
def test_a_stack_is_its_blocks_one_after_the_other(draw_variables, quick_jit, unroll):
    block = Block(num_heads=2, hidden=16)
    stack = stacked(Block, 3, unroll=unroll, remat=False)(num_heads=2, hidden=16)
    variables = draw_variables(stack, TOKENS, np.zeros(3))
    found, _ = quick_jit(stack.apply)(variables, TOKENS, jnp.zeros(3))
    layers = [jax.tree.map(lambda leaf, i=i: leaf[i], variables) for i in range(3)]
    apply, tokens = quick_jit(block.apply), TOKENS
    for layer in layers:
        tokens, _ = apply(layer, tokens, 0.0)
    np.testing.assert_allclose(found, tokens, rtol=1e-4, atol=1e-4)


def test_every_layer_drops_at_its_own_rate_with_its_own_draw(draw_variables, quick_jit):
    stack = stacked(Block, 3, unroll=1, remat=False)(num_heads=2, hidden=16, drop=True)
    variables = draw_variables(stack, TOKENS, np.zeros(3))
    tokens = jnp.broadcast_to(TOKENS[:1], (64, 5, 8))
    found, _ = quick_jit(stack.apply)(
        variables, tokens, jnp.array([0.0, 0.5, 0.0]), rngs={"dropout": jax.random.key(0)}
    )
    # Two branches of the one dropping layer: all four ways of dropping them, and no other.
    distinct = np.unique(np.round(np.asarray(found[:, 0, 0]), 3))
    assert len(distinct) == 4
