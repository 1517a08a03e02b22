"""P values against scipy's, closed forms and enumeration."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from condinit_jax.experiments._hypotheses import holm, paired_t, rank_correlation, sign_flip

ORDERS = list(itertools.permutations([1.0, 2.0, 2.0, 5.0, 9.0]))

values = st.lists(
    st.floats(-5, 5).filter(lambda x: x == 0 or abs(x) > 1e-3), min_size=2, max_size=8
).map(np.array)


@given(values)
def test_a_paired_t_test_is_scipys(differences):
    if np.ptp(differences) > 0:
        assert paired_t(differences) == pytest.approx(
            stats.ttest_rel(differences, np.zeros_like(differences)).pvalue
        )


@given(values)
def test_flipping_signs_is_scipys_permutation_test(differences):
    expected = stats.permutation_test(
        (differences,),
        lambda x: abs(np.sum(x)),
        permutation_type="samples",
        alternative="greater",
        n_resamples=np.inf,
        vectorized=False,
    ).pvalue
    assert sign_flip(differences) == pytest.approx(expected)


@pytest.mark.parametrize("count", [1, 3, 5, 10])
def test_signs_can_say_no_more_than_their_number_allows(count):
    assert sign_flip(np.linspace(1.0, 2.0, count)) == 2.0 ** (1 - count)


def test_many_pairs_are_sampled_near_the_exact_value():
    differences = np.random.default_rng(0).normal(0.2, 1.0, 30)
    assert sign_flip(differences) == pytest.approx(paired_t(differences), abs=0.02)


@pytest.mark.parametrize("equal", [[0.01, 0.01], [0.81 - 0.80, 0.82 - 0.81]])
def test_equal_differences_of_a_coarse_metric_are_no_proof(equal):
    """Student's t is infinite there, or but for rounding."""
    assert paired_t(np.array(equal)) == 0.5


def test_no_difference_at_all_is_no_finding():
    assert paired_t(np.zeros(4)) == sign_flip(np.zeros(4)) == 1.0


def test_too_few_pairs_have_no_p_value():
    assert math.isnan(paired_t(np.ones(1)))
    assert math.isnan(sign_flip(np.ones(0)))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_a_correction_never_lowers_keeps_the_order_and_stays_below_bonferronis(p_values):
    adjusted = holm(p_values)
    pairs = zip(p_values, adjusted, strict=True)
    assert all(p <= a <= min(1.0, len(p_values) * p) + 1e-12 for p, a in pairs)
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()


def test_missing_values_are_no_hypotheses():
    adjusted = holm([0.02, math.nan, 0.03])
    assert adjusted[0] == pytest.approx(0.04)
    assert math.isnan(adjusted[1])


def test_false_findings_are_kept_to_five_per_cent():
    rng = np.random.default_rng(0)
    wrong = sum(
        min(holm([paired_t(rng.normal(size=5)) for _ in range(5)])) < 0.05 for _ in range(400)
    )
    assert wrong / 400 < 0.08


@given(st.permutations([1.0, 2.0, 2.0, 5.0, 9.0]))
def test_a_rank_correlation_is_scipys_and_its_p_counts_the_orders_as_extreme(second):
    first = np.arange(5.0)
    rho, p = rank_correlation(first, np.array(second))
    assert rho == pytest.approx(stats.spearmanr(first, second).statistic)
    others = [stats.spearmanr(first, order).statistic for order in ORDERS]
    assert p == pytest.approx(np.mean(np.abs(others) >= abs(rho) - 1e-9))


def test_infinite_values_rank_last():
    rho, _ = rank_correlation(np.arange(4.0), np.array([0.5, 0.7, 1.2, np.inf]))
    assert rho == pytest.approx(1.0)


def test_constants_and_few_items_have_no_correlation():
    assert math.isnan(rank_correlation(np.ones(5), np.arange(5.0))[0])
    assert math.isnan(rank_correlation(np.arange(4.0), np.full(4, np.inf))[0])
    assert math.isnan(rank_correlation(np.arange(2.0), np.arange(2.0))[1])


def test_many_items_are_sampled():
    rng = np.random.default_rng(0)
    first = rng.normal(size=20)
    rho, p = rank_correlation(first, first + rng.normal(size=20))
    assert p == pytest.approx(stats.spearmanr(first, first).pvalue, abs=0.05)
    assert 0 < rho < 1
