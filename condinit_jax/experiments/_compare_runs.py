"""From runs to figures: grouped by method, paired by seed."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condinit_jax.config import diff
from condinit_jax.experiments._choose_rates import by_rate, choose_rates
from condinit_jax.experiments._comparison import (
    Comparison,
    Correlation,
    Curve,
    Method,
    Pair,
)
from condinit_jax.experiments._hypotheses import holm, paired_t, rank_correlation, sign_flip
from condinit_jax.experiments._intervals import mean_interval
from condinit_jax.experiments._notes import notes_on
from condinit_jax.experiments._run import FINISHED, Run
from condinit_jax.experiments._speed import mean_over_steps, speed_against

FEWEST_METHODS = 4
"""Methods from which on a rank correlation over them is worth a line."""

MOST_LAYERS = 12
"""Layers up to which each gets rank correlations of its own."""

Chosen = Mapping[str, Mapping[int, Run]]


def compare_runs(
    runs: Sequence[Run],
    *,
    title: str,
    command: str,
    labels: Sequence[str] = (),
    against: Sequence[str] = (),
) -> Comparison:
    """Everything that a set of runs says about its methods.

    Only finished runs count; the others are listed.

    Args:
        runs: Runs, each label, seed and rate once.
        title: What was trained.
        command: What makes it again.
        labels: The methods in order, the baseline first; those of the runs where empty.
        against: What each method is compared with; the baseline where empty.

    Returns:
        The comparison.
    """
    labels = tuple(labels) or tuple(dict.fromkeys(run.label for run in runs))
    grouped = {label: [run for run in runs if run.label == label] for label in labels}
    chosen = {label: choose_rates(held) for label, held in grouped.items()}
    methods = tuple(_method(label, grouped[label], chosen[label]) for label in labels)
    pairs = _pairs(chosen, labels, tuple(against) or labels[:1])
    metrics = [run.metric for run in runs if run.state == FINISHED] or ["accuracy"]
    return Comparison(
        title=title,
        command=command,
        metric=metrics[0],
        labels=labels,
        methods=methods,
        pairs=pairs,
        correlations=_correlations(chosen, labels, metrics[0]),
        runs=tuple(runs),
        config=_shared([run.config for run in runs if run.config]),
        differences=_differences(grouped),
        notes=notes_on(runs, chosen, methods),
    )


def _method(label: str, runs: Sequence[Run], chosen: Mapping[int, Run]) -> Method:
    held = list(chosen.values())
    finals = np.array([run.curve[-1][1] for run in held])
    areas = np.array([mean_over_steps(run.curve) for run in held])
    losses = [run.losses[-1][1] for run in held if run.losses]
    rates = {run.rate for run in held}
    ended = {
        rate: [run.curve[-1][1] for run in at.values() if run.state == FINISHED and run.curve]
        for rate, at in by_rate(runs).items()
    }
    kappas = _kappas(held)
    return Method(
        label=label,
        rate=rates.pop() if len(rates) == 1 else math.nan,
        rates={rate: statistics.mean(finals) for rate, finals in ended.items() if finals},
        seeds=tuple(chosen),
        failed=tuple(run for run in runs if run.state != FINISHED),
        final=mean_interval(finals) if held else None,
        spread=float(np.std(finals, ddof=1)) if len(held) > 1 else math.nan,
        area=mean_interval(areas) if held else None,
        loss=statistics.mean(losses) if losses else math.nan,
        kappa=kappas.get(0, math.nan),
        kappas=kappas,
        curve=_curve(held),
    )


def _curve(runs: Sequence[Run]) -> Curve | None:
    """The mean over the steps that all runs were evaluated at."""
    curves = [dict(run.curve) for run in runs]
    steps = sorted(set.intersection(*map(set, curves))) if curves else []
    if not steps:
        return None
    found = [mean_interval(np.array([curve[step] for curve in curves])) for step in steps]
    alone = len(runs) == 1
    return Curve(
        steps=tuple(steps),
        mean=tuple(e.value for e in found),
        low=tuple(e.value if alone else e.low for e in found),
        high=tuple(e.value if alone else e.high for e in found),
    )


def _kappas(runs: Sequence[Run], layer: int | None = None) -> dict[int, float]:
    """Geometric means over runs, and over layers or of one, by the steps all runs were probed at.

    Condition numbers of layers lie orders of magnitude apart: an arithmetic mean is that of the
    worst one.
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


def _pairs(chosen: Chosen, labels: Sequence[str], references: Sequence[str]) -> tuple[Pair, ...]:
    """Each method against each reference; of two references the pair counts once."""
    wanted = [
        (label, reference)
        for reference, label in itertools.product(references, labels)
        if label != reference
    ]
    seen: set[frozenset[str]] = set()
    found = []
    for label, reference in wanted:
        if (both := frozenset((label, reference))) not in seen:
            seen.add(both)
            found.append(_pair(label, reference, chosen))
    finals, areas = holm([pair.p for pair in found]), holm([pair.p_area for pair in found])
    return tuple(
        dataclasses.replace(pair, p_adjusted=final, p_area=area)
        for pair, final, area in zip(found, finals, areas, strict=True)
    )


def _pair(label: str, reference: str, chosen: Chosen) -> Pair:
    ours, theirs = chosen[label], chosen[reference]
    seeds = tuple(seed for seed in ours if seed in theirs)
    finals = np.array([ours[s].curve[-1][1] - theirs[s].curve[-1][1] for s in seeds])
    areas = np.array(
        [mean_over_steps(ours[s].curve) - mean_over_steps(theirs[s].curve) for s in seeds]
    )
    # Adjusted once all pairs are known.
    return Pair(
        label=label,
        reference=reference,
        seeds=seeds,
        difference=mean_interval(finals) if seeds else None,
        p=paired_t(finals),
        p_adjusted=math.nan,
        p_sign=sign_flip(finals),
        area=mean_interval(areas) if seeds else None,
        speed=speed_against([(s, ours[s].curve, theirs[s].curve) for s in seeds]),
        p_area=paired_t(areas),
    )


def _correlations(chosen: Chosen, labels: Sequence[str], metric: str) -> tuple[Correlation, ...]:
    """kappa(J) before the first step against what became of the methods."""
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
        f"mean {metric} over the steps": [
            statistics.mean(mean_over_steps(r.curve) for r in runs[n]) for n in probed
        ],
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
                if 0 in (kappas := _kappas(runs[name], layer)) and not math.isnan(value)
            ]
        ).reshape(-1, 2)
        rho, p = rank_correlation(pairs[:, 0], pairs[:, 1])
        if not math.isnan(rho):
            found.append(Correlation(layer, outcome, rho, p, len(pairs)))
    return tuple(found)


def _flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in tree.items():
        inner = isinstance(value, Mapping)
        found |= _flat(value, f"{prefix}{name}.") if inner else {f"{prefix}{name}": value}
    return found


def _shared(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Fields that all configs have with the same value."""
    flat = [_flat(config) for config in configs]
    if not flat:
        return {}
    return {
        path: value
        for path, value in flat[0].items()
        if all(path in other and other[path] == value for other in flat)
    }


def _differences(grouped: Mapping[str, Sequence[Run]]) -> dict[str, tuple[str, ...]]:
    """In which fields each method's runs differ from the first method's."""
    configs = {
        label: next((run.config for run in runs if run.config), None)
        for label, runs in grouped.items()
    }
    first = next(iter(configs.values()), None)
    return {
        label: tuple(
            line
            for line in (diff(first, config) if first and config else [])
            if line.partition(":")[0] not in ("seed", "optimizer.lr")
        )
        for label, config in configs.items()
    }
