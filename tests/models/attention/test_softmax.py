"""SoftmaxAttention: Flax's attention on the same parameters, and what it adds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from condinit_jax.models.attention import SoftmaxAttention

TOKENS = np.random.default_rng(1).standard_normal((2, 7, 12)).astype(np.float32)


def test_parameters_and_output_are_those_of_flax(draw_variables, quick_jit):
    ours, theirs = SoftmaxAttention(3), nn.MultiHeadDotProductAttention(3)
    variables = draw_variables(theirs, TOKENS, scale=1.0)
    shapes = jax.eval_shape(ours.init, jax.random.key(0), TOKENS)
    assert jax.tree.map(jnp.shape, shapes) == jax.tree.map(jnp.shape, variables)
    np.testing.assert_allclose(
        quick_jit(ours.apply)(variables, TOKENS),
        quick_jit(theirs.apply)(variables, TOKENS),
        rtol=1e-4,
        atol=1e-4,
    )


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm"])
def test_qk_norm_makes_logits_blind_to_the_size_of_the_kernels(draw_variables, quick_jit, norm):
    layer = SoftmaxAttention(3, qk_norm=True, norm=norm)
    variables = draw_variables(layer, TOKENS, scale=1.0)
    params = variables["params"]
    larger = {**params, "query": jax.tree.map(lambda leaf: 100 * leaf, params["query"])}
    apply = quick_jit(layer.apply)
    np.testing.assert_allclose(
        apply({"params": larger}, TOKENS),
        apply(variables, TOKENS),
        rtol=1e-3,
        atol=1e-3,
    )
    assert params["query_norm"]["scale"].shape == params["key_norm"]["scale"].shape == (4,)


def test_bfloat16_accumulates_logits_in_float32(draw_variables):
    layer = SoftmaxAttention(3, dtype=jnp.bfloat16)
    jaxpr = jax.make_jaxpr(layer.apply)(draw_variables(layer, TOKENS, scale=1.0), TOKENS)
    exponents = [line for line in str(jaxpr).splitlines() if " exp " in line]
    assert exponents
    assert all("f32[" in line for line in exponents)


def test_tokens_are_equivariant_to_permutation(draw_variables, quick_jit):
    layer = SoftmaxAttention(3)
    variables, order = draw_variables(layer, TOKENS, scale=1.0), np.array([3, 0, 6, 1, 5, 2, 4])
    apply = quick_jit(layer.apply)
    np.testing.assert_allclose(
        apply(variables, TOKENS[:, order]),
        apply(variables, TOKENS)[:, order],
        rtol=1e-4,
        atol=1e-4,
    )
