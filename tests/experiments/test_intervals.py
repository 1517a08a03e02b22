"""Intervals that cover what they say, at the few seeds that people run."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from condinit_jax.experiments._intervals import (
    FEWEST,
    mean_interval,
    median_coverage,
    median_interval,
)


@pytest.mark.parametrize("count", [3, 5, FEWEST, 10])
def test_the_interval_of_a_mean_covers_it_at_any_number_of_seeds(count):
    """95 % on normal values; 300 draws make the share of hits uncertain by 1.3 %."""
    rng = np.random.default_rng(0)
    hits = 0
    for _ in range(300):
        found = mean_interval(rng.normal(3.0, 2.0, count))
        hits += found.low <= 3.0 <= found.high
    assert 0.92 <= hits / 300 <= 0.98


def test_with_few_values_it_is_students_t():
    values = np.array([1.0, 4.0, 2.5])
    low, high = stats.t.interval(0.95, 2, values.mean(), stats.sem(values))
    found = mean_interval(values)
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_the_bootstrap_follows_skewed_values():
    values = np.array([0.0, 0.0, 0.1, 0.1, 0.2, 0.2, 0.3, 5.0])
    found = mean_interval(values)
    assert found.high - found.value > found.value - found.low
    assert found.low >= 0.0


@given(
    st.lists(st.floats(-10, 10), min_size=2, max_size=9),
    st.floats(-5, 5),
    st.sampled_from([0.25, 4.0]),
)
def test_intervals_hold_the_mean_and_move_with_the_values(values, shift, scale):
    values = np.array(values)
    found, moved = mean_interval(values), mean_interval(scale * values + shift)
    assert found.low <= found.value + 1e-12
    assert found.value <= found.high + 1e-12
    expected = [scale * end + shift for end in (found.low, found.value, found.high)]
    assert [moved.low, moved.value, moved.high] == pytest.approx(expected, abs=1e-9)


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(1).normal(size=12)
    assert mean_interval(values) == mean_interval(values)


def test_equal_values_have_an_interval_of_no_length():
    assert (found := mean_interval(np.full(8, 0.5))).low == found.high == 0.5


def test_one_value_has_no_interval():
    for found in (
        mean_interval(np.array([2.0])),
        median_interval(2.0, np.array([2.0]), np.array([2.0])),
    ):
        assert found.value == 2.0
        assert np.isnan([found.low, found.high]).all()


@pytest.mark.parametrize("count", [3, 5, 6, 9, 20])
def test_the_interval_of_a_median_covers_it_as_often_as_it_says(count):
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(2000):
        values = rng.exponential(size=count)
        found = median_interval(0.0, values, values)
        hits += found.low <= np.log(2.0) <= found.high
    assert hits / 2000 == pytest.approx(median_coverage(count), abs=0.02)
    assert median_coverage(count) >= 0.95 or count < 6


def test_a_value_without_an_upper_limit_opens_the_interval():
    low = np.array([0.5, 0.6, 0.7, 1.0])
    high = np.array([0.5, 0.6, 0.7, np.inf])
    found = median_interval(0.65, low, high)
    assert (found.low, found.high) == (0.5, np.inf)
