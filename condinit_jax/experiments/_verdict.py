"""A comparison in words, most important first."""

import math
from collections.abc import Iterator

from condinit_jax.experiments._comparison import Comparison, Estimate, Method, Pair

LEVEL = 0.05
"""Adjusted p below which a difference is called one."""

SMALLEST = 1e-4
"""P values below are not told apart."""

OURS = "conditioned"

FEWER = 2.0
"""Factor between condition numbers below which they are called alike."""


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """What the runs say, as sentences.

    A difference is claimed only where its p value, corrected for the number of pairs, is below
    0.05; elsewhere its interval shows how large a difference could hide. A method is called sooner
    or later only where the interval of the steps' ratio lies on one side of 1 and its mean metric
    over the steps differs by the same test.

    Args:
        comparison: The figures.

    Returns:
        Sentences; runs that did not finish are never kept quiet.

    Example:
        >>> from condinit_jax.experiments import compare_runs
        >>> verdict(compare_runs([], title="recipe", command=""))
        ('No run has finished: there is nothing to compare yet.',)
    """
    ended = [method for method in comparison.methods if method.final is not None]
    if not ended:
        return ("No run has finished: there is nothing to compare yet.", *_lost(comparison))
    if len(ended) == 1 and not comparison.pairs:
        return (_alone(ended[0], comparison.metric), *_lost(comparison))
    sentences = [*_steps(comparison), *_finals(comparison)]
    if not sentences:
        sentences = ["No two methods have finished runs of the same seed: nothing can be compared."]
    return (*sentences, *_lost(comparison), *_kappa(comparison))


def shown(value: float, metric: str, *, signed: bool = False, digits: int = 1) -> str:
    """A metric as people read it.

    Args:
        value: Of the metric.
        metric: Its name; accuracies are shown in per cent.
        signed: Whether a difference is shown, with its sign.
        digits: After the point, of per cent.

    Returns:
        The text, without a unit.

    Example:
        >>> shown(0.8314, "accuracy"), shown(-0.012, "accuracy", signed=True)
        ('83.1', '-1.2')
    """
    sign = "+" if signed else ""
    if is_share(metric):
        return f"{100 * value:{sign}.{digits}f}"
    return f"{value:{sign}.4g}"


def is_share(metric: str) -> bool:
    """Whether a metric is a share, which people read in per cent."""
    return metric.endswith("accuracy")


def _alone(method: Method, metric: str) -> str:
    assert method.final is not None
    unit = " %" if is_share(metric) else ""
    return (
        f"{method.label} ends with {metric} {shown(method.final.value, metric)}{unit} (mean of "
        f"{_runs(len(method.seeds))}); there is no other method to compare it with."
    )


def _steps(comparison: Comparison) -> Iterator[str]:
    """How soon each method reaches the references' final metric."""
    # The method that this package is named after first.
    ours = sorted(comparison.pairs, key=lambda pair: not pair.label.startswith(OURS))
    for pair in ours:
        speed = pair.speed
        if speed.ratio is None:
            continue
        target = f"the final {comparison.metric} of {pair.reference}"
        if math.isinf(speed.ratio.value):
            yield (
                f"{pair.label} reaches {target} in {speed.reached} of {_runs(speed.count)}, too "
                f"few for a median; {pair.reference} reaches it by construction."
            )
            continue
        words = {1: "sooner: ", -1: "later: ", 0: "neither sooner nor later, as far as n = "}
        word = words[_sooner(pair)] if speed.count > 1 else ""
        word += f"{speed.count} tells: " if word.endswith("= ") else ""
        reach = f"reached in {speed.reached} of {_runs(speed.count)}"
        yield (
            f"{pair.label} reaches {target} {word}in {_share(speed.ratio)} of the steps that "
            f"{pair.reference} needs ({reach})."
        )


def _share(ratio: Estimate) -> str:
    text = f"{100 * ratio.value:.0f} %"
    if math.isnan(ratio.low):
        return text
    high = "never" if math.isinf(ratio.high) else f"{100 * ratio.high:.0f}"
    return f"{text} [{100 * ratio.low:.0f}, {high}]"


def _finals(comparison: Comparison) -> Iterator[str]:
    """Where each method ends."""
    metric = comparison.metric
    points = " points" if is_share(metric) else ""
    for pair in comparison.pairs:
        if pair.difference is None:
            yield f"{pair.label} and {pair.reference} have no finished run of the same seed."
            continue
        count = len(pair.seeds)
        value = f"{shown(pair.difference.value, metric, signed=True)}{points}"
        if count == 1:
            yield (
                f"Final {metric} of {pair.label} minus {pair.reference}: {value}; one run of each "
                "decides nothing."
            )
            continue
        interval = (
            f"[{shown(pair.difference.low, metric, signed=True)}, "
            f"{shown(pair.difference.high, metric, signed=True)}]"
        )
        figures = f"{value} {interval}, {_p(pair.p_adjusted)} after Holm's correction"
        if pair.difference.value and math.isclose(pair.difference.low, pair.difference.high):
            figures += " (the same for every seed: p is the sign-flip test's)"
        if pair.p_adjusted < LEVEL:
            word = "higher" if pair.difference.value > 0 else "lower"
            yield (
                f"{pair.label} ends {word} than {pair.reference}: final {metric} {figures}, "
                f"n = {count}."
            )
        else:
            apart = pair.difference.low > 0 or pair.difference.high < 0
            word = "a difference is suggested but not" if apart else "no difference is"
            yield (
                f"Between the final {metric} of {pair.label} and {pair.reference} {word} "
                f"established at n = {count}: {figures}."
            )


def _kappa(comparison: Comparison) -> Iterator[str]:
    """What a better conditioned start was worth."""
    by_label = {method.label: method for method in comparison.methods}
    baseline = comparison.labels[0]
    for pair in comparison.pairs:
        if pair.reference != baseline:
            continue
        first, second = by_label[pair.label].kappa, by_label[pair.reference].kappa
        if not (first > 0 and second > 0) or pair.speed.ratio is None:
            continue
        factor = second / first
        if max(factor, 1 / factor) < FEWER:
            continue
        learns = _learns(pair)
        if factor > 1:
            yield (
                f"{pair.label} starts with a kappa(J) {_times(factor)} times lower than "
                f"{pair.reference} and {learns}."
            )
        else:
            yield (
                f"{pair.label} starts with a kappa(J) {_times(1 / factor)} times higher than "
                f"{pair.reference} and {learns}."
            )
    whole = [c for c in comparison.correlations if c.layer is None]
    if whole:
        found = ", ".join(f"{c.rho:+.2f} with the {c.outcome} ({_p(c.p)})" for c in whole)
        yield (
            f"Over {whole[0].count} methods, kappa(J) before the first step has a rank correlation "
            f"of {found}."
        )


def _learns(pair: Pair) -> str:
    if pair.speed.count == 1:
        return "one run of each does not tell whether it learns sooner"
    words = {1: "learns sooner", -1: "learns later", 0: "does not measurably learn sooner"}
    return words[_sooner(pair)]


def _sooner(pair: Pair) -> int:
    """1 where a method learns sooner, -1 where later, 0 where these runs do not tell."""
    ratio = pair.speed.ratio
    if ratio is None or pair.area is None or not pair.p_area < LEVEL:
        return 0
    if ratio.high < 1 and pair.area.value > 0:
        return 1
    return -1 if ratio.low > 1 and pair.area.value < 0 else 0


def _p(value: float) -> str:
    return f"p = {value:.2g}" if value >= SMALLEST else f"p < {SMALLEST:g}"


def _times(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"


def _lost(comparison: Comparison) -> Iterator[str]:
    for method in comparison.methods:
        failed = [run for run in method.failed if run.state == "failed"]
        others = len(method.failed) - len(failed)
        if failed:
            yield f"{_runs(len(failed))} of {method.label} failed: {failed[0].reason}."
        if others:
            yield f"{_runs(others)} of {method.label} did not finish."


def _runs(count: int) -> str:
    return f"{count} run" + ("" if count == 1 else "s")
