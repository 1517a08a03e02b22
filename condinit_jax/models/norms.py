"""The norms that a model can be built with, by the name its `norm` field gives."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float


class NoNorm(nn.Module):
    """The identity in a norm's place, without parameters: for networks that need no norms.

    T-Fixup is one (Huang et al., https://proceedings.mlr.press/v119/huang20f.html): its initial
    kernels make norms unnecessary.

    Attributes:
        epsilon: unused; there because norms have it.
        dtype: dtype of the output; None leaves that of the input.

    Example:
        >>> print(NoNorm().apply({}, jnp.array([1.0, 3.0])))
        [1. 3.]
    """

    epsilon: float = 0.0
    dtype: jnp.dtype | None = None

    @nn.compact
    def __call__(self, tokens: Float[Array, "..."]) -> Float[Array, "..."]:
        """Gives what it is given, in `dtype`."""
        return tokens if self.dtype is None else tokens.astype(self.dtype)


NORMS: Mapping[str, Callable[..., nn.Module]] = MappingProxyType(
    # The two-pass variance: E[x^2] - E[x]^2 cancels where a token's mean outgrows its deviation.
    {
        "layernorm": lambda **fields: nn.LayerNorm(use_fast_variance=False, **fields),
        "rmsnorm": nn.RMSNorm,
        "none": NoNorm,
    }
)


def norm_layer(kind: str, eps: float, dtype: jnp.dtype, *, name: str) -> nn.Module:
    """Makes a norm over the last axis.

    Args:
        kind: a name in `NORMS`: "layernorm" has a scale and a bias, "rmsnorm" a scale,
            "none" is the identity.
        eps: constant added to the variance or the mean square.
        dtype: dtype of the output; statistics are computed in float32.
        name: name of the layer in the parameter tree.

    Returns:
        The layer, to be called inside a compact method.
    """
    return NORMS[kind](epsilon=eps, dtype=dtype, name=name)
