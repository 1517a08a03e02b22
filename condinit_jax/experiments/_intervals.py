"""95 % intervals of means and medians over a handful of seeds."""

import numpy as np
from jaxtyping import Float
from scipy import stats

from condinit_jax.experiments._comparison import Estimate

LEVEL = 0.95
RESAMPLES = 9999
FEWEST = 6
"""Values from which on the bootstrap is used.

The bootstrap of a mean never leaves the range of the sample, which covers the mean of five normal
values in 94 % of cases and of three in 75 %: below this count no bootstrap can give 95 %.
"""


def mean_interval(values: Float[np.ndarray, "runs"]) -> Estimate:
    """The mean with its 95 % interval.

    From `FEWEST` values on by the bootstrap, whose percentiles are widened so that on normal values
    the interval is as long as Student's t (the plain percentiles are too narrow by a factor of
    sqrt((n - 1) / n) and of t over the normal quantile); below, Student's t itself. The resampling
    is seeded: the same runs give the same interval.

    Args:
        values: One per run.

    Returns:
        The mean; one value alone has no interval (NaN).

    Source:
        Hesterberg, "What Teachers Should Know About the Bootstrap", The American Statistician 69
        (2015): the expanded percentile interval.

    Example:
        >>> mean_interval(np.array([1.0, 2.0, 3.0]))
        Estimate(value=2.0, low=-0.48..., high=4.48...)
    """
    values = np.asarray(values, np.float64)
    count, mean = len(values), float(np.mean(values))
    if count < 2:
        return Estimate(mean, np.nan, np.nan)
    tail = (1 - LEVEL) / 2
    quantile = stats.t.ppf(1 - tail, count - 1)
    if count < FEWEST or np.ptp(values) == 0:
        half = float(quantile * np.std(values, ddof=1) / np.sqrt(count))
        return Estimate(mean, mean - half, mean + half)
    widened = stats.norm.cdf(-np.sqrt(count / (count - 1)) * quantile)
    places = np.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    low, high = np.quantile(values[places].mean(axis=1), [widened, 1 - widened])
    return Estimate(mean, float(low), float(high))


def median_interval(
    median: float, low: Float[np.ndarray, "runs"], high: Float[np.ndarray, "runs"]
) -> Estimate:
    """A median with its 95 % interval by order statistics, which assumes no distribution.

    The interval between the k-th smallest and the k-th largest value covers the median unless fewer
    than k values lie on one side of it: with probability 1 - 2 P(Binomial(n, 1/2) < k). Below six
    values no k reaches 95 %, and the interval is the whole range, which covers it with probability
    1 - 2^(1 - n).

    Args:
        median: The estimate.
        low: What each value is at least.
        high: What each value is at most; infinite where nothing says so.

    Returns:
        The median; one value alone has no interval (NaN).

    Example:
        >>> values = np.arange(1.0, 10.0)
        >>> median_interval(5.0, values, values)
        Estimate(value=5.0, low=2.0, high=8.0)
    """
    count = len(low)
    if count < 2:
        return Estimate(median, np.nan, np.nan)
    rank = 1
    while 2 * stats.binom.cdf(rank, count, 0.5) <= 1 - LEVEL:
        rank += 1
    return Estimate(median, float(np.sort(low)[rank - 1]), float(np.sort(high)[-rank]))


def median_coverage(count: int) -> float:
    """With which probability `median_interval` covers the median.

    Args:
        count: Values.

    Returns:
        The probability, below 0.95 for fewer than six values.

    Example:
        >>> median_coverage(3), median_coverage(5)
        (0.75, 0.9375)
    """
    rank = 1
    while 2 * stats.binom.cdf(rank, count, 0.5) <= 1 - LEVEL:
        rank += 1
    return float(1 - 2 * stats.binom.cdf(rank - 1, count, 0.5))
