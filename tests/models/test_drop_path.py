"""drop_path: whole examples, an unchanged expectation, rates linear over layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.models.drop_path import drop_path, drop_path_rates


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_it_drops_whole_examples_and_keeps_the_expectation(rate):
    branch = jax.random.normal(jax.random.key(0), (20_000, 3)) + 2.0
    factors = np.asarray(drop_path(branch, rate, jax.random.key(1)) / branch)
    np.testing.assert_allclose(factors, np.repeat(factors[:, :1], 3, axis=1), rtol=1e-5)
    dropped = factors[:, 0] == 0
    np.testing.assert_allclose(factors[~dropped], 1 / (1 - rate), rtol=1e-5)
    # Five standard errors of the mean of 20,000 draws.
    tolerance = 5 * np.sqrt(rate * (1 - rate) / len(factors))
    assert abs(dropped.mean() - rate) < tolerance
    assert abs(factors.mean() - 1) < tolerance / (1 - rate)


def test_rate_zero_is_the_identity_and_the_rate_may_be_traced():
    branch = jax.random.normal(jax.random.key(0), (5, 4, 2), jnp.bfloat16)
    kept = jax.jit(drop_path)(branch, 0.0, jax.random.key(1))
    assert kept.dtype == jnp.bfloat16
    np.testing.assert_array_equal(kept.astype(jnp.float32), branch.astype(jnp.float32))


@pytest.mark.parametrize(
    ("depth", "expected"), [(1, [0.0]), (2, [0, 0.3]), (4, [0, 0.1, 0.2, 0.3])]
)
def test_rates_rise_linearly_from_zero_to_the_last_layer(depth, expected):
    np.testing.assert_allclose(drop_path_rates(0.3, depth), expected, rtol=1e-6)
