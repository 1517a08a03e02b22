"""Norms: what they normalise, and which parameters each has."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.models.norms import NORMS, norm_layer


@pytest.fixture
def run(quick_jit):
    def init_and_apply(kind, tokens, dtype=jnp.float32):
        layer = norm_layer(kind, 1e-6, dtype, name="norm")
        return quick_jit(layer.init_with_output)(jax.random.key(0), tokens)

    return init_and_apply


@pytest.mark.parametrize(
    ("kind", "names", "oracle"),
    [
        (
            "layernorm",
            {"scale", "bias"},
            lambda x: (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True),
        ),
        ("rmsnorm", {"scale"}, lambda x: x / np.sqrt((x**2).mean(-1, keepdims=True))),
        ("none", set(), lambda x: x),
    ],
)
def test_each_norm_is_its_formula(run, kind, names, oracle):
    tokens = (3 * np.random.default_rng(0).standard_normal((5, 32)) + 1).astype(np.float32)
    normed, variables = run(kind, tokens)
    assert set(variables.get("params", {})) == names
    np.testing.assert_allclose(normed, oracle(tokens), rtol=1e-4, atol=1e-5)


def test_a_large_mean_does_not_cancel_the_variance(run):
    tokens = np.random.default_rng(0).standard_normal((5, 256)).astype(np.float32) + 3000
    normed, _ = run("layernorm", tokens)
    np.testing.assert_allclose(normed.std(-1), 1, rtol=1e-3)


@pytest.mark.parametrize("kind", NORMS)
def test_bfloat16_output_has_float32_parameters(run, kind):
    normed, variables = run(kind, jnp.ones((2, 8), jnp.bfloat16), jnp.bfloat16)
    assert normed.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(variables)} <= {jnp.dtype("float32")}
