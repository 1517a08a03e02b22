"""From runs to figures: grouped by method, paired by seed."""

import dataclasses
import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from condinit_jax.config import diff
from condinit_jax.errors import UserError
from condinit_jax.experiments._choose_rates import by_rate, choose_rates
from condinit_jax.experiments._comparison import (
    Comparison,
    Curve,
    Method,
    Pair,
)
from condinit_jax.experiments._conditioning import Areas, Chosen, correlations, mean_kappas
from condinit_jax.experiments._hypotheses import holm, paired_t, sign_flip
from condinit_jax.experiments._intervals import mean_interval
from condinit_jax.experiments._notes import notes_on
from condinit_jax.experiments._run import FAILED, FINISHED, Run
from condinit_jax.experiments._speed import mean_over_steps, speed_against


def compare_runs(
    runs: Sequence[Run],
    *,
    title: str,
    command: str,
    labels: Sequence[str] = (),
    against: Sequence[str] = (),
) -> Comparison:
    """Everything that a set of runs says about its methods.

    Only finished runs count; the others are listed. A run that finished without a finite metric
    at its end is a failed one.

    Args:
        runs: Runs, each label, seed and rate once.
        title: What was trained.
        command: What makes it again.
        labels: The methods in order, the baseline first; those of the runs where empty.
        against: What each method is compared with; the baseline where empty.

    Returns:
        The comparison.

    Raises:
        UserError: If something is to be compared with what is not among the labels.

    Example:
        >>> from pathlib import Path
        >>> def run(label, seed, end):
        ...     curve = ((100, end - 0.1), (200, end))
        ...     ended = ("finished", "", 200, "accuracy", curve, (), {}, 60.0, {}, {})
        ...     return Run(label, seed, 1e-3, Path(), *ended)
        >>> gains = {0: 0.01, 1: 0.02, 2: 0.03}
        >>> runs = [run("default", seed, 0.7) for seed in gains]
        >>> runs += [run("tied", seed, 0.7 + gain) for seed, gain in gains.items()]
        >>> (pair,) = compare_runs(runs, title="recipe", command="").pairs
        >>> round(pair.difference.value, 4), round(pair.p, 4), pair.p_sign
        (0.02, 0.0742, 0.25)
    """
    labels = tuple(labels) or tuple(dict.fromkeys(run.label for run in runs))
    for reference in against:
        if reference not in labels:
            raise UserError(f"against = {reference!r}: is not among {', '.join(labels)}")
    runs = [_checked(run) for run in runs]
    grouped = {label: [run for run in runs if run.label == label] for label in labels}
    chosen = {label: choose_rates(held) for label, held in grouped.items()}
    areas = _areas(chosen)
    methods = tuple(_method(n, grouped[n], chosen[n], areas[n]) for n in labels)
    pairs = _pairs(chosen, areas, labels, tuple(against) or labels[:1])
    metrics = [run.metric for run in runs if run.state == FINISHED] or ["accuracy"]
    return Comparison(
        title=title,
        command=command,
        metric=metrics[0],
        labels=labels,
        methods=methods,
        pairs=pairs,
        correlations=correlations(chosen, areas, labels, metrics[0]),
        runs=tuple(runs),
        config=_shared([run.config for run in runs if run.config]),
        differences=_differences(grouped),
        notes=notes_on(runs, chosen, methods),
    )


def _checked(run: Run) -> Run:
    """The run, failed where it says it finished and has nothing that could be compared."""
    if run.state != FINISHED:
        return run
    if not run.curve:
        return dataclasses.replace(run, state=FAILED, reason="it finished without an evaluation")
    bad = next(((step, value) for step, value in run.curve if not math.isfinite(value)), None)
    if bad:
        return dataclasses.replace(
            run, state=FAILED, reason=f"{run.metric} is {bad[1]} at step {bad[0]}"
        )
    return run


def _areas(chosen: Chosen) -> dict[str, dict[int, float]]:
    """The mean metric of each run over the steps that all runs were evaluated at.

    A run that was evaluated from an earlier step on would have a lower mean for that alone.
    """
    curves = [run.curve for held in chosen.values() for run in held.values()]
    shared = set.intersection(*({step for step, _ in curve} for curve in curves)) if curves else ()
    return {
        label: {
            seed: mean_over_steps([at for at in run.curve if at[0] in shared] or run.curve)
            for seed, run in held.items()
        }
        for label, held in chosen.items()
    }


def _method(
    label: str, runs: Sequence[Run], chosen: Mapping[int, Run], areas: Mapping[int, float]
) -> Method:
    held = list(chosen.values())
    finals = np.array([run.curve[-1][1] for run in held])
    losses = [run.losses[-1][1] for run in held if run.losses]
    rates = {run.rate for run in held}
    ended = {
        rate: [run.curve[-1][1] for run in at.values() if run.state == FINISHED and run.curve]
        for rate, at in by_rate(runs).items()
    }
    kappas = mean_kappas(held)
    return Method(
        label=label,
        rate=rates.pop() if len(rates) == 1 else math.nan,
        rates={rate: statistics.mean(finals) for rate, finals in ended.items() if finals},
        seeds=tuple(chosen),
        failed=tuple(run for run in runs if run.state != FINISHED),
        final=mean_interval(finals) if held else None,
        spread=float(np.std(finals, ddof=1)) if len(held) > 1 else math.nan,
        area=mean_interval(np.array(list(areas.values()))) if held else None,
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


def _pairs(
    chosen: Chosen, means: Areas, labels: Sequence[str], references: Sequence[str]
) -> tuple[Pair, ...]:
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
            found.append(_pair(label, reference, chosen, means))
    finals, areas = holm([pair.p for pair in found]), holm([pair.p_area for pair in found])
    return tuple(
        dataclasses.replace(pair, p_adjusted=final, p_area=area)
        for pair, final, area in zip(found, finals, areas, strict=True)
    )


def _pair(label: str, reference: str, chosen: Chosen, means: Areas) -> Pair:
    ours, theirs = chosen[label], chosen[reference]
    seeds = tuple(seed for seed in ours if seed in theirs)
    finals = np.array([ours[s].curve[-1][1] - theirs[s].curve[-1][1] for s in seeds])
    areas = np.array([means[label][s] - means[reference][s] for s in seeds])
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
