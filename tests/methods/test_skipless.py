"""Skipless initialization: the singular values of W_V W_O."""

import jax
import numpy as np
import pytest

from condinit_jax import methods
from tests.methods.block_methods import block


@pytest.mark.parametrize(("width", "heads", "dim"), [(48, 3, 16), (48, 2, 16), (12, 2, 16)])
def test_all_singular_values_of_value_times_out_are_the_gain_squared(width, heads, dim):
    new = methods.skipless(value_gain=1.5)(jax.random.key(0), block(width, heads, dim))
    product = np.asarray(new.value).reshape(width, -1) @ np.asarray(new.out).reshape(-1, width)
    s = np.linalg.svd(product.astype(np.float64), compute_uv=False)
    rank = min(width, heads * dim)
    np.testing.assert_allclose(s[:rank], 1.5**2, rtol=1e-5)
    np.testing.assert_allclose(s[rank:], 0, atol=1e-5)


def test_value_and_out_are_unrelated_matrices():
    new = methods.skipless()(jax.random.key(0), block(48, 3, 16))
    value, out = np.asarray(new.value).reshape(48, 48), np.asarray(new.out).reshape(48, 48)
    for kernel in (value, out):
        np.testing.assert_allclose(kernel.T @ kernel, 9 * np.eye(48), atol=1e-4)
    assert abs(np.trace(value @ out)) < 9 * 5
    assert np.abs(value - out.T).max() > 1


def test_query_and_key_are_mimetic_ones_of_other_strengths():
    old, key = block(), jax.random.key(0)
    other = methods.mimetic(query_key_noise=2.0, query_key_identity=0.6)(key, old)
    new = methods.skipless()(key, old)
    np.testing.assert_array_equal(new.query, other.query)
    np.testing.assert_array_equal(new.key, other.key)
