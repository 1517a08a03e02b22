"""What a run ends with."""

import dataclasses
import json
from pathlib import Path
from typing import Any


@dataclasses.dataclass(frozen=True)
class Result:
    """The outcome of a run, as `result.json` holds it.

    Attributes:
        steps: Optimizer steps taken.
        metrics: Evaluation metrics after the last step.
        best_metric: Name of the metric that the best step is chosen by.
        best_value: Its largest value over the run's evaluations.
        best_step: Step with that value; its checkpoint is kept.
        seconds: Wall-clock seconds of all sessions.
        images_per_second: Training throughput, without compilation, evaluation and saving.
        probe_seconds: Of `seconds`, those that probes of attention's Jacobian took.
        corrupt: Training examples of the last session that could not be read.
        workdir: Directory with the run's files.
    """

    steps: int
    metrics: dict[str, float]
    best_metric: str
    best_value: float
    best_step: int
    seconds: float
    images_per_second: float
    corrupt: int
    workdir: str
    probe_seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON holds them."""
        return dataclasses.asdict(self)


def read_result(workdir: Path) -> Result:
    """The outcome of a complete run.

    Args:
        workdir: Directory of the run, perhaps moved since.

    Returns:
        The outcome, with `workdir` as it is now.
    """
    stored = Result(**json.loads((workdir / "result.json").read_text()))
    return dataclasses.replace(stored, workdir=str(workdir))
