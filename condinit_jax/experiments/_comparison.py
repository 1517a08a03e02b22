"""What a comparison found, in figures: what the verdict puts into words and the report shows."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from condinit_jax.experiments._run import Run


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A figure with its 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end; NaN where one value alone gives no interval.
        high: Upper end; infinite where censoring leaves it open.
    """

    value: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True)
class Speed:
    """Steps until a method first reaches the reference's final metric, over the reference's own.

    Attributes:
        ratio: Median of the paired ratios by Kaplan and Meier, with its interval; its value is
            infinite where half of the runs or fewer reached the target. None without pairs.
        reached: Runs that reached the target of their seed.
        count: Pairs.
        ratios: By seed, the ratio and whether it is a lower bound because the target was never
            reached.
    """

    ratio: Estimate | None
    reached: int
    count: int
    ratios: tuple[tuple[int, float, bool], ...]


@dataclasses.dataclass(frozen=True)
class Pair:
    """A method against a reference, paired by seed.

    Attributes:
        label: The method.
        reference: What it is compared with.
        seeds: Seeds that both finished.
        difference: Final metric, the method's minus the reference's; None without pairs.
        p: Of a paired t test; NaN for fewer than two pairs.
        p_adjusted: By Holm, over all pairs of the comparison.
        p_sign: Of the exact sign-flip test, which assumes no normality; at least 2^(1 - pairs).
        area: Mean metric over the steps (area under the curve / steps), difference likewise.
        speed: How soon the method reaches the reference's final metric.
        p_area: Of a paired t test on the area, by Holm over all pairs: whether the method learns
            sooner or later at all, which the steps' ratio of a few seeds cannot tell.
    """

    label: str
    reference: str
    seeds: tuple[int, ...]
    difference: Estimate | None
    p: float
    p_adjusted: float
    p_sign: float
    area: Estimate | None
    speed: Speed
    p_area: float = math.nan


@dataclasses.dataclass(frozen=True)
class Curve:
    """The metric over the steps.

    Attributes:
        steps: Steps that all finished runs were evaluated at.
        mean: Mean over seeds.
        low: Lower end of the mean's 95 % interval; equal to `mean` for one seed.
        high: Upper end.
    """

    steps: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Method:
    """One method's runs taken together.

    Attributes:
        label: Its name.
        rate: Learning rate of the runs that the figures are of; NaN where each seed has its own
            (the best of the other seeds').
        rates: Mean final metric by learning rate, over the finished seeds.
        seeds: Seeds that finished at that rate.
        failed: Runs that did not finish, at any rate.
        final: Mean final metric, with its interval; None where none finished.
        spread: Standard deviation of the final metric over seeds; NaN for one.
        area: Mean over seeds of the mean metric over the steps; None where none finished.
        loss: Mean final training loss in nats; NaN where unknown.
        kappa: Geometric mean over seeds and layers of kappa(J) before the first step; NaN where
            not probed.
        kappas: The same by step (mean over seeds and layers, geometric), for a curve.
        curve: The metric over the steps; None where none finished.
    """

    label: str
    rate: float
    rates: Mapping[float, float]
    seeds: tuple[int, ...]
    failed: tuple[Run, ...]
    final: Estimate | None
    spread: float
    area: Estimate | None
    loss: float
    kappa: float
    kappas: Mapping[int, float]
    curve: Curve | None


@dataclasses.dataclass(frozen=True)
class Correlation:
    """Whether kappa(J) before the first step predicts something over the methods.

    Attributes:
        layer: The layer whose kappa it is, or None for all layers' geometric mean.
        outcome: What is predicted, in words, such as ``final accuracy``.
        rho: Spearman's rank correlation over methods.
        p: Of the permutation test of rho.
        count: Methods.
    """

    layer: int | None
    outcome: str
    rho: float
    p: float
    count: int


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All that is known of a set of runs.

    Attributes:
        title: What was trained, such as ``configs/vit.py:micro,bundled``.
        command: The command that makes it again.
        metric: What is compared.
        labels: Methods in the order asked for; the first is the baseline.
        methods: Summaries in that order.
        pairs: Each method against each reference.
        correlations: What kappa(J) at the first step predicts; empty for fewer than four methods
            with probes.
        runs: All runs, finished or not.
        config: Fields that all runs share, flat, by dotted path.
        differences: For each label, the fields in which it differs from the first, as lines.
        notes: What a reader must know before believing the figures, as sentences.
    """

    title: str
    command: str
    metric: str
    labels: tuple[str, ...]
    methods: tuple[Method, ...]
    pairs: tuple[Pair, ...]
    correlations: tuple[Correlation, ...]
    runs: tuple[Run, ...]
    config: Mapping[str, Any]
    differences: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
