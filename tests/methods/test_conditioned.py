"""Conditioned initialization as a method on blocks."""

import jax
import numpy as np

import condinit_jax as cj
from condinit_jax import methods
from tests.methods.block_methods import block

WIDTH, HEADS, DIM = 96, 4, 24


def test_conditioned_rewrites_grouped_queries_and_blocks_without_out():
    old = block(WIDTH, 4, DIM, kv_heads=2, out=False)
    new = methods.conditioned()(jax.random.key(0), old)
    assert new.out is None
    for kernel in (new.query, new.key):
        gram = np.einsum("dhi,dhj->hij", kernel, kernel)
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=5e-6)
    np.testing.assert_array_equal(new.value[:, 1], np.eye(WIDTH, DIM))


def test_conditioned_joint_keeps_the_rank_of_the_stacked_value():
    old = block(WIDTH, HEADS, DIM)
    per_head = methods.conditioned()(jax.random.key(0), old).value.reshape(WIDTH, -1)
    joint = methods.conditioned(value="joint")(jax.random.key(0), old).value.reshape(WIDTH, -1)
    assert np.linalg.matrix_rank(per_head) == DIM
    assert np.linalg.matrix_rank(joint) == WIDTH


def test_conditioned_has_the_law_of_the_kernel_init_route():
    """Entry by entry: the first and second moments over many keys agree with each other."""

    def by_method(key):
        return methods.conditioned()(key, block(WIDTH, HEADS, DIM)).query

    def by_kernel_init(key):
        return cj.conditioned(role="query", num_heads=HEADS)(key, (WIDTH, HEADS, DIM))

    keys = jax.random.split(jax.random.key(0), 60)
    for kernels in (jax.lax.map(by_method, keys), jax.lax.map(by_kernel_init, keys)):
        kernels = np.asarray(kernels)
        assert abs(kernels.mean()) < 5 * (WIDTH * kernels.size) ** -0.5
        np.testing.assert_allclose(np.square(kernels).mean((0, 2, 3)), 1 / WIDTH, rtol=0.15)
        np.testing.assert_allclose(np.square(kernels).mean(), 1 / WIDTH, rtol=1e-5)
