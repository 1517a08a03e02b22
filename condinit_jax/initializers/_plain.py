"""The initializers that papers call their baseline, with exactly the moments they mean.

All read a kernel as a matrix of inputs x outputs: (D, H, d) counts as (D, H*d), so that a fan never
depends on the layout. They draw in float32 or wider, whatever the kernel's dtype.
"""

import math
import numbers
from typing import Any

import jax
from jaxtyping import Array

from condinit_jax.initializers._draw import Initializer, initializer

# Standard deviations at which a float32 normal ends, whose uniform has 23 bits.
_FURTHEST = 5.4


def truncated_normal(stddev: float = 0.02, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """The "truncated normal" of vision transformers: cut at absolute bounds, not at two sigma.

    `jax.nn.initializers.truncated_normal(0.02)` cuts at two standard deviations, which leaves a
    standard deviation of 0.0176. The one that timm's models start from cuts at -2 and 2, so that
    0.02 stays 0.0200; a baseline named after it must do the same.

    Args:
        stddev: standard deviation before cutting.
        lower: smallest value.
        upper: largest value.

    Returns:
        The initializer.

    Raises:
        ValueError: if `stddev` is not positive, `lower` is not below `upper`, or nothing is left
            between them.

    Example:
        >>> kernel = truncated_normal(0.02)(jax.random.key(0), (256, 256))
        >>> round(float(kernel.std()), 4)
        0.02

    References:
        trunc_normal_ in timm/layers/weight_init.py (cut at absolute -2 and 2 by default).
    """
    _require_positive(stddev=stddev)
    if not lower < upper:
        raise ValueError(f"lower = {lower}, upper = {upper}: lower must be below upper")
    if max(lower, -upper) >= _FURTHEST * stddev:
        raise ValueError(f"lower = {lower}, upper = {upper}: leave nothing of stddev = {stddev}")

    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        # Bounds further out round to infinity in the inverse error function, and one draw in
        # 2^23 would land on them: a weight of -2 in a kernel of deviation 0.02.
        low, high = max(lower / stddev, -_FURTHEST), min(upper / stddev, _FURTHEST)
        return stddev * jax.random.truncated_normal(key, low, high, shape, dtype)

    return initializer(draw)


def normal(stddev: float = 0.02) -> Initializer:
    """Independent normal entries of mean zero.

    Args:
        stddev: standard deviation.

    Returns:
        The initializer.

    Raises:
        ValueError: if `stddev` is not positive.

    Example:
        >>> kernel = normal(0.02)(jax.random.key(0), (256, 256))
        >>> round(float(kernel.std()), 4)
        0.02
    """
    _require_positive(stddev=stddev)
    return initializer(lambda key, shape, dtype: stddev * jax.random.normal(key, shape, dtype))


def xavier_uniform() -> Initializer:
    """Uniform entries of variance 2 / (inputs + outputs); also called Glorot uniform.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    Example:
        >>> kernel = xavier_uniform()(jax.random.key(0), (64, 4, 16))
        >>> bool(abs(kernel).max() <= (6 / (64 + 64)) ** 0.5)
        True

    References:
        Glorot and Bengio, 2010, eq. 16.
    """
    return _scaled("fan_avg", "uniform", 1.0)


def xavier_normal() -> Initializer:
    """Normal entries of variance 2 / (inputs + outputs); also called Glorot normal.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    References:
        Glorot and Bengio, 2010.
    """
    return _scaled("fan_avg", "normal", 1.0)


def he_uniform() -> Initializer:
    """Uniform entries of variance 2 / inputs; also called Kaiming uniform.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    References:
        He et al., 2015, eq. 10.
    """
    return _scaled("fan_in", "uniform", 2.0)


def he_normal() -> Initializer:
    """Normal entries of variance 2 / inputs; also called Kaiming normal.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    References:
        He et al., 2015, eq. 10.
    """
    return _scaled("fan_in", "normal", 2.0)


def lecun_uniform() -> Initializer:
    """Uniform entries of variance 1 / inputs.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    References:
        LeCun et al., Efficient BackProp, 1998, eq. 16.
    """
    return _scaled("fan_in", "uniform", 1.0)


def lecun_normal() -> Initializer:
    """Normal entries of variance 1 / inputs, not cut.

    Flax's own default kernel is this one cut at two standard deviations and rescaled to the same
    variance (`jax.nn.initializers.lecun_normal`).

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    References:
        LeCun et al., Efficient BackProp, 1998, eq. 16.
    """
    return _scaled("fan_in", "normal", 1.0)


def small(gamma: float = 1.0) -> Initializer:
    """Normal entries of deviation inputs^-gamma: 1/2 is the usual scaling, 1 is small.

    Args:
        gamma: how fast the deviation falls with the inputs.

    Returns:
        An initializer of (D, H*d), or (D, H, d) read as (D, H*d); not of convolutions.

    Raises:
        ValueError: if `gamma` is negative or no finite number.

    Example:
        >>> kernel = small(1.0)(jax.random.key(0), (100, 400))
        >>> round(float(kernel.std()), 3)
        0.01

    References:
        Hang et al., Small Initialization Matters for Large Language Models, 2026
        (https://arxiv.org/abs/2606.17945).
    """
    if not (math.isfinite(gamma) and gamma >= 0):
        raise ValueError(f"gamma = {gamma}: must be at least 0")

    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        return _inputs_and_outputs(shape)[0] ** -gamma * jax.random.normal(key, shape, dtype)

    return initializer(draw)


def _inputs_and_outputs(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) not in (2, 3):
        raise ValueError(
            "a kernel of attention has shape (inputs, outputs) or (inputs, heads, head width); "
            f"got {shape}"
        )
    return shape[0], math.prod(shape[1:])


def _scaled(fan: str, distribution: str, gain: float) -> Initializer:
    def draw(key: Array, shape: tuple[int, ...], dtype: Any) -> Array:
        inputs, outputs = _inputs_and_outputs(shape)
        variance = gain / (inputs if fan == "fan_in" else (inputs + outputs) / 2)
        if distribution == "normal":
            return math.sqrt(variance) * jax.random.normal(key, shape, dtype)
        bound = math.sqrt(3 * variance)
        return jax.random.uniform(key, shape, dtype, -bound, bound)

    return initializer(draw)


def _require_positive(**values: float) -> None:
    for name, value in values.items():
        if not (isinstance(value, numbers.Real) and 0 < value < math.inf):
            raise ValueError(f"{name} = {value!r}: must be positive and finite")
