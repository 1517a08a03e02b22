"""Each method at its own best learning rate: one that only likes a higher rate is no better."""

import math
import statistics
from collections.abc import Mapping, Sequence

from condinit_jax.experiments._run import FINISHED, Run


def by_rate(runs: Sequence[Run]) -> dict[float, dict[int, Run]]:
    """One method's runs by rate and seed.

    Args:
        runs: Of one method.

    Returns:
        Runs, lowest rate first.

    Example:
        >>> by_rate([])
        {}
    """
    found: dict[float, dict[int, Run]] = {}
    for run in sorted(runs, key=lambda run: (run.rate, run.seed)):
        found.setdefault(run.rate, {})[run.seed] = run
    return found


def choose_rates(runs: Sequence[Run]) -> dict[int, Run]:
    """The finished run of each seed that counts.

    Where a method was run at several rates, a seed's rate is the one with the best mean final
    metric over the OTHER seeds: chosen by the same runs that are then compared, the best of several
    noisy rates would look better than it is. A rate at which another seed failed comes after all at
    which none did.

    Args:
        runs: Of one method.

    Returns:
        Runs by seed.
    """
    rates = by_rate(runs)
    seeds = sorted({run.seed for run in runs})
    chosen = {}
    for seed in seeds:
        others = [other for other in seeds if other != seed] or [seed]
        finished = [
            rate
            for rate, held in rates.items()
            if seed in held and held[seed].state == FINISHED and held[seed].curve
        ]
        if finished:
            best = max(finished, key=lambda rate: _merit(rates[rate], others))
            chosen[seed] = rates[best][seed]
    return chosen


def _merit(held: Mapping[int, Run], seeds: Sequence[int]) -> tuple[int, float]:
    """How few of some seeds failed at a rate, then their mean final metric."""
    there = [held[seed] for seed in seeds if seed in held]
    ended = [run.curve[-1][1] for run in there if run.state == FINISHED and run.curve]
    failed = len(there) - len(ended)
    return -failed, statistics.mean(ended) if ended else -math.inf
