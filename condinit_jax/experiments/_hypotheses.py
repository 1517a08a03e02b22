"""Whether differences over seeds, and ranks over methods, are more than chance."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float
from scipy import stats

ENUMERATED = 14
"""Pairs up to which all signs are tried, and values of a rank correlation up to 7 of them."""

SAMPLED = 20_000


def paired_t(differences: Float[np.ndarray, "pairs"]) -> float:
    """The two-sided p value of a paired t test.

    Args:
        differences: One per pair.

    Returns:
        The p value; NaN for fewer than two pairs. Where all differences are the same, as those of
        metrics counted on few examples can be, there is no spread to test against, and it is that
        of `sign_flip`: two equal gains are no proof beyond doubt.

    Example:
        >>> round(paired_t(np.array([1.0, 2.0, 3.0])), 4)
        0.0742
    """
    if len(differences) < 2:
        return math.nan
    # Equal but for rounding: 0.81 - 0.80 is not 0.82 - 0.81.
    if np.ptp(differences) <= 1e-9 * np.max(np.abs(differences)):
        return sign_flip(differences)
    return float(stats.ttest_1samp(differences, 0.0).pvalue)


def sign_flip(differences: Float[np.ndarray, "pairs"]) -> float:
    """The two-sided p value of the permutation test that flips the sign of each difference.

    Exact up to `ENUMERATED` pairs, of `SAMPLED` seeded flips beyond. It assumes only that without
    an effect a difference is as likely as its negative; its smallest value is 2^(1 - pairs).

    Args:
        differences: One per pair.

    Returns:
        The p value; NaN without pairs.

    Example:
        >>> sign_flip(np.array([1.0, 2.0, 3.0]))
        0.25
    """
    count = len(differences)
    if not count:
        return math.nan
    if count <= ENUMERATED:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=count)))
        return float(np.mean(_as_large(np.abs(signs @ differences), abs(np.sum(differences)))))
    signs = np.random.default_rng(0).choice([1.0, -1.0], (SAMPLED, count))
    extreme = np.sum(_as_large(np.abs(signs @ differences), abs(np.sum(differences))))
    return float((extreme + 1) / (SAMPLED + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """P values corrected for their number, by Holm's step-down method.

    Args:
        p_values: Of the hypotheses; NaN counts as none.

    Returns:
        The adjusted values in the same order: the chance of one false finding among all of them is
        at most the level that they are compared with.

    Source:
        Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of
        Statistics 6 (1979).

    Example:
        >>> holm([0.01, 0.04, 0.03])
        [0.03, 0.06, 0.06]
    """
    adjusted = [math.nan] * len(p_values)
    ranked = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    largest = 0.0
    for rank, (p, place) in enumerate(ranked):
        largest = max(largest, min(1.0, (len(ranked) - rank) * p))
        adjusted[place] = largest
    return adjusted


def rank_correlation(
    first: Float[np.ndarray, "items"], second: Float[np.ndarray, "items"]
) -> tuple[float, float]:
    """Spearman's rank correlation, and the two-sided p value of its permutation test.

    Exact up to 7 items, of `SAMPLED` seeded permutations beyond.

    Args:
        first: One value per item.
        second: Another.

    Returns:
        rho and p; NaN both where one of the two is constant or there are fewer than three items.

    Example:
        >>> rho, p = rank_correlation(np.arange(4.0), np.arange(4.0) ** 2)
        >>> round(rho, 3), round(p, 4)  # two of 24 orders are as extreme
        (1.0, 0.0833)
    """
    ranks, others = stats.rankdata(first), stats.rankdata(second)
    if len(ranks) < 3 or np.ptp(ranks) == 0 or np.ptp(others) == 0:
        return math.nan, math.nan
    ranks, others = _unit(ranks), _unit(others)
    rho = float(ranks @ others)
    if len(ranks) <= ENUMERATED // 2:
        orders = np.array(list(itertools.permutations(others)))
        p = float(np.mean(_as_large(np.abs(orders @ ranks), abs(rho))))
    else:
        rng = np.random.default_rng(0)
        orders = rng.permuted(np.tile(others, (SAMPLED, 1)), axis=1)
        p = float((np.sum(_as_large(np.abs(orders @ ranks), abs(rho))) + 1) / (SAMPLED + 1))
    return min(1.0, max(-1.0, rho)), p


def _unit(values: np.ndarray) -> np.ndarray:
    centered = values - values.mean()
    return centered / np.linalg.norm(centered)


def _as_large(values: np.ndarray, seen: float) -> np.ndarray:
    """Which values reach the one seen; ties, which rounding splits, do."""
    return values >= seen * (1 - 1e-9) - 1e-15
