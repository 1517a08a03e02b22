"""Runs with learning curves of a known shape, that nobody trained."""

import dataclasses
import math
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from condinit_jax.experiments import FAILED, FINISHED, UNFINISHED, Run

STEPS = (100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)
RATE = 1e-3


def synthetic_run(
    label: str,
    seed: int,
    *,
    rate: float = RATE,
    final: float = 0.8,
    speed: float = 1.0,
    noise: float = 0.0,
    kappa: float | None = 1e5,
    layers: int = 2,
    steps: Sequence[int] = STEPS,
) -> Run:
    """A finished run whose accuracy rises to `final`; twice the speed needs half of the steps."""
    rng = np.random.default_rng([seed, zlib.crc32(label.encode())])
    shift = noise * rng.normal()
    last = 1.0 - math.exp(-3.0)
    curve = [
        (step, (final + shift) * (1.0 - math.exp(-3.0 * speed * step / steps[-1])) / last)
        for step in steps
    ]
    kappas = {}
    if kappa is not None:
        kappas = {
            step: {layer: kappa * 2.0**layer / (1 + step / 100) for layer in range(layers)}
            for step in (0, steps[-1])
        }
    return Run(
        label=label,
        seed=seed,
        rate=rate,
        workdir=Path("runs") / label / f"lr={rate}" / f"seed={seed}",
        state=FINISHED,
        reason="",
        steps=steps[-1],
        metric="accuracy",
        curve=tuple(curve),
        losses=tuple((step, 2.0 - 1.5 * value) for step, value in curve),
        kappas=kappas,
        seconds=60.0 + seed,
        config={
            "seed": seed,
            "steps": steps[-1],
            "eval_every": steps[0],
            "init": {"method": label.partition(":")[0]},
            "optimizer": {"name": "adamw", "lr": rate},
        },
        versions={"jax": "0.10.2", "device": "cpu", "devices": 1},
        examples=1000,
    )


def synthetic_runs(
    labels: Sequence[str],
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    *,
    rates: Sequence[float] = (RATE,),
    finals: Mapping[str, float] | None = None,
    speeds: Mapping[str, float] | None = None,
    kappas: Mapping[str, float | None] | None = None,
    noise: float = 0.005,
    failed: Sequence[tuple[str, int]] = (),
    unfinished: Sequence[tuple[str, int]] = (),
) -> list[Run]:
    """A grid; each label a little better, faster and better conditioned than the one before."""
    runs = []
    for seed in seeds:
        for rate in rates:
            for place, label in enumerate(labels):
                run = synthetic_run(
                    label,
                    seed,
                    rate=rate,
                    final=(finals or {}).get(label, 0.78 + 0.01 * place)
                    - 0.01 * abs(math.log10(rate / RATE)),
                    speed=(speeds or {}).get(label, 1.0 + 0.25 * place),
                    kappa=(kappas or {}).get(label, 10.0 ** (7 - place)),
                    noise=noise,
                )
                if (label, seed) in failed:
                    run = dataclasses.replace(
                        run, state=FAILED, reason="loss is NaN at step 300", curve=run.curve[:2]
                    )
                elif (label, seed) in unfinished:
                    run = dataclasses.replace(
                        run,
                        state=UNFINISHED,
                        reason="stopped at step 500 of 1000",
                        curve=run.curve[:5],
                        seconds=0.0,
                    )
                runs.append(run)
    return runs
