"""The initialization that goes with DeepNorm."""

from collections.abc import Collection
from typing import Any

import jax
from jaxtyping import Array

from condinit_jax import initializers
from condinit_jax.methods._method import NetworkMethod
from condinit_jax.methods._parts import (
    MLP_IN,
    MLP_OUT,
    QUERY_KEY,
    VALUE_OUT,
    blocks,
    checked_patterns,
    find,
    redraw,
)


def deepnorm(
    query_key: Collection[str] = QUERY_KEY,
    value_out: Collection[str] = VALUE_OUT,
    mlp: Collection[str] = MLP_IN + MLP_OUT,
) -> NetworkMethod:
    """Xavier normal kernels; value, out and MLP kernels times beta = (8 N)^(-1/4).

    N counts the attention blocks that the tree holds. Query and key kernels have gain 1. Biases,
    norms, embeddings and the head stay as they are. It is one half of a method: the other is the
    residual connection x <- norm(alpha x + f(x)) with alpha = (2 N)^(1/4), `model.residual =
    "deepnorm"` in a config.

    Args:
        query_key: ends of the paths of query and key kernels; counts the blocks.
        value_out: ends of the paths of value and out kernels.
        mlp: ends of the paths of the MLP kernels.

    Returns:
        A method on the whole network. It raises UserError if nothing is found under a group.

    Raises:
        ValueError: if a group is no tuple of texts, or `query_key` is empty.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import condinit_jax
        >>> attention = {
        ...     role: {"kernel": jnp.zeros((2, 64, 4, 16))} for role in ("query", "key", "value")
        ... }
        >>> attention["out"] = {"kernel": jnp.zeros((2, 4, 16, 64))}
        >>> mlp = {"fc1": {"kernel": jnp.zeros((2, 64, 256))}}
        >>> mlp["fc2"] = {"kernel": jnp.zeros((2, 256, 64))}
        >>> params = {"blocks": {"attention": attention, "mlp": mlp}}
        >>> new = condinit_jax.reinitialize(params, jax.random.key(1), deepnorm())["blocks"]
        >>> query, value = (new["attention"][role]["kernel"] for role in ("query", "value"))
        >>> round(8 * float(query.std()), 1), round(8 * float(value.std()), 1)
        (1.0, 0.5)

    References:
        Wang et al., DeepNet: Scaling Transformers to 1,000 Layers, arXiv 2203.00555, the constants
        of an encoder-only or decoder-only model. The fans are those of the flat kernels. Its
        authors' library, torchscale, divides the same kernels by (8 N)^(1/4), but there after
        another draw than the paper's Xavier normal one.
    """
    init = initializers.xavier_normal()
    checked_patterns(counts="query_key", query_key=query_key, value_out=value_out, mlp=mlp)

    def rewrite(key: Array, params: Any, data: Any) -> Any:
        del data
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        own = find(leaves, "query_key", query_key)
        scaled = find(leaves, "value_out", value_out) + find(leaves, "mlp", mlp)
        beta = (8 * blocks(own)) ** -0.25
        drawn = {part.position: (part, init, 1.0) for part in own}
        drawn |= {part.position: (part, init, beta) for part in scaled}
        return redraw(params, key, drawn, "deepnorm")

    return NetworkMethod(rewrite)
