"""Steps to a target, with runs that never reach it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.experiments._speed import (
    censored_median,
    first_reached,
    mean_over_steps,
    speed_against,
)


def curve(*values, every=10):
    return [(every * place, value) for place, value in enumerate(values, 1)]


def test_the_first_passage_counts_even_where_the_curve_falls_again():
    assert first_reached(curve(0.1, 0.6, 0.4, 0.7), 0.5) == 20
    assert first_reached(curve(0.1, 0.2), 0.5) == np.inf


def test_the_reference_against_itself_needs_all_of_its_steps_whenever_it_touched_its_end():
    noisy = curve(0.5, 0.8, 0.7, 0.75, 0.78)
    assert speed_against([(0, noisy, noisy)]).ratios == ((0, 1.0, False),)


def test_a_run_that_never_gets_there_counts_with_a_lower_bound():
    reference = curve(0.4, 0.6, 0.8)
    found = speed_against(
        [
            (0, curve(0.6, 0.8, 0.8), reference),
            (1, curve(0.1, 0.2, 0.3), reference),
            (2, curve(0.8, 0.8, 0.8), reference),
        ]
    )
    assert found.ratios == ((0, pytest.approx(2 / 3), False), (1, 1.0, True), (2, 1 / 3, False))
    assert (found.reached, found.count) == (2, 3)
    assert found.ratio.value == pytest.approx(2 / 3)
    assert (found.ratio.low, found.ratio.high) == (pytest.approx(1 / 3), np.inf)


def test_where_most_never_get_there_the_ratio_is_infinite():
    reference = curve(0.4, 0.6, 0.8)
    found = speed_against([(s, curve(0.1, 0.1, 0.1), reference) for s in range(3)])
    assert (found.ratio.value, found.reached) == (np.inf, 0)


def test_what_a_run_has_before_its_first_step_is_no_step_to_it():
    collapsed, learns = [(0, 0.1), (10, 0.1), (20, 0.1)], [(0, 0.1), (10, 0.05), (20, 0.3)]
    found = speed_against([(0, learns, collapsed), (1, collapsed, learns)])
    assert found.ratios == ((0, 2.0, False), (1, 1.0, True))
    assert speed_against([(0, learns, [(0, 0.1)])]).ratio is None


def test_without_pairs_there_is_no_ratio():
    assert speed_against([]).ratio is None


@given(st.lists(st.floats(0.1, 9.0), min_size=1, max_size=9))
def test_without_censoring_the_median_is_the_usual_one(values):
    values = np.array(values)
    assert censored_median(values, np.zeros(len(values), bool)) == pytest.approx(np.median(values))


def test_a_worked_example_with_censoring():
    """S falls to 4/5, then (after one censored value) to 4/5 * 2/3 = 8/15, then to 4/15."""
    values = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    censored = np.array([False, True, False, False, True])
    assert censored_median(values, censored) == 4.0


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6), st.integers(1, 50))
def test_the_mean_over_the_steps_lies_within_the_curve(values, every):
    found = mean_over_steps(curve(*values, every=every))
    assert min(values) - 1e-12 <= found <= max(values) + 1e-12


def test_the_mean_over_the_steps_of_a_line_is_its_middle():
    assert mean_over_steps([(0, 0.0), (30, 0.3), (100, 1.0)]) == pytest.approx(0.5)
