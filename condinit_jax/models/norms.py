"""The norms that a model can be built with, by the name its `norm` field gives."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax.numpy as jnp
from flax import linen as nn

NORMS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    # The two-pass variance: E[x^2] - E[x]^2 cancels where a token's mean outgrows its deviation.
    {
        "layernorm": lambda **fields: nn.LayerNorm(use_fast_variance=False, **fields),
        "rmsnorm": nn.RMSNorm,
    }
)


def norm_layer(kind: str, eps: float, dtype: jnp.dtype, *, name: str) -> nn.Module:
    """Makes a norm over the last axis.

    Args:
        kind: a name in `NORMS`: "layernorm" has a scale and a bias, "rmsnorm" a scale.
        eps: constant added to the variance or the mean square.
        dtype: dtype of the output; statistics are computed in float32.
        name: name of the layer in the parameter tree.

    Returns:
        The layer, to be called inside a compact method.
    """
    return NORMS[kind](epsilon=eps, dtype=dtype, name=name)
