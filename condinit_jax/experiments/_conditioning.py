"""kappa(J) over the steps, and whether it predicts at the first what becomes of a method."""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from condinit_jax.experiments._comparison import Correlation
from condinit_jax.experiments._hypotheses import rank_correlation
from condinit_jax.experiments._run import Run
from condinit_jax.experiments._speed import speed_against

FEWEST_METHODS = 4
"""Methods from which on a rank correlation over them is worth a line."""

MOST_LAYERS = 12
"""Layers up to which each gets rank correlations of its own."""

Chosen = Mapping[str, Mapping[int, Run]]
Areas = Mapping[str, Mapping[int, float]]


def mean_kappas(runs: Sequence[Run], layer: int | None = None) -> dict[int, float]:
    """Geometric means over runs, and over layers or of one, by the steps all runs were probed at.

    Condition numbers of layers lie orders of magnitude apart: an arithmetic mean is that of the
    worst one.

    Args:
        runs: Of one method.
        layer: The layer; None for all.

    Returns:
        Means by step.
    """
    probed = [run.kappas for run in runs if run.kappas]
    steps = sorted(set.intersection(*map(set, probed))) if probed else []
    found = {}
    for step in steps:
        values = [
            kappa
            for held in probed
            for place, kappa in held[step].items()
            if layer is None or place == layer
        ]
        if values:
            found[step] = statistics.geometric_mean(values)
    return found


def correlations(
    chosen: Chosen, means: Areas, labels: Sequence[str], metric: str
) -> tuple[Correlation, ...]:
    """Rank correlations over the methods, of all layers together and of each.

    Args:
        chosen: The runs that count, by method and seed.
        means: Their mean metric over the steps.
        labels: The methods, the baseline first.
        metric: What is compared.

    Returns:
        None for fewer than `FEWEST_METHODS` methods with probes, nor of what does not vary.
    """
    probed = [label for label in labels if any(run.kappas.get(0) for run in chosen[label].values())]
    if len(probed) < FEWEST_METHODS:
        return ()
    runs = {label: list(chosen[label].values()) for label in probed}
    steps = [
        speed_against(
            [
                (seed, run.curve, chosen[labels[0]][seed].curve)
                for seed, run in chosen[label].items()
                if seed in chosen[labels[0]]
            ]
        ).ratio
        for label in probed
    ]
    outcomes = {
        f"final {metric}": [statistics.mean(r.curve[-1][1] for r in runs[n]) for n in probed],
        f"mean {metric} over the steps": [statistics.mean(means[n].values()) for n in probed],
        f"steps to the final {metric} of {labels[0]}": [
            math.nan if ratio is None else ratio.value for ratio in steps
        ],
    }
    layers = sorted({layer for n in probed for r in runs[n] for layer in r.kappas.get(0, {})})
    places = [None, *(layers if 1 < len(layers) <= MOST_LAYERS else [])]
    found = []
    for layer, (outcome, values) in itertools.product(places, outcomes.items()):
        pairs = np.array(
            [
                (kappas[0], value)
                for name, value in zip(probed, values, strict=True)
                if 0 in (kappas := mean_kappas(runs[name], layer)) and not math.isnan(value)
            ]
        ).reshape(-1, 2)
        rho, p = rank_correlation(pairs[:, 0], pairs[:, 1])
        if not math.isnan(rho):
            found.append(Correlation(layer, outcome, rho, p, len(pairs)))
    return tuple(found)
