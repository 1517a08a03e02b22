"""Residual wiring: each name's formula, parameters, LayerScale and drop-path, and probes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.models.attention import SoftmaxAttention
from condinit_jax.models.block import Block, Mlp
from condinit_jax.models.norms import norm_layer
from condinit_jax.models.residual import POST_NORM, SKIPS, skip_weights
from condinit_jax.models.vit import ViT
from condinit_jax.spectra import capture, probe_model

TOKENS = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32)
IMAGES = np.random.default_rng(7).standard_normal((2, 8, 8, 3)).astype(np.float32)
ALPHA = 6**0.25

# x, attention, mlp, norm1, norm2 -> the block's output, for a network of three blocks.
FORMULAS = {
    "pre_norm": lambda x, f, g, n, m: (lambda y: y + g(m(y)))(x + f(n(x))),
    "post_norm": lambda x, f, g, n, m: (lambda y: m(y + g(y)))(n(x + f(x))),
    "deepnorm": lambda x, f, g, n, m: (lambda y: m(ALPHA * y + g(y)))(n(ALPHA * x + f(x))),
    "skipless": lambda x, f, g, n, m: g(m(f(n(x)))),
    "skipless_attention": lambda x, f, g, n, m: (lambda y: y + g(m(y)))(f(n(x))),
}


def some_block(residual, **fields):
    return Block(num_heads=2, hidden=16, residual=residual, depth=3, **fields)


def by_formula(residual, params, tokens, scale=1.0):
    def bound(layer, name):
        return lambda x: layer.apply({"params": params[name]}, x)

    def norm(name):
        return bound(norm_layer("layernorm", 1e-6, jnp.float32, name=None), name)

    attention = bound(SoftmaxAttention(2), "attention")
    mlp = bound(Mlp(16), "mlp")
    return FORMULAS[residual](
        tokens,
        lambda x: scale * attention(x),
        lambda x: scale * mlp(x),
        norm("norm1"),
        norm("norm2"),
    )


def test_every_name_has_its_formula_here():
    assert set(FORMULAS) == set(SKIPS)
    assert set(SKIPS) > POST_NORM


@pytest.mark.parametrize("residual", SKIPS)
def test_a_block_is_its_formula_with_the_same_parameters(residual, draw_variables, quick_jit):
    block = some_block(residual)
    variables = draw_variables(block, TOKENS, 0.0)
    shapes = draw_variables(some_block("pre_norm"), TOKENS, 0.0)
    assert jax.tree.map(np.shape, variables) == jax.tree.map(np.shape, shapes)
    found, _ = quick_jit(block.apply)(variables, TOKENS, 0.0)
    expected = quick_jit(lambda p, x: by_formula(residual, p, x))(variables["params"], TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("residual", SKIPS)
def test_layer_scale_multiplies_the_branches_of_every_wiring(residual, draw_variables, quick_jit):
    block = some_block(residual, layer_scale=1.0)
    variables = draw_variables(block, TOKENS, 0.0)
    params = variables["params"]
    for name in ("layer_scale1", "layer_scale2"):
        params[name] = jnp.full_like(params[name], 0.5)
    found, _ = quick_jit(block.apply)(variables, TOKENS, 0.0)
    expected = quick_jit(lambda p, x: by_formula(residual, p, x, 0.5))(params, TOKENS)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("residual", sorted(POST_NORM))
def test_a_post_norm_block_without_its_branches_only_normalises(
    residual, draw_variables, quick_jit
):
    block = some_block(residual, drop=True)
    variables = draw_variables(block, TOKENS, 0.0)
    params = variables["params"]
    # Almost surely every branch is dropped.
    found, _ = quick_jit(block.apply)(
        variables, TOKENS, 1 - 1e-7, rngs={"dropout": jax.random.key(0)}
    )
    expected = by_formula(residual, params, TOKENS, scale=0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def test_deepnorms_skip_grows_with_the_fourth_root_of_depth():
    np.testing.assert_allclose(skip_weights("deepnorm", 18), [36**0.25] * 2)
    assert skip_weights("post_norm", 18) == (1, 1)


@pytest.mark.parametrize("residual", SKIPS)
def test_probes_see_the_tokens_that_enter_queries_in_every_wiring(residual, draw_variables):
    model = ViT(patch_size=4, width=8, depth=2, num_heads=2, num_classes=3, residual=residual)
    variables = draw_variables(model, IMAGES)
    blocks = capture(model, variables, IMAGES)
    assert [block.layer for block in blocks] == [0, 1]

    def watch(v):
        return model.apply(
            v,
            IMAGES,
            capture_intermediates=lambda module, _: module.name in ("norm1", "norm2"),
            mutable=["intermediates"],
        )[1]["intermediates"]["blocks"]

    norms = jax.jit(watch)(variables)
    before, after = (norms[name]["__call__"][0] for name in ("norm1", "norm2"))
    # Post-norm attention reads what the norm at the end of the block below has given.
    expected = after[0] if residual in POST_NORM else before[1]
    np.testing.assert_allclose(blocks[1].tokens, expected, rtol=1e-4, atol=1e-5)
    for example in range(len(IMAGES)):
        head = blocks[1].heads(example)
        assert head.tokens.shape[-2:] == (5, 8)


def test_a_probe_of_a_post_norm_model_has_a_row_for_every_layer_and_head(draw_variables):
    model = ViT(patch_size=4, width=8, depth=2, num_heads=2, num_classes=3, residual="deepnorm")
    probe = probe_model(model, draw_variables(model, IMAGES), IMAGES)
    assert [(row["layer"], row["head"]) for row in probe.rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(row["kappa"] > 1 for row in probe.rows)
