"""T-Fixup: kernels scaled with the depth, so that neither layer norm nor warm-up is needed."""

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

EMBEDDINGS = ("embedding", "pos_embed", "pos_embedding", "cls_token", "cls")
PATCHES = ("patch_embed/kernel", "embedding/kernel")


def t_fixup(
    query_key: Collection[str] = QUERY_KEY,
    value_out: Collection[str] = VALUE_OUT,
    mlp: Collection[str] = MLP_IN + MLP_OUT,
    embeddings: Collection[str] = EMBEDDINGS,
    patches: Collection[str] = PATCHES,
) -> NetworkMethod:
    """Xavier uniform kernels; value, out and MLP kernels times 0.67 N^(-1/4).

    N counts the attention blocks that the tree holds. Query and key kernels have gain 1. Tables of
    embeddings of width d (tokens, learned positions, a class token) are normal with deviation
    d^(-1/2) (9 N)^(-1/4). Biases, norms and the head stay as they are.

    The paper trains without layer norms and without warm-up, which are fields of a run:
    `model.norm = "none"` and `schedule.warmup_steps = 0`.

    Args:
        query_key: ends of the paths of query and key kernels; counts the blocks.
        value_out: ends of the paths of value and out kernels.
        mlp: ends of the paths of the MLP kernels.
        embeddings: ends of the paths of tables of embeddings; there may be none.
        patches: ends of the paths of kernels that turn patches into tokens; there may be none. The
            paper has no images: here they are Xavier uniform, (9 N)^(-1/4) times, as what they
            give stands in the place of the embeddings.

    Returns:
        A method on the whole network. It raises UserError if nothing is found under a group that
        has to be there.

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
        >>> new = condinit_jax.reinitialize(params, jax.random.key(1), t_fixup())["blocks"]
        >>> query, value = (new["attention"][role]["kernel"] for role in ("query", "value"))
        >>> round(8 * float(query.std()), 1), round(8 * float(value.std()), 1)
        (1.0, 0.6)

    References:
        Huang et al., Improving Transformer Optimization Through Better Initialization, ICML 2020,
        the rule of an encoder. Official code: layer6ai-labs/T-Fixup, which differs in query and
        key kernels, whose gain is 1/sqrt(2) there (fairseq's default); value kernels have the full
        gain in both.
    """
    xavier = initializers.xavier_uniform()
    checked_patterns(
        counts="query_key",
        query_key=query_key,
        value_out=value_out,
        mlp=mlp,
        embeddings=embeddings,
        patches=patches,
    )

    def rewrite(key: Array, params: Any, data: Any) -> Any:
        del data
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        own = find(leaves, "query_key", query_key)
        scaled = find(leaves, "value_out", value_out) + find(leaves, "mlp", mlp)
        depth = blocks(own)
        input_gain = (9 * depth) ** -0.25
        drawn = {part.position: (part, xavier, 1.0) for part in own}
        drawn |= {part.position: (part, xavier, 0.67 * depth**-0.25) for part in scaled}
        found = find(leaves, "patches", patches, required=tuple(patches) != PATCHES, whole=True)
        drawn |= {part.position: (part, xavier, input_gain) for part in found}
        required = tuple(embeddings) != EMBEDDINGS
        for part in find(leaves, "embeddings", embeddings, required=required, whole=True):
            normal = initializers.normal(part.flat[1] ** -0.5)
            drawn[part.position] = (part, normal, input_gain)
        return redraw(params, key, drawn, "t_fixup")

    return NetworkMethod(rewrite)
