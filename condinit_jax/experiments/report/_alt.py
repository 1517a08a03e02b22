"""What is seen in the pictures, in words, for those who do not see them."""

import math

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments.report._format import (
    Units,
    interval,
    kappa,
    learning_rate,
    percent,
    share,
)


def curves(comparison: Comparison) -> str:
    """Where each curve begins and ends.

    Args:
        comparison: It.

    Returns:
        Sentences.
    """
    units = Units(comparison.metric)
    parts = [
        f"{method.label} from {units.level(curve.mean[0])} at step {curve.steps[0]} "
        f"to {units.level(curve.mean[-1])} at step {curve.steps[-1]}"
        for method in comparison.methods
        if (curve := method.curve)
    ]
    return f"Curves of {units.axis} over the steps: {'; '.join(parts)}."


def kappas(comparison: Comparison) -> str:
    """Where each curve of kappa(J) begins and ends.

    Args:
        comparison: It.

    Returns:
        Sentences.
    """
    parts = []
    for method in comparison.methods:
        found = {step: value for step, value in method.kappas.items() if math.isfinite(value)}
        if found:
            first, last = min(found), max(found)
            text = f"{method.label} {kappa(found[first])} at step {first}"
            parts.append(text + (f", {kappa(found[last])} at step {last}" if last > first else ""))
    return f"Curves of κ(J) over the steps, on a logarithmic axis: {'; '.join(parts)}."


def differences(comparison: Comparison) -> str:
    """Every difference.

    Args:
        comparison: It.

    Returns:
        Sentences.
    """
    units = Units(comparison.metric)
    unit = f" {units.gap_unit}" if units.gap_unit else ""
    parts = [
        f"{pair.label} against {pair.reference} {units.gap(found.value)}{unit} "
        f"{interval(found, units.bound)}"
        for pair in comparison.pairs
        if (found := pair.difference)
    ]
    return f"Forest plot of differences in final {comparison.metric}: {'; '.join(parts)}."


def shares(comparison: Comparison) -> str:
    """Every share of steps.

    Args:
        comparison: It.

    Returns:
        Sentences.
    """
    parts = [
        f"{pair.label} against {pair.reference} {share(ratio.value)} {interval(ratio, percent)}"
        for pair in comparison.pairs
        if (ratio := pair.speed.ratio)
    ]
    return f"Forest plot of shares of the reference's steps: {'; '.join(parts)}."


def rates(comparison: Comparison) -> str:
    """The best rate of each method.

    Args:
        comparison: It.

    Returns:
        Sentences.
    """
    units = Units(comparison.metric)
    parts = []
    for method in comparison.methods:
        known = {rate: value for rate, value in method.rates.items() if math.isfinite(value)}
        if known:
            best = max(known, key=lambda rate: known[rate])
            parts.append(
                f"{method.label} best at {learning_rate(best)} with {units.level(known[best])}"
            )
    return f"Curves of final {units.axis} over the learning rate: {'; '.join(parts)}."
