"""The spectrum of the softmax derivative against dense eigenvalues and closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.spectra._softmax_derivative import softmax_derivative_spectrum


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def dense(weights):
    """Eigenvalues of every block but the one of the null vector 1."""
    blocks = (np.diag(row) - np.outer(row, row) for row in weights)
    return np.concatenate([np.linalg.eigvalsh(block)[1:] for block in blocks])


@given(st.integers(1, 6), st.integers(2, 9), st.floats(0, 5), st.integers(0, 100))
def test_it_is_the_non_zero_spectrum_of_the_dense_blocks(rows, columns, sharpness, seed):
    normal = np.random.default_rng(seed).standard_normal((rows, columns))
    weights = softmax(sharpness * normal)
    values = dense(weights)
    record = softmax_derivative_spectrum(weights)
    assert (record.rank, record.dropped) == (rows * (columns - 1), rows)
    np.testing.assert_allclose(record.sigma_max, values.max(), rtol=1e-12)
    # The dense eigenvalues are exact to rounding of the largest only.
    np.testing.assert_allclose(record.sigma_min, values.min(), rtol=1e-8, atol=1e-14)


@pytest.mark.parametrize("small", [1e-3, 1e-20, 1e-150, 1e-300])
def test_two_weights_have_their_closed_form_however_small_one_is(small):
    record = softmax_derivative_spectrum(np.array([[0.5, 0.5], [1 - small, small]]))
    exact = 2 * small * (1 - small)
    np.testing.assert_allclose([record.sigma_min, record.sigma_max], [exact, 0.5], rtol=1e-14)


def test_uniform_weights_have_one_value():
    record = softmax_derivative_spectrum(np.full((5, 7), 1 / 7))
    np.testing.assert_allclose([record.sigma_min, record.sigma_max], 1 / 7, rtol=1e-14)
    assert record.kappa == pytest.approx(1, rel=1e-14)


def test_hidden_keys_and_lone_keys_are_null_directions():
    weights = np.array([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.2, 0.3, 0.5]])
    record = softmax_derivative_spectrum(weights)
    assert (record.rank, record.size, record.dropped) == (3, 9, 6)
    expected = np.append(
        np.linalg.eigvalsh(np.diag(weights[2]) - np.outer(weights[2], weights[2]))[1:], 0.48
    )
    np.testing.assert_allclose(
        [record.sigma_min, record.sigma_max], [expected.min(), expected.max()], rtol=1e-13
    )


def test_without_any_non_zero_value_kappa_is_infinite():
    record = softmax_derivative_spectrum(np.eye(3))
    assert (record.kappa, record.rank) == (np.inf, 0)
    assert record.warning == "every singular value is zero"
