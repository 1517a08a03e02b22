"""One run of a comparison, as its directory tells it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

FINISHED: Literal["finished"] = "finished"
FAILED: Literal["failed"] = "failed"
UNFINISHED: Literal["unfinished"] = "unfinished"


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run left behind.

    Attributes:
        label: What is compared, such as ``conditioned`` or ``conditioned:value=joint``.
        seed: The run's seed; runs of one seed and rate saw the same batches in the same order.
        rate: Peak learning rate.
        workdir: Its directory.
        state: Whether it ended, failed, or was stopped and can go on.
        reason: Why it failed or where it stands, as one line; empty for a finished one.
        steps: Steps that it was to take; 0 where that is not known.
        metric: Name of the metric that is compared, of the evaluation set; larger is better.
        curve: (step, metric) of its evaluations, by rising step; it may be empty.
        losses: (step, training loss in nats), by rising step.
        kappas: Median kappa(J) over the heads by step and layer, where it was probed.
        seconds: Wall-clock seconds of the whole run; 0 where it is not finished.
        config: Its fields, as `config.json` holds them.
        versions: Versions and devices, as `versions.json` holds them.
        examples: Evaluated examples; 0 where that is not known.
    """

    label: str
    seed: int
    rate: float
    workdir: Path
    state: Literal["finished", "failed", "unfinished"]
    reason: str
    steps: int
    metric: str
    curve: tuple[tuple[int, float], ...]
    losses: tuple[tuple[int, float], ...]
    kappas: Mapping[int, Mapping[int, float]]
    seconds: float
    config: Mapping[str, Any]
    versions: Mapping[str, Any]
    examples: int = 0
