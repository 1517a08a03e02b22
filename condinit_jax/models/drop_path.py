"""Drop-path (stochastic depth, https://arxiv.org/abs/1603.09382): leaving out residual branches."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray


def drop_path_rates(rate: float, depth: int) -> np.ndarray:
    """Gives each layer its drop rate: linear from 0 at the first layer to `rate` at the last.

    Args:
        rate: drop rate of the last layer, in [0, 1).
        depth: number of layers.

    Returns:
        float32 rates, shape (depth,).

    Example:
        >>> print(drop_path_rates(0.2, 3))
        [0.  0.1 0.2]
    """
    return np.linspace(0.0, rate, depth, dtype=np.float32)


def drop_path(
    branch: Float[Array, "batch *rest"], rate: Float[Array, ""] | float, key: PRNGKeyArray
) -> Float[Array, "batch *rest"]:
    """Zeroes the branch of random examples and scales the others by 1 / (1 - rate).

    Args:
        branch: output of a residual branch; its first axis counts examples.
        rate: probability of zeroing an example's branch, in [0, 1).
        key: PRNG key.

    Returns:
        An array like `branch` with the same expectation.

    Example:
        >>> kept = drop_path(jnp.ones((1000, 2)), 0.5, jax.random.key(0))
        >>> print(jnp.unique(kept))
        [0. 2.]
    """
    shape = branch.shape[:1] + (1,) * (branch.ndim - 1)
    keep = 1.0 - jnp.asarray(rate, jnp.float32)
    factor = jax.random.bernoulli(key, keep, shape) / keep
    return branch * factor.astype(branch.dtype)
