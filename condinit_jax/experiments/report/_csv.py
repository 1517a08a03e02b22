"""The figures as two CSV files for further work, unrounded; no figure is an empty field."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from condinit_jax.experiments._comparison import Comparison, Estimate, Method, Pair
from condinit_jax.experiments.report._run_tables import best_metric, final_metric, start_kappa

RUN_FIELDS = (
    "label", "seed", "rate", "state", "reason", "steps", "metric", "final", "best", "seconds",
    "kappa_start", "workdir",
)  # fmt: skip

METHOD_FIELDS = (
    "label", "seeds", "failed", "rate", "metric", "final", "final_low", "final_high", "final_sd",
    "area", "area_low", "area_high", "loss", "kappa_start", "reference", "pairs", "difference",
    "difference_low", "difference_high", "p", "p_holm", "p_sign", "area_difference",
    "area_difference_low", "area_difference_high", "area_p_holm", "steps_share", "steps_share_low",
    "steps_share_high", "reached", "reached_of", "median_reached",
)  # fmt: skip


def runs_csv(comparison: Comparison) -> str:
    """A row for every run, finished or not.

    Args:
        comparison: It.

    Returns:
        Content of the file.
    """
    rows = [
        {
            "label": run.label,
            "seed": run.seed,
            "rate": run.rate,
            "state": run.state,
            "reason": run.reason,
            "steps": run.steps or None,
            "metric": run.metric,
            "final": final_metric(run),
            "best": best_metric(run),
            "seconds": run.seconds or None,
            "kappa_start": start_kappa(run),
            "workdir": run.workdir,
        }
        for run in comparison.runs
    ]
    return _text(RUN_FIELDS, rows)


def methods_csv(comparison: Comparison) -> str:
    """A row for every method and reference, and one for a method that is compared with none.

    Args:
        comparison: It.

    Returns:
        Content of the file. `median_reached` tells a share of steps that is empty because fewer
        than half of the runs got there (``no``) from one that is not known (empty).
    """
    rows = []
    for method in comparison.methods:
        own = _method(method, comparison.metric)
        pairs = [pair for pair in comparison.pairs if pair.label == method.label]
        rows += [own | _pair(pair) for pair in pairs] or [own]
    return _text(METHOD_FIELDS, rows)


def _method(method: Method, metric: str) -> dict[str, Any]:
    return {
        "label": method.label,
        "seeds": len(method.seeds),
        "failed": len(method.failed),
        "rate": method.rate,
        "metric": metric,
        **_estimate("final", method.final),
        "final_sd": method.spread,
        **_estimate("area", method.area),
        "loss": method.loss,
        "kappa_start": method.kappa,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    ratio = pair.speed.ratio
    return {
        "reference": pair.reference,
        "pairs": len(pair.seeds),
        **_estimate("difference", pair.difference),
        "p": pair.p,
        "p_holm": pair.p_adjusted,
        "p_sign": pair.p_sign,
        **_estimate("area_difference", pair.area),
        "area_p_holm": pair.p_area,
        **_estimate("steps_share", ratio),
        "reached": pair.speed.reached,
        "reached_of": pair.speed.count,
        "median_reached": None if ratio is None else "yes" if math.isfinite(ratio.value) else "no",
    }


def _estimate(name: str, estimate: Estimate | None) -> dict[str, float]:
    if estimate is None:
        return {}
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _text(fields: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> str:
    held = io.StringIO()
    writer = csv.DictWriter(held, fields, restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _known(value) for name, value in row.items()})
    return held.getvalue()


def _known(value: Any) -> Any:
    """The value; None, which is written as an empty field, for a float that is no number."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
