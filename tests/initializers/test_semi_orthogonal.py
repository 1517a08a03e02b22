"""Semi-orthogonal kernels against W^T W = I, the SVD, and the Haar law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from condinit_jax import orthogonal, semi_orthogonal
from condinit_jax.initializers import _orthonormal


def orthogonality_error(kernel, num_heads):
    """Largest |W^T W - I|, or |W W^T - I| for heads wider than their input, in float64."""
    width, columns = kernel.shape
    heads = np.moveaxis(np.asarray(kernel, np.float64).reshape(width, num_heads, -1), 1, 0)
    tall = heads if width >= columns // num_heads else heads.swapaxes(1, 2)
    return np.abs(tall.swapaxes(1, 2) @ tall - np.eye(tall.shape[2])).max()


@pytest.mark.parametrize(
    ("width", "num_heads", "head_dim"),
    [
        (768, 12, 64),
        (192, 3, 64),
        (512, 2, 64),
        (64, 1, 64),
        (300, 1, 300),
        (16, 4, 64),
        (64, 2, 768),
        (1, 3, 1),
        (5, 1, 4),
    ],
)
def test_every_head_is_semi_orthogonal_to_rounding(width, num_heads, head_dim):
    kernel = semi_orthogonal(num_heads)(jax.random.key(0), (width, num_heads * head_dim))
    assert orthogonality_error(kernel, num_heads) < 5e-6


def test_float64_heads_are_semi_orthogonal_to_float64_rounding():
    with jax.enable_x64(True):
        for width in (256, 24):
            kernel = semi_orthogonal(3)(jax.random.key(0), (width, 3 * 8), jnp.float64)
            assert orthogonality_error(kernel, 3) < 1e-14


@given(
    width=st.integers(1, 200),
    num_heads=st.integers(1, 5),
    head_dim=st.integers(1, 40),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_shape_and_key_is_semi_orthogonal(width, num_heads, head_dim, seed):
    kernel = semi_orthogonal(num_heads)(jax.random.key(seed), (width, num_heads * head_dim))
    assert orthogonality_error(kernel, num_heads) < 1e-5


def test_the_product_path_gives_the_papers_u_v_transposed():
    key, shape = jax.random.key(0), (3, 768, 64)
    gaussian = np.asarray(jax.random.normal(key, shape), np.float64)
    u, _, vt = np.linalg.svd(gaussian, full_matrices=False)
    assert _orthonormal.is_well_conditioned(768, 64)
    np.testing.assert_allclose(_orthonormal.orthonormal(key, shape, "float32"), u @ vt, atol=2e-6)


def test_raw_keys_and_other_generators_draw_too():
    typed = semi_orthogonal()(jax.random.key(5), (32, 8))
    np.testing.assert_array_equal(semi_orthogonal()(jax.random.PRNGKey(5), (32, 8)), typed)
    other = semi_orthogonal()(jax.random.key(5, impl="rbg"), (32, 8))
    assert orthogonality_error(other, 1) < 5e-6
    assert np.abs(other - typed).max() > 0.1


def test_the_product_path_is_taken_only_where_a_gaussian_is_well_conditioned():
    assert not _orthonormal.is_well_conditioned(64, 64)
    assert not _orthonormal.is_well_conditioned(192, 64)
    rows, columns = 256, 8
    assert _orthonormal.is_well_conditioned(rows, columns)
    low, high = _orthonormal.singular_value_bounds(rows, columns)
    singular_values = np.linalg.svd(
        np.random.default_rng(0).standard_normal((500, rows, columns)), compute_uv=False
    )
    assert low < singular_values.min() < singular_values.max() < high


@pytest.mark.parametrize("shape", [(160, 2), (6, 3), (3, 6)], ids=["products", "qr", "wide"])
def test_heads_are_uniform_over_all_semi_orthogonal_matrices(shape):
    """Haar: every squared entry is Beta(1/2, (n - 1)/2), n the longer side, and signs are even."""
    init = semi_orthogonal()
    kernels = jax.vmap(lambda key: init(key, shape))(jax.random.split(jax.random.key(0), 3000))
    longer = max(shape)
    for entry in (kernels[:, 0, 0], kernels[:, -1, -1], kernels[:, 0, -1]):
        law = stats.beta(0.5, (longer - 1) / 2)
        assert stats.kstest(np.asarray(entry, np.float64) ** 2, law.cdf).pvalue > 1e-4
        assert abs((entry > 0).mean() - 0.5) < 5 * 0.5 / 3000**0.5


def test_heads_of_one_kernel_are_different_draws():
    kernel = semi_orthogonal(6)(jax.random.key(0), (96, 6 * 16)).reshape(96, 6, 16)
    overlap = np.einsum("dgi,dhi->gh", kernel, kernel) / 16
    np.testing.assert_allclose(np.diag(overlap), 1, atol=1e-5)
    assert np.abs(overlap - np.diag(np.diag(overlap))).max() < 0.2


def test_flat_orthogonal_makes_the_stacked_kernel_orthogonal():
    kernel = orthogonal()(jax.random.key(0), (64, 4, 16)).reshape(64, 64)
    assert orthogonality_error(kernel, 1) < 5e-6
    assert orthogonality_error(kernel, 4) < 5e-6


def test_a_flat_orthogonal_kernel_wider_than_its_input_has_no_orthonormal_heads():
    kernel = orthogonal()(jax.random.key(0), (32, 64))
    assert orthogonality_error(kernel, 1) < 5e-6
    assert orthogonality_error(kernel, 4) > 0.1


@pytest.mark.parametrize(
    ("shape", "num_heads", "message"),
    [
        ((64, 60), 8, "num_heads = 8"),
        ((64, 12, 16), 1, "write num_heads=12"),
        ((64,), 1, r"got \(64,\)"),
        ((2, 3, 4, 5), 3, r"got \(2, 3, 4, 5\)"),
        ((64, 64), 0, "at least 1"),
    ],
)
def test_shapes_that_hold_no_such_heads_are_refused(shape, num_heads, message):
    with pytest.raises(ValueError, match=message):
        semi_orthogonal(num_heads)(jax.random.key(0), shape)
