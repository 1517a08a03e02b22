"""spectral_map: its values, and gradients where automatic differentiation of an SVD fails."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condinit_jax.models.spectral_map import spectral_map, svd

EXPONENT, FLOOR = 0.6, 0.01


def gain(ratios):
    """Of the power, constant below a floor that finite differences stay under."""
    return jnp.maximum(ratios, FLOOR) ** (EXPONENT - 1)


def oracle(matrix):
    left, values, right = np.linalg.svd(matrix, full_matrices=False)
    ratios = values / values[0]
    return left * (ratios * np.maximum(ratios, FLOOR) ** (EXPONENT - 1)) @ right


def prescribed(rows, columns, values, seed=0):
    """A matrix with these singular values, and zeros if they are fewer than its sides."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((rows, len(values))))
    right, _ = np.linalg.qr(rng.standard_normal((columns, len(values))))
    return left * np.asarray(values) @ right.T


def two_equal_tokens(rows, columns):
    matrix = np.random.default_rng(3).standard_normal((rows, columns))
    matrix[1] = matrix[0]
    return matrix


@functools.cache
def pull_back():
    def run(matrix, cotangent):
        value, back = jax.vjp(lambda X: spectral_map(X, gain), matrix)
        return value, back(cotangent)[0]

    return jax.jit(run)


MATRICES = {
    "square": np.random.default_rng(0).standard_normal((5, 5)),
    "more tokens than width": np.random.default_rng(1).standard_normal((7, 4)),
    "more width than tokens": np.random.default_rng(2).standard_normal((4, 7)),
    "equal singular values": prescribed(6, 4, [3, 1, 1, 0.5]),
    "all but the largest equal": prescribed(4, 6, [3, 1, 1, 1]),
    "nearly equal singular values": prescribed(5, 5, [3, 1, 1 - 1e-7, 0.7, 0.7 + 1e-5]),
    "two equal tokens, more tokens than width": two_equal_tokens(4, 3),
    "two equal tokens, more width than tokens": two_equal_tokens(4, 6),
    "rank two of five": prescribed(5, 5, [2, 1]),
    "rank two, tall": prescribed(7, 4, [2, 1]),
    "rank two, wide": prescribed(4, 7, [2, 1]),
    "one token": np.random.default_rng(4).standard_normal((1, 5)),
    "one channel": np.random.default_rng(5).standard_normal((5, 1)),
}


@pytest.mark.parametrize("case", MATRICES)
def test_values_and_gradients_are_those_of_finite_differences(case):
    matrix = MATRICES[case]
    rng = np.random.default_rng(9)
    cotangent, step = rng.standard_normal(matrix.shape), 1e-6
    with jax.enable_x64(True):
        value, gradient = pull_back()(matrix, cotangent)
    np.testing.assert_allclose(value, oracle(matrix), rtol=0, atol=1e-12)
    entries = [np.zeros_like(matrix) for _ in range(matrix.size)]
    for index, entry in enumerate(entries):
        entry.flat[index] = step
    expected = [
        np.sum(cotangent * (oracle(matrix + entry) - oracle(matrix - entry))) / (2 * step)
        for entry in entries
    ]
    scale = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(np.ravel(gradient), expected, rtol=0, atol=1e-7 * scale)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_gradients_are_jaxs_own_where_its_svd_has_one(shape):
    rng = np.random.default_rng(1)
    matrix, cotangent = rng.standard_normal(shape), rng.standard_normal(shape)

    def by_jax(X):
        left, values, right = jnp.linalg.svd(X, full_matrices=False)
        ratios = values / values.max()
        return left * (ratios * gain(ratios)) @ right

    with jax.enable_x64(True):
        expected = jax.jit(lambda X, G: jax.vjp(by_jax, X)[1](G)[0])(matrix, cotangent)
        _, found = pull_back()(matrix, cotangent)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("shape", [(4, 4), (6, 3), (3, 6)])
def test_second_derivatives_are_those_of_finite_differences_where_singular_values_differ(shape):
    rng = np.random.default_rng(6)
    matrix, cotangent, inner, outer = (rng.standard_normal(shape) for _ in range(4))

    def slope(X):
        return jnp.sum(jax.vjp(lambda X: spectral_map(X, gain), X)[1](cotangent)[0] * inner)

    with jax.enable_x64(True):
        second = np.asarray(jax.jit(jax.grad(slope))(matrix))
        above, below = (float(jax.jit(slope)(matrix + sign * 1e-6 * outer)) for sign in (1, -1))
    np.testing.assert_allclose(np.sum(second * outer), (above - below) / 2e-6, rtol=1e-6)


@pytest.mark.parametrize("rank", [1, 3, 4])
def test_several_largest_singular_values_share_the_gradient_of_the_largest(rank):
    # The map is of degree 0: its gradient is orthogonal to X whichever subgradient is taken.
    # U f V^T = X / max S wherever all its singular values are 0 or the largest one.
    matrix = prescribed(4, 5, [2.0] * rank)
    cotangent = np.random.default_rng(2).standard_normal(matrix.shape)
    with jax.enable_x64(True):
        value, gradient = map(np.asarray, pull_back()(matrix, cotangent))
    np.testing.assert_allclose(value, matrix / 2, rtol=0, atol=1e-12)
    assert np.abs(np.sum(gradient * matrix)) < 1e-10
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("largest", [1, 2, 4])
def test_a_linear_map_of_singular_values_has_the_gradient_of_x_over_its_norm(largest):
    matrix = prescribed(4, 6, [3] * largest + [1, 1, 0][: 4 - largest])
    cotangent = np.random.default_rng(3).standard_normal(matrix.shape)
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    mean = left[:, :largest] @ right[:largest] / largest  # of the largest's gradients
    expected = cotangent / 3 - np.sum(cotangent * matrix) / 9 * mean
    with jax.enable_x64(True):
        run = jax.jit(lambda X, G: jax.vjp(lambda X: spectral_map(X, jnp.ones_like), X)[1](G)[0])
        gradient = run(matrix, cotangent)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12)


def test_a_zero_matrix_stays_zero_with_a_finite_gradient():
    with jax.enable_x64(True):
        value, gradient = pull_back()(np.zeros((3, 4)), np.ones((3, 4)))
    np.testing.assert_array_equal(value, 0)
    assert np.isfinite(gradient).all()


def test_gradients_in_float32_are_near_those_in_float64():
    matrix = prescribed(6, 4, [3, 1, 0.999, 1e-3])
    cotangent = np.random.default_rng(4).standard_normal(matrix.shape)
    _, narrow = pull_back()(matrix.astype(np.float32), cotangent.astype(np.float32))
    with jax.enable_x64(True):
        _, wide = pull_back()(matrix, cotangent)
    assert narrow.dtype == jnp.float32
    np.testing.assert_allclose(narrow, wide, rtol=0, atol=2e-4 * np.abs(wide).max())


@settings(max_examples=4)
@given(
    rows=st.integers(1, 5), columns=st.integers(1, 5), batch=st.sampled_from([(1,), (3,), (2, 2)])
)
def test_a_batch_is_its_matrices_one_by_one(rows, columns, batch):
    matrices = np.random.default_rng(rows).standard_normal((*batch, rows, columns))
    cotangents = np.random.default_rng(columns).standard_normal(matrices.shape)
    with jax.enable_x64(True):
        found = pull_back()(matrices, cotangents)
        flat = (-1, rows, columns)
        alone = [
            pull_back()(*pair)
            for pair in zip(matrices.reshape(flat), cotangents.reshape(flat), strict=True)
        ]
    for together, apart in zip(found, zip(*alone, strict=True), strict=True):
        np.testing.assert_allclose(together, np.reshape(apart, matrices.shape), rtol=0, atol=1e-11)


def test_a_batch_on_several_devices_gives_the_same():
    matrices = np.random.default_rng(0).standard_normal((8, 4, 6)).astype(np.float32)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))

    @jax.jit
    def run(X):
        value, back = jax.vjp(lambda X: spectral_map(X, gain), X)
        return value, back(jnp.ones_like(value))[0]

    together, apart = run(matrices), run(jax.device_put(matrices, sharding))
    np.testing.assert_allclose(together[0], apart[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(together[1], apart[1], rtol=0, atol=1e-6)


def test_the_thin_svd_puts_its_factors_together():
    matrices = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    left, values, right = jax.jit(svd)(matrices)
    assert (left.shape, values.shape, right.shape) == ((2, 3, 3), (2, 3), (2, 3, 5))
    np.testing.assert_allclose((left * values[:, None]) @ right, matrices, atol=1e-5)
