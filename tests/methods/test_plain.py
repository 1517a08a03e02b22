"""The plain initializers as methods on blocks."""

import jax
import numpy as np
import pytest

import condinit_jax as cj
from condinit_jax import initializers, methods
from condinit_jax.kernels import ROLES
from tests.methods.block_methods import block

WIDTH, HEADS, DIM = 96, 4, 24
DRAWN = ["small", *(n for n in methods.METHODS if n.endswith(("normal", "uniform")))]


@pytest.mark.parametrize("name", DRAWN)
def test_plain_methods_take_the_out_kernel_along_when_asked(name):
    new = methods.METHODS[name](kernels=ROLES)(jax.random.key(0), block(WIDTH, HEADS, DIM))
    assert new.out.shape == (HEADS, DIM, WIDTH)
    init = getattr(initializers, name)()
    reference = np.std(init(jax.random.key(1), (HEADS * DIM, WIDTH)))
    assert abs(np.std(new.out) / reference - 1) < 0.05
    assert abs(np.std(new.query) / reference - 1) < 0.05  # the widths are equal, and so the fans


@pytest.mark.parametrize(
    ("name", "deviation"),
    [
        ("truncated_normal", 0.02),
        ("normal", 0.02),
        ("xavier_uniform", (2 / (96 + 48)) ** 0.5),
        ("xavier_normal", (2 / (96 + 48)) ** 0.5),
        ("he_uniform", (2 / 96) ** 0.5),
        ("he_normal", (2 / 96) ** 0.5),
        ("lecun_uniform", (1 / 96) ** 0.5),
        ("lecun_normal", (1 / 96) ** 0.5),
        ("small", 1 / 96),
    ],
)
def test_moments_are_those_of_the_flat_kernel(name, deviation):
    new = methods.METHODS[name]()(jax.random.key(0), block(96, 4, 12))
    for kernel in (new.query, new.key, new.value):
        assert abs(np.std(kernel) / deviation - 1) < 0.05
        assert abs(np.mean(kernel)) < 5 * deviation / kernel.size**0.5


def test_small_at_one_half_has_the_usual_deviation():
    usual = methods.lecun_normal()(jax.random.key(0), block(96, 4, 12))
    half = methods.small(gamma=0.5)(jax.random.key(0), block(96, 4, 12))
    np.testing.assert_allclose(half.query, usual.query, rtol=1e-6)


def test_orthogonal_is_one_matrix_for_all_heads():
    new = methods.orthogonal(kernels=ROLES)(jax.random.key(0), block(WIDTH, HEADS, DIM))
    for kernel in (new.query.reshape(WIDTH, -1), new.out.reshape(-1, WIDTH)):
        np.testing.assert_allclose(kernel.T @ kernel, np.eye(WIDTH), atol=5e-6)


def test_semi_orthogonal_makes_the_value_heads_random_too():
    value = methods.semi_orthogonal()(jax.random.key(0), block(WIDTH, HEADS, DIM)).value
    gram = np.einsum("dhi,dhj->hij", value, value)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=5e-6)


def test_lifted_takes_any_initializer():
    method = methods.lifted(jax.nn.initializers.constant(2.0), kernels=("out",))
    new = method(jax.random.key(0), block())
    assert (new.out == 2).all()
    assert cj.methods.lifted is methods.lifted
