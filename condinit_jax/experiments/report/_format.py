"""Figures as a reader sees them: formatted in one place, and never as "nan" or "inf"."""

import dataclasses
import math
from collections.abc import Callable

from condinit_jax.experiments._comparison import Estimate
from condinit_jax.experiments._verdict import is_share

DASH = "\N{EN DASH}"
"""Stands where there is no figure."""

NOT_REACHED = "not reached"
"""Stands where fewer than half of the runs reached the target."""

MINUS = "\N{MINUS SIGN}"

TIMES = "\N{MULTIPLICATION SIGN}"

SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclasses.dataclass(frozen=True)
class Units:
    """How a metric and its differences are written: accuracies in per cent, others as they are.

    Attributes:
        metric: Its name.

    Example:
        >>> units = Units("accuracy")
        >>> units.axis, units.level(0.61234), units.gap(-0.0123), units.gap_unit
        ('accuracy, %', '61.2', '−1.2', 'points')
        >>> Units("score").level(0.61234)
        '0.6123'
    """

    metric: str

    @property
    def in_percent(self) -> bool:
        """Whether it is a share."""
        return is_share(self.metric)

    @property
    def axis(self) -> str:
        """Its name, with the unit."""
        return f"{self.metric}, %" if self.in_percent else self.metric

    @property
    def unit(self) -> str:
        """What is written after a level in running text."""
        return " %" if self.in_percent else ""

    @property
    def gap_unit(self) -> str:
        """The unit of differences, or nothing."""
        return "points" if self.in_percent else ""

    def scaled(self, value: float) -> float:
        """A value as it is drawn."""
        return 100 * value if self.in_percent else value

    def level(self, value: float) -> str:
        """A value of the metric."""
        return decimal(100 * value, 1) if self.in_percent else significant(value, 4)

    def spread(self, value: float) -> str:
        """A standard deviation."""
        return decimal(100 * value, 1) if self.in_percent else significant(value, 2)

    def bound(self, value: float) -> str:
        """An end of a difference's interval."""
        return decimal(100 * value, 1) if self.in_percent else significant(value, 3)

    def gap(self, value: float) -> str:
        """A difference, with its sign."""
        text = self.bound(value)
        return f"+{text}" if math.isfinite(value) and float(text.replace(MINUS, "-")) > 0 else text


def decimal(value: float, places: int) -> str:
    """A number with a fixed count of decimals.

    Args:
        value: The number.
        places: Decimals.

    Returns:
        The text; a dash for NaN and a sign for infinity.

    Example:
        >>> decimal(-0.04, 1), decimal(-1.25, 1), decimal(float("inf"), 1)
        ('0.0', '−1.2', '∞')
    """
    if not math.isfinite(value):
        return _not_finite(value)
    text = f"{value:.{places}f}"
    return _minus(text if float(text) else text.lstrip("-"))


def significant(value: float, digits: int) -> str:
    """A number with a count of significant digits, small and huge ones as powers of ten.

    Args:
        value: The number.
        digits: Significant digits.

    Returns:
        The text.

    Example:
        >>> [significant(value, 3) for value in (0.1234, 1234.4, 1.5e7, 2e-9)]
        ['0.123', '1230', '1.5×10⁷', '2×10⁻⁹']
    """
    if not math.isfinite(value):
        return _not_finite(value)
    size = abs(value)
    if value == 0 or 1e-4 <= size < 1e5:
        rounded = float(f"{value:.{digits}g}")
        return _minus(f"{rounded:.0f}" if size >= 10**digits else f"{value:.{digits}g}")
    return power_of_ten(value, digits)


def power_of_ten(value: float, digits: int = 3) -> str:
    """A number as a power of ten with its factor.

    Args:
        value: The number, finite.
        digits: Significant digits of the factor.

    Returns:
        The text; without a factor of 1.

    Example:
        >>> power_of_ten(1000), power_of_ten(0.0205)
        ('10³', '2.05×10⁻²')
    """
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    sign = "⁻" if int(power) < 0 else ""
    ten = f"10{sign}{str(abs(int(power))).translate(SUPERSCRIPTS)}"
    return ten if mantissa == "1" else _minus(f"{mantissa}{TIMES}{ten}")


def kappa(value: float) -> str:
    """A condition number.

    Args:
        value: It.

    Returns:
        The text, with three significant digits.
    """
    return significant(value, 3)


def share(value: float) -> str:
    """A ratio of steps in per cent.

    Args:
        value: The ratio.

    Returns:
        The text.

    Example:
        >>> share(0.571), share(float("inf")), share(float("nan"))
        ('57 %', 'not reached', '–')
    """
    if value == math.inf:
        return NOT_REACHED
    return f"{decimal(100 * value, 0)} %" if math.isfinite(value) else DASH


def probability(p: float) -> str:
    """A p value.

    Args:
        p: It.

    Returns:
        The text.

    Example:
        >>> probability(0.0412), probability(0.00001), probability(float("nan"))
        ('0.041', '< 0.001', '–')
    """
    if not math.isfinite(p):
        return DASH
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def interval(estimate: Estimate, show: Callable[[float], str]) -> str:
    """The interval of an estimate.

    Args:
        estimate: It.
        show: Writes one of its ends.

    Returns:
        The interval in brackets, round ones at an open end.

    Example:
        >>> interval(Estimate(0.5, 0.4, float("inf")), lambda value: decimal(100 * value, 0))
        '[40, ∞)'
        >>> interval(Estimate(0.5, float("nan"), float("nan")), str)
        '[–]'
    """
    if math.isnan(estimate.low) or math.isnan(estimate.high):
        return f"[{DASH}]"
    opening = "(" if math.isinf(estimate.low) else "["
    closing = ")" if math.isinf(estimate.high) else "]"
    return f"{opening}{show(estimate.low)}, {show(estimate.high)}{closing}"


def percent(value: float) -> str:
    """A ratio of steps in per cent, without the sign, for an interval's ends.

    Args:
        value: The ratio.

    Returns:
        The text.
    """
    return decimal(100 * value, 0)


def learning_rate(value: float) -> str:
    """A learning rate.

    Args:
        value: It; NaN where each seed has its own.

    Returns:
        The text.
    """
    return "by seed" if math.isnan(value) else _minus(f"{value:g}")


def _minus(text: str) -> str:
    return text.replace("-", MINUS)


def _not_finite(value: float) -> str:
    return DASH if math.isnan(value) else "∞" if value > 0 else f"{MINUS}∞"
