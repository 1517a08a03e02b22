"""Condition numbers of matrices whose singular values are known."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.errors import UserError
from condinit_jax.spectra import condition_number


def with_values(values, rows, columns, seed=0, dtype=np.float64):
    """A matrix with these singular values, and zeros: orthogonal x diagonal x orthogonal."""
    generator = np.random.default_rng(seed)
    left, right = (np.linalg.qr(generator.standard_normal((n, n)))[0] for n in (rows, columns))
    middle = np.zeros((rows, columns))
    middle[range(len(values)), range(len(values))] = values
    return (left @ middle @ right).astype(dtype)


SPECTRA = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=6)


@given(SPECTRA, st.integers(0, 3), st.integers(0, 3), st.integers(0, 99))
def test_a_prescribed_spectrum_is_found(values, more_rows, more_columns, seed):
    matrix = with_values(values, len(values) + more_rows, len(values) + more_columns, seed)
    record = condition_number(matrix)
    size = len(values) + min(more_rows, more_columns)
    assert record.kappa == pytest.approx(max(values) / min(values), rel=1e-8)
    assert record.sigma_max == pytest.approx(max(values), rel=1e-12)
    assert record.sigma_min == pytest.approx(min(values), rel=1e-8)
    assert (record.rank, record.size, record.dropped) == (len(values), size, size - len(values))
    np.testing.assert_allclose(
        record.singular_values[: len(values)], sorted(values, reverse=True), rtol=1e-8
    )


@given(SPECTRA, st.floats(1e-6, 1e6), st.integers(0, 99))
def test_scale_and_rotations_change_nothing(values, scale, seed):
    matrix = with_values(values, len(values) + 1, len(values), seed)
    turned = with_values(np.ones(len(values)), len(values), len(values), seed + 1)
    record, other = condition_number(matrix), condition_number(scale * matrix @ turned)
    assert other.kappa == pytest.approx(record.kappa, rel=1e-8)
    assert other.rank == record.rank


@given(SPECTRA, st.integers(0, 99))
def test_the_matrix_its_transpose_and_its_values_agree(values, seed):
    matrix = with_values(values, len(values), len(values) + 2, seed)
    record = condition_number(matrix)
    for same in (matrix.T, np.random.default_rng(seed).permutation(values), -np.array(values)):
        other = condition_number(same)
        assert (other.rank, other.size) == (record.rank, record.size)
        assert other.kappa == pytest.approx(record.kappa, rel=1e-8)


def test_the_tolerance_decides_what_is_zero():
    matrix = with_values([1.0, 1e-3, 1e-9], 5, 4)
    for rtol, rank, kappa in ((None, 3, 1e9), (1e-6, 2, 1e3), (1e-2, 1, 1.0)):
        record = condition_number(matrix, rtol)
        assert (record.rank, record.dropped) == (rank, 4 - rank)
        assert record.kappa == pytest.approx(kappa, rel=1e-5)
    assert condition_number(matrix, 1e-6).rtol == 1e-6
    assert condition_number(matrix).rtol == 5 * np.finfo(np.float64).eps


def test_a_value_at_the_tolerance_is_dropped():
    assert condition_number(np.array([4.0, 2.0, 1.0]), 0.5).rank == 1
    assert condition_number(np.array([4.0, 2.0, 1.0]), 0.0).rank == 3


def test_exact_zeros_are_dropped_even_without_tolerance():
    record = condition_number(np.array([2.0, 1.0, 0.0]), 0.0)
    assert (record.kappa, record.rank, record.dropped) == (2.0, 2, 1)


def test_a_zero_matrix_has_no_finite_kappa_and_says_so():
    record = condition_number(np.zeros((3, 2)))
    assert (record.kappa, record.sigma_max, record.sigma_min) == (math.inf, 0.0, 0.0)
    assert (record.rank, record.size, record.dropped) == (0, 2, 2)
    assert record.warning == "every singular value is zero"
    assert "every singular value is zero" in str(record)


def test_values_that_were_left_out_count_as_dropped():
    record = condition_number(np.array([3.0, 1.0]), size=10)
    assert (record.kappa, record.rank, record.size, record.dropped) == (3.0, 2, 10, 8)
    assert record.rtol == 10 * np.finfo(np.float64).eps


def test_float32_is_judged_by_its_own_epsilon():
    values = [1.0, 0.5, 1e-9]
    record = condition_number(with_values(values, 4, 4, dtype=np.float32))
    assert (record.rank, record.dtype) == (2, "float32")
    assert record.kappa == pytest.approx(2, rel=1e-5)
    double = condition_number(with_values(values, 4, 4))
    assert (double.rank, double.dtype) == (3, "float64")


def test_jax_arrays_and_low_precisions_are_taken():
    assert condition_number(jnp.array([4.0, 1.0])).dtype == "float32"
    half = condition_number(jnp.array([[4.0, 0.0], [0.0, 1.0]], jnp.bfloat16))
    assert (half.kappa, half.dtype) == (4.0, "float32")
    assert condition_number(np.diag([4, 2])).kappa == 2.0
    with jax.enable_x64(True):
        assert condition_number(jnp.array([4.0, 1.0])).dtype == "float64"


def test_extended_precision_is_rounded_to_float64():
    record = condition_number(np.diag([1, 1e-10]).astype(np.longdouble))
    assert (record.kappa, record.dtype) == (pytest.approx(1e10), "float64")


def test_more_values_than_the_size_are_a_mistake():
    with pytest.raises(UserError, match="size = 2: must be at least the 3 singular values"):
        condition_number(np.ones(3), size=2)


def test_a_figure_at_the_limit_of_its_precision_carries_a_warning():
    record = condition_number(with_values([1.0, 3e-14], 2, 2))
    assert record.rank == 2
    assert "near the limit of the precision" in record.warning
    assert record.error > 1e-3
    assert condition_number(with_values([1.0, 1e-3], 2, 2)).warning == ""


def test_the_estimated_error_covers_the_true_one():
    for smallest in (1e-3, 1e-6, 1e-9):
        record = condition_number(with_values([1.0, 0.3, smallest], 20, 30))
        assert abs(record.kappa * smallest - 1) < 10 * record.error


def test_a_sentence_says_what_was_counted():
    assert str(condition_number(np.array([4.0, 2.0, 0.0]), 1e-3)) == (
        "kappa 2 (rank 2 of 3, rtol 0.001, svd, float64)"
    )


@pytest.mark.parametrize(
    ("matrix", "rtol", "message"),
    [
        (np.ones((2, 2, 2)), None, r"shape \(2, 2, 2\) is neither a matrix nor singular values"),
        (np.ones(()), None, r"shape \(\) is neither"),
        (np.ones((0, 3)), None, r"shape \(0, 3\) is neither"),
        (np.array([[1.0, np.nan], [np.inf, 1.0]]), None, "2 of 4 numbers are not finite"),
        (np.eye(2) * 1j, None, "dtype complex128; give real numbers"),
        (np.ones(3), 1.0, r"rtol = 1.0: must be in \[0, 1\)"),
        (np.ones(3), -0.1, "rtol = -0.1: must be in"),
        (np.ones(3), math.nan, "rtol = nan: must be in"),
    ],
)
def test_mistakes_are_told_in_one_line(matrix, rtol, message):
    with pytest.raises(UserError, match=message) as caught:
        condition_number(matrix, rtol)
    assert "\n" not in str(caught.value)
