"""Draws that no mesh of devices takes apart."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from condinit_jax.initializers._indivisible import indivisible

CONSTANT = np.arange(24.0, dtype=np.float32).reshape(3, 8)


def draw(keys, constant, rows):
    """A sum over an axis that a mesh would split, and a rank of its own."""
    return jax.vmap(lambda key: jax.random.normal(key, (8, rows)) @ constant[:rows] * 0.1)(keys)


def once(key, rows=3):
    return indivisible(draw, key, rows, constants=(CONSTANT,))


def test_it_is_the_draw_itself():
    key = jax.random.key(0)
    np.testing.assert_allclose(once(key), draw(key[None], jnp.asarray(CONSTANT), 3)[0], rtol=1e-5)
    raw = jax.random.PRNGKey(0)
    np.testing.assert_allclose(once(raw), once(key), rtol=1e-6)


def test_it_can_be_batched_and_its_bits_do_not_depend_on_the_mesh():
    keys = jax.random.split(jax.random.key(0), 6).reshape(2, 3)
    batched = jax.vmap(jax.vmap(once))(keys)
    np.testing.assert_allclose(batched[1, 2], once(keys[1, 2]), rtol=1e-5)
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    plain = jax.jit(once)(keys[0, 0])
    for spec in (P("a"), P(None, "a")):
        sharded = jax.jit(once, out_shardings=NamedSharding(mesh, spec))(keys[0, 0])
        np.testing.assert_array_equal(sharded, plain)
