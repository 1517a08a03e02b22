"""GPT-2's initialization: small normal kernels, smaller still where they write to the residual."""

import math
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
    blocks,
    checked_patterns,
    find,
    redraw,
)


def gpt2(
    stddev: float = 0.02,
    attention: Collection[str] = (*QUERY_KEY, "value/kernel"),
    residual: Collection[str] = ("out/kernel", *MLP_OUT),
    mlp: Collection[str] = MLP_IN + MLP_OUT,
) -> NetworkMethod:
    """Normal kernels, those that write to the residual stream divided by sqrt(2 L).

    Of the L attention blocks that the tree holds, it draws the query, key and value kernels and the
    MLP kernels from N(0, stddev), and the out kernels and second MLP kernels from
    N(0, stddev / sqrt(2 L)). Biases, norms, embeddings and the head stay as they are: GPT-2 draws
    its embeddings too.

    Args:
        stddev: standard deviation of the entries before the division.
        attention: ends of the paths of query, key and value kernels; counts the blocks.
        residual: ends of the paths of the kernels to be divided by sqrt(2 L).
        mlp: ends of the paths of the MLP kernels; one that `residual` names too is divided.

    Returns:
        A method on the whole network. It raises UserError if nothing is found under a group.

    Raises:
        ValueError: if `stddev` is not positive, a group is no tuple of texts, or `attention` is
            empty.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> import condinit_jax
        >>> attention = {
        ...     role: {"kernel": jnp.zeros((8, 64, 4, 16))} for role in ("query", "key", "value")
        ... }
        >>> attention["out"] = {"kernel": jnp.zeros((8, 4, 16, 64))}
        >>> mlp = {"fc1": {"kernel": jnp.zeros((8, 64, 256))}}
        >>> mlp["fc2"] = {"kernel": jnp.zeros((8, 256, 64))}
        >>> params = {"blocks": {"attention": attention, "mlp": mlp}}
        >>> new = condinit_jax.reinitialize(params, jax.random.key(1), gpt2())["blocks"]
        >>> [round(float(new["mlp"][name]["kernel"].std()), 4) for name in ("fc1", "fc2")]
        [0.02, 0.005]

    References:
        Radford et al., Language Models are Unsupervised Multitask Learners, 2019, section 2.3: a
        factor 1/sqrt(N) for N residual layers, of which a block has two. As deviation
        0.02 / sqrt(2 L) it stands in Hugging Face's modeling_gpt2.py; not confirmed in OpenAI's
        own training code, which is not public.
    """
    init = initializers.normal(stddev)
    checked_patterns(counts="attention", attention=attention, residual=residual, mlp=mlp)

    def rewrite(key: Array, params: Any, data: Any) -> Any:
        del data
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        own = find(leaves, "attention", attention)
        gain = 1 / math.sqrt(2 * blocks(own))
        full = own + find(leaves, "mlp", mlp)
        scaled = find(leaves, "residual", residual)
        drawn = {part.position: (part, init, 1.0) for part in full}
        drawn |= {part.position: (part, init, gain) for part in scaled}
        return redraw(params, key, drawn, "gpt2")

    return NetworkMethod(rewrite)
