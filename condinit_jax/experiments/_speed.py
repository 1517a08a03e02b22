"""How soon one run reaches what another ends with, where it may never do so."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from condinit_jax.experiments._comparison import Speed
from condinit_jax.experiments._intervals import median_interval

Curve = Sequence[tuple[int, float]]


def first_reached(curve: Curve, target: float) -> float:
    """The step of the first evaluation at or above a target.

    Nothing is interpolated between evaluations: what a run had in between nobody measured, and both
    sides of a comparison are rounded up alike.

    Args:
        curve: (step, metric) by rising step.
        target: The metric to reach.

    Returns:
        The step; infinite where it is never reached.

    Example:
        >>> first_reached([(10, 0.2), (20, 0.6), (30, 0.5)], 0.5)
        20.0
    """
    return float(next((step for step, value in curve if value >= target), math.inf))


def mean_over_steps(curve: Curve) -> float:
    """The mean metric over the steps from the first evaluation to the last.

    Args:
        curve: (step, metric) by rising step.

    Returns:
        The area under the curve, by the trapezoidal rule, over its span in steps; the value itself
        where there is one evaluation alone.

    Example:
        >>> mean_over_steps([(0, 0.0), (10, 1.0), (20, 1.0)])
        0.75
    """
    steps, values = np.array(curve, np.float64).T
    if len(steps) == 1:
        return float(values[0])
    return float(np.trapezoid(values, steps) / (steps[-1] - steps[0]))


def speed_against(pairs: Sequence[tuple[int, Curve, Curve]]) -> Speed:
    """Steps until a method reaches the reference's final metric, over the reference's own steps.

    The reference's own steps are also those until it first reached that metric, and not the length
    of its run: noise lets most runs touch their final value before the end, and a first passage
    compared with an end would favour every method, the reference against itself included.

    An evaluation before the first step counts for neither: a reference that ends where it began
    would need no steps, and no ratio to that is defined.

    A method that never reaches it has a ratio of at least its last step over the reference's; such
    a censored ratio is not left out, but counts as that lower bound.

    Args:
        pairs: Seed, the method's curve, and the reference's.

    Returns:
        The ratios and their median by Kaplan and Meier.

    Example:
        >>> reference = [(10, 0.5), (20, 0.7), (30, 0.8)]
        >>> speed_against([(0, [(10, 0.6), (20, 0.8), (30, 0.9)], reference)]).ratios
        ((0, 0.666..., False),)
    """
    ratios = []
    for seed, curve, reference in pairs:
        target = reference[-1][1]
        own, steps = (
            first_reached([at for at in held if at[0] > 0], target) for held in (reference, curve)
        )
        if math.isinf(own):  # Never evaluated after a step: there is nothing to reach.
            continue
        never = math.isinf(steps)
        ratios.append((seed, (curve[-1][0] if never else steps) / own, never))
    reached = sum(not never for *_, never in ratios)
    if not ratios:
        return Speed(None, 0, 0, ())
    low = np.array([ratio for _, ratio, _ in ratios])
    high = np.array([math.inf if never else ratio for _, ratio, never in ratios])
    estimate = median_interval(censored_median(low, np.isinf(high)), low, high)
    return Speed(estimate, reached, len(ratios), tuple(ratios))


def censored_median(values: np.ndarray, censored: np.ndarray) -> float:
    """The median by Kaplan and Meier: where the share not yet reached falls to a half.

    Args:
        values: Ratios, or lower bounds of them.
        censored: Which are lower bounds.

    Returns:
        The median; infinite where the share stays above a half. Where it is a half from one value
        to the next one, their mean, as for the median of uncensored values.

    Example:
        >>> censored_median(np.array([1.0, 2.0, 3.0, 9.0]), np.array([False] * 4))
        2.5
        >>> censored_median(np.array([1.0, 2.0, 3.0]), np.array([False, True, True]))
        inf
    """
    found = stats.ecdf(stats.CensoredData(uncensored=values[~censored], right=values[censored]))
    times, shares = found.sf.quantiles, found.sf.probabilities
    below = np.flatnonzero(shares <= 0.5 + 1e-12)
    if not len(below):
        return math.inf
    first = below[0]
    later = np.flatnonzero(shares < 0.5 - 1e-12)
    last = later[0] if len(later) else None
    if abs(shares[first] - 0.5) < 1e-12:
        return float((times[first] + times[last]) / 2) if last is not None else math.inf
    return float(times[first])
