"""Rows of probes in a run's metrics, and what is made of them for people."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

SHOWN = 6
"""Layers whose figures stand on a progress line."""


def layer_kappas(rows: Iterable[Mapping[str, Any]]) -> dict[int, float]:
    """The median of kappa(J) over the heads and examples of each layer.

    Args:
        rows: Rows of one probe; those without a "size" have no Jacobian, and in others a kappa of
            None is infinite.

    Returns:
        Median by layer; layers where it is infinite are left out.

    Example:
        >>> layer_kappas([{"layer": 2, "kappa": k, "size": 9} for k in (10.0, 30.0, None)])
        {2: 30.0}
    """
    by_layer: dict[int, list[float]] = {}
    for row in rows:
        if row.get("size") is not None:
            kappa = math.inf if row["kappa"] is None else row["kappa"]
            by_layer.setdefault(row["layer"], []).append(kappa)
    medians = {layer: statistics.median(kappas) for layer, kappas in by_layer.items()}
    return {layer: kappa for layer, kappa in medians.items() if math.isfinite(kappa)}


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A probe as a few figures for a progress line.

    Args:
        rows: Rows of one probe.

    Returns:
        The median kappa(J) of each layer, or the range of those of many layers, or the number of
        rows without any; and how many rows carry a warning, if any do.

    Example:
        >>> summary([{"layer": n, "kappa": 10.0**n, "size": 9} for n in range(3)])
        {'kappa': '1,10,1e+02'}
    """
    kappas = list(layer_kappas(rows).values())
    if not kappas:
        return {"rows": len(rows)}
    shown = [f"{kappa:.2g}" for kappa in kappas]
    if len(kappas) > SHOWN:
        middle = statistics.median(kappas)
        shown = [f"{min(kappas):.2g}..{middle:.2g}..{max(kappas):.2g}"]
    warnings = sum(bool(row.get("warning")) for row in rows)
    return {"kappa": ",".join(shown), **({"warnings": warnings} if warnings else {})}


def as_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a probe as JSON holds it: plain numbers, None for what is not finite.

    Args:
        row: A row of `condinit_jax.spectra.Probe`.

    Returns:
        The row without "run" and "step", which a run's metrics say themselves.

    Example:
        >>> as_json({"run": "a", "layer": np.int64(3), "kappa": float("inf"), "rank": None})
        {'layer': 3, 'kappa': None, 'rank': None}
    """

    def plain(value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {name: plain(value) for name, value in row.items() if name not in ("run", "step")}
