"""What a reader must know before believing a comparison's figures."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from condinit_jax.experiments._comparison import Method
from condinit_jax.experiments._intervals import FEWEST, median_coverage
from condinit_jax.experiments._run import FINISHED, Run


def notes_on(
    runs: Sequence[Run], chosen: Mapping[str, Mapping[int, Run]], methods: Sequence[Method]
) -> tuple[str, ...]:
    """The notes.

    Args:
        runs: All runs.
        chosen: Those that count, by method and seed.
        methods: Their summaries.

    Returns:
        Sentences.
    """
    return (
        *_on_lost(methods),
        *_on_seeds(chosen),
        *_on_rates(runs, chosen),
        *_on_evaluations([run for held in chosen.values() for run in held.values()]),
        *_on_machines([run for run in runs if run.state == FINISHED]),
    )


def _on_lost(methods: Sequence[Method]) -> Iterator[str]:
    for method in methods:
        if method.failed:
            yield (
                f"{method.label}: {len(method.failed)} of its runs did not finish and are left out "
                "of every figure. If they diverged, what is left flatters the method."
            )


def _on_seeds(chosen: Mapping[str, Mapping[int, Run]]) -> Iterator[str]:
    counts = sorted({len(held) for held in chosen.values()} - {0})
    if not counts:
        return
    fewest = counts[0]
    if fewest == 1:
        yield "One run of a method has no spread: its figures have no interval and decide nothing."
    elif fewest < FEWEST:
        yield (
            f"With {fewest} seeds the intervals of means are Student's t; the interval of the "
            "steps' ratio is its whole range, which covers the median in "
            f"{100 * median_coverage(fewest):.0f} % of cases; the sign-flip test's p cannot be "
            f"below {2.0 ** (1 - fewest):.2g}."
        )
    else:
        yield (
            "Intervals of means are 95 % bootstrap intervals over seeds (expanded percentiles); "
            "those of the steps' ratio are of its median, by order statistics."
        )
    if len(counts) > 1:
        yield (
            f"Methods have between {counts[0]} and {counts[-1]} finished seeds; a pair is compared "
            "on the seeds that both have."
        )


def _on_rates(runs: Sequence[Run], chosen: Mapping[str, Mapping[int, Run]]) -> Iterator[str]:
    rates = sorted({run.rate for run in runs if not math.isnan(run.rate)})
    if len(rates) < 2:
        return
    yield (
        "Each method is judged at its own best learning rate: for a seed, the one with the best "
        "mean over the other seeds."
    )
    if any(len(held) == 1 for held in chosen.values()):
        yield (
            "A method with one seed has its rate chosen by the very run that is compared, which "
            "flatters it."
        )
    for label, held in chosen.items():
        best = {run.rate for run in held.values()}
        for end, name in ((rates[0], "lowest"), (rates[-1], "highest")):
            if best == {end}:
                yield f"{label} does best at the {name} rate tried, {end:g}: it may want another."


def _on_evaluations(runs: Sequence[Run]) -> Iterator[str]:
    gaps = [
        max(b[0] - a[0] for a, b in zip(run.curve, run.curve[1:], strict=False)) / run.curve[-1][0]
        for run in runs
        if len(run.curve) > 1
    ]
    if gaps:
        yield (
            f"Runs were evaluated every {100 * max(gaps):.2g} % of their steps: shares of steps "
            "are no finer than that (config.eval_every)."
        )
    examples = {run.examples for run in runs} - {0}
    if len(examples) == 1 and all(run.metric == "accuracy" for run in runs):
        count = examples.pop()
        share = statistics.mean(run.curve[-1][1] for run in runs)
        error = 100 * math.sqrt(max(share * (1 - share), 0.0) / count)
        yield (
            f"Accuracy is of {count} examples: each figure has a standard error of {error:.1f} "
            "points from their choice alone, which all methods share."
        )


def _on_machines(runs: Sequence[Run]) -> Iterator[str]:
    for entry in dict.fromkeys(entry for run in runs for entry in run.versions):
        held = sorted({str(run.versions[entry]) for run in runs if entry in run.versions})
        if len(held) > 1:
            yield f"Runs differ in {entry}: {', '.join(held)}."
