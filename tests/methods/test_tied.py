"""Tied initialization: query equals key."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import methods
from tests.methods.block_methods import block


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_query_heads_equal_the_key_head_of_their_group(kv_heads):
    new = methods.tied(gain=3.0)(jax.random.key(0), block(40, 4, 8, kv_heads=kv_heads))
    group = 4 // kv_heads
    for head in range(4):
        np.testing.assert_array_equal(new.query[:, head], new.key[:, head // group])
    gram = np.einsum("dhi,dhj->hij", new.key, new.key)
    np.testing.assert_allclose(gram, np.broadcast_to(9 * np.eye(8), gram.shape), atol=5e-5)
    assert (new.key[:, 0] != new.key[:, 1]).all()


@pytest.mark.parametrize("value", ["per_head", "joint"])
def test_value_is_that_of_conditioned(value):
    old, key = block(), jax.random.key(0)
    expected = methods.conditioned(value=value)(key, old).value
    np.testing.assert_array_equal(methods.tied(value=value)(key, old).value, expected)


def test_kernels_of_different_widths_cannot_be_equal():
    other = block()._replace(key=jnp.zeros((16, 3, 8)))
    with pytest.raises(ValueError, match="tied: query reads width 24 and key 16"):
        methods.tied()(jax.random.key(0), other)
    assert methods.tied(kernels="value")(jax.random.key(0), other).key is other.key
