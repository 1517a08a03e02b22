"""Comparisons made by hand, with every figure known, for whatever the report may meet."""

import math
from pathlib import Path

import numpy as np

from condinit_jax.experiments import (
    Comparison,
    Correlation,
    Curve,
    Estimate,
    Method,
    Pair,
    Run,
    Speed,
)

STEPS = tuple(range(0, 2001, 200))


def make_run(label, seed, *, state="finished", reason="", rate=1e-3, level=0.6, kappa=30.0):
    return Run(
        label=label,
        seed=seed,
        rate=rate,
        workdir=Path("runs/compare") / f"{label},seed={seed},lr={rate:g}",
        state=state,
        reason=reason,
        steps=STEPS[-1],
        metric="accuracy",
        curve=tuple((step, level * (1 - math.exp(-step / 400))) for step in STEPS),
        losses=((0, 2.3), (STEPS[-1], 1.1)),
        kappas={0: {0: kappa, 1: kappa}},
        seconds=61.0 if state == "finished" else 0.0,
        config={},
        versions={"condinit-jax": "0.1", "jax": "0.10.2", "platform": "cpu", "device": "cpu"},
        examples=2000,
    )


def make_comparison(labels, seeds=5, *, references=1, failed=(), rates=(1e-3,), probes=True):
    """Methods of rising merit; `failed` are (label, seed) of runs that did not finish."""
    rng = np.random.default_rng(0)
    labels = tuple(labels)
    runs, methods = [], []
    for number, label in enumerate(labels):
        level, start = 0.55 + 0.011 * number, 4000.0 / 2.2**number
        own = []
        for rate in rates:
            for seed in range(seeds):
                broken = (label, seed) in failed
                reason = f"loss is NaN at step {100 + seed}" if broken else ""
                state = "failed" if broken else "finished"
                noisy = level + 0.008 * rng.standard_normal()
                own.append(
                    make_run(
                        label, seed, state=state, reason=reason, rate=rate, level=noisy, kappa=start
                    )
                )
        runs += own
        done = tuple(run.seed for run in own if run.state == "finished" and run.rate == rates[0])
        methods.append(_method(label, level, start, done, own, rates, probes, number))
    pairs = tuple(
        _pair(methods[place], methods[at], place - at)
        for at in range(min(references, len(labels)))
        for place in range(len(labels))
        if place != at
    )
    return Comparison(
        title="configs/vit.py:micro,bundled",
        command="python -m condinit_jax.compare --init " + ",".join(labels) + f" --seeds {seeds}",
        metric="accuracy",
        labels=labels,
        methods=tuple(methods),
        pairs=pairs,
        correlations=(
            Correlation(None, "final accuracy", -0.31, 0.123, len(labels)),
            Correlation(1, "steps to the target", 0.87, 0.0004, len(labels)),
        )
        if len(labels) >= 4
        else (),
        runs=tuple(runs),
        config={"steps": 2000, "batch_size": 64, "model.name": "vit", "model.width": 192},
        differences={
            label: (f"init.method: {labels[0]} -> {label}",) if number else ()
            for number, label in enumerate(labels)
        },
        notes=(
            f"With {seeds} seeds the sign-flip test cannot give a p below {2.0 ** (1 - seeds):g}.",
            "Evaluations are 200 steps apart, so shares of steps are no finer than that.",
        ),
    )


def _method(label, level, start, done, own, rates, probes, number):
    mean = tuple(level * (1 - math.exp(-step / (420 - 20 * number))) for step in STEPS)
    half = 0.004 + 0.0007 * number if len(done) > 1 else 0.0
    missing = math.nan
    finished = bool(done)
    low, high = (level - half, level + half) if half else (missing, missing)
    return Method(
        label=label,
        rate=rates[0] if len(rates) == 1 else missing,
        rates={rate: level - 0.02 * abs(place - 1) for place, rate in enumerate(rates)}
        if finished
        else {},
        seeds=done,
        failed=tuple(run for run in own if run.state != "finished"),
        final=Estimate(level, low, high) if finished else None,
        spread=0.0081 + 0.001 * number if half else missing,
        area=Estimate(0.8 * level, 0.8 * low, 0.8 * high) if finished else None,
        loss=1.25 - 0.013 * number if finished else missing,
        kappa=start if probes else missing,
        kappas={step: start ** (1 - step / 4000) for step in STEPS[::2]} if probes else {},
        curve=Curve(STEPS, mean, tuple(x - half for x in mean), tuple(x + half for x in mean))
        if finished
        else None,
    )


def _pair(method, reference, ahead):
    seeds = tuple(seed for seed in method.seeds if seed in reference.seeds)
    if not seeds:
        nothing = Speed(None, 0, 0, ())
        return Pair(
            method.label, reference.label, (), None, math.nan, math.nan, math.nan, None, nothing
        )
    single = len(seeds) == 1
    gap = method.final.value - reference.final.value
    half = math.nan if single else 0.007
    ratio = 1 - 0.07 * ahead if ahead > -3 else math.inf
    reached = len(seeds) if ahead > 0 else len(seeds) // 2
    ends = (math.nan, math.nan) if single else (0.8 * ratio, 1.2 * ratio)
    if not single and ratio == math.inf:
        ends = (0.93, math.inf)
    shares = tuple(
        (
            seed,
            1.31 if place >= reached else min(ratio, 1.3) * (0.9 + 0.04 * place),
            place >= reached,
        )
        for place, seed in enumerate(seeds)
    )
    p = math.nan if single else min(1.0, 0.3 / 4 ** abs(ahead))
    return Pair(
        label=method.label,
        reference=reference.label,
        seeds=seeds,
        difference=Estimate(gap, gap - half, gap + half),
        p=p,
        p_adjusted=min(1.0, 2.5 * p) if p == p else p,
        p_sign=math.nan if single else 0.0625,
        area=Estimate(0.8 * gap, 0.8 * gap - half, 0.8 * gap + half),
        p_area=min(1.0, 3.1 * p) if p == p else p,
        speed=Speed(Estimate(ratio, *ends), reached, len(seeds), shares),
    )
