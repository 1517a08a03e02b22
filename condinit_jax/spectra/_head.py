"""One softmax attention head, the tokens that it reads, and what its Jacobian is made of.

A head maps its three kernels to A = P V with P = softmax(scale * Q K^T + bias), where Q, K, V are
the tokens times the kernels (plus biases; queries and keys perhaps normalised or rotated).
`Head` covers self- and cross-attention, masks, additive logit biases, grouped queries, QK-norm and
rotary positions: whatever only changes P or maps queries and keys token by token.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels

TokenMap = Callable[[Float[Array, "tokens dim"]], Float[Array, "tokens dim"]]
"""A map of queries or keys that treats every token by itself, such as a norm or a rotation.

It has to be a pytree, so that it can be passed through `jit`: `jax.tree_util.Partial(function,
parameters)`, called with the queries last.
"""


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=[
        "tokens", "query", "key", "value", "context", "query_bias", "key_bias", "value_bias",
        "logit_bias", "mask", "scale", "query_map", "key_map",
    ],
    meta_fields=[],
)  # fmt: skip
@dataclasses.dataclass(frozen=True)
class Head:
    """One softmax attention head and the tokens that it reads.

    N query tokens of width D attend over M context tokens of width E; d is the width of queries and
    keys, v that of values. A leading axis on every array makes it a stack of heads.

    Attributes:
        tokens: (N, D), what enters the query kernel.
        query: kernel (D, d).
        key: kernel (E, d).
        value: kernel (E, v).
        context: (M, E), what enters the key and value kernels; None for self-attention.
        query_bias: (d,) or None.
        key_bias: (d,) or None.
        value_bias: (v,) or None.
        logit_bias: (N, M), added to the scaled logits, or None.
        mask: (N, M), False where a query may not see a key, or None.
        scale: scalar that multiplies Q K^T; None for 1/sqrt(d).
        query_map: applied to the queries, bias included, before the product (QK-norm, rotary
            positions), or None.
        key_map: the same for keys.
    """

    tokens: Float[Array, "tokens width"]
    query: Float[Array, "width dim"]
    key: Float[Array, "context_width dim"]
    value: Float[Array, "context_width value_dim"]
    context: Float[Array, "context context_width"] | None = None
    query_bias: Float[Array, " dim"] | None = None
    key_bias: Float[Array, " dim"] | None = None
    value_bias: Float[Array, " value_dim"] | None = None
    logit_bias: Float[Array, "tokens context"] | None = None
    mask: Bool[Array, "tokens context"] | None = None
    scale: Float[Array, ""] | float | None = None
    query_map: TokenMap | None = None
    key_map: TokenMap | None = None

    @property
    def kernels(self) -> tuple[Array, Array, Array]:
        """The query, key and value kernel."""
        return self.query, self.key, self.value

    @property
    def keys_from(self) -> Float[Array, "context context_width"]:
        """The tokens that keys and values are made of."""
        return self.tokens if self.context is None else self.context


class Projections(NamedTuple):
    """What the head computes on its way.

    Attributes:
        query: (N, d), mapped.
        key: (M, d), mapped.
        value: (M, v).
        weights: P, (N, M), rows sum to 1.
        raw_query: (N, d), before `query_map`.
        raw_key: (M, d), before `key_map`.
        scale: scalar.
    """

    query: Array
    key: Array
    value: Array
    weights: Array
    raw_query: Array
    raw_key: Array
    scale: Array | float


def project(head: Head) -> Projections:
    """Queries, keys, values and attention weights of a head; by NumPy if its arrays are NumPy's."""
    xp = namespace(head)

    def linear(tokens: Array, kernel: Array, bias: Array | None) -> Array:
        return tokens @ kernel if bias is None else tokens @ kernel + bias

    raw_query = linear(head.tokens, head.query, head.query_bias)
    raw_key = linear(head.keys_from, head.key, head.key_bias)
    value = linear(head.keys_from, head.value, head.value_bias)
    query = raw_query if head.query_map is None else head.query_map(raw_query)
    key = raw_key if head.key_map is None else head.key_map(raw_key)
    scale = 1.0 / math.sqrt(query.shape[-1]) if head.scale is None else head.scale
    logits = scale * (query @ key.T)
    if head.logit_bias is not None:
        logits = logits + head.logit_bias
    if head.mask is not None:
        logits = xp.where(head.mask, logits, -xp.inf)
    # A query that sees no key gives NaN, as in JAX, without NumPy's warning.
    with np.errstate(invalid="ignore"):
        weights = xp.exp(logits - logits.max(axis=-1, keepdims=True))
        weights = weights / weights.sum(axis=-1, keepdims=True)
    return Projections(query, key, value, weights, raw_query, raw_key, scale)


def head_output(
    head: Head, kernels: tuple[Array, Array, Array] | None = None
) -> Float[Array, "tokens value_dim"]:
    """The output A = P V of a head, for its own kernels or others.

    Args:
        head: The head.
        kernels: Query, key and value kernels to use in place of the head's.

    Returns:
        (N, v).

    Example:
        >>> eye = jnp.eye(3)
        >>> head_output(Head(jnp.ones((2, 3)), eye, eye, eye)).shape
        (2, 3)
    """
    if kernels is not None:
        query, key, value = kernels
        head = dataclasses.replace(head, query=query, key=key, value=value)
    parts = project(head)
    return parts.weights @ parts.value


class AttentionOptions(TypedDict, total=False):
    """The options of `attention_heads`, which says what they mean."""

    context: Float[Array, "context context_width"] | None
    biases: tuple[Array | None, Array | None, Array | None] | None
    logit_bias: Float[Array, "#heads tokens context"] | None
    mask: Bool[Array, "#heads tokens context"] | None
    scale: float | None
    query_map: TokenMap | None
    key_map: TokenMap | None


def attention_heads(
    kernels: AttentionKernels,
    tokens: Float[Array, "tokens width"],
    *,
    context: Float[Array, "context context_width"] | None = None,
    biases: tuple[Array | None, Array | None, Array | None] | None = None,
    logit_bias: Float[Array, "#heads tokens context"] | None = None,
    mask: Bool[Array, "#heads tokens context"] | None = None,
    scale: float | None = None,
    query_map: TokenMap | None = None,
    key_map: TokenMap | None = None,
) -> Head:
    """The heads of one attention block, as a stack.

    Args:
        kernels: query (D, H, d), key (E, H_kv, d), value (E, H_kv, v); with grouped queries, head h
            reads key and value head h // (H / H_kv). `out` is not used.
        tokens: (N, D), what enters the query kernel.
        context: (M, E) for cross-attention, or None.
        biases: query (H, d), key (H_kv, d) and value (H_kv, v), each may be None.
        logit_bias: (H, N, M), (1, N, M) or (N, M), or None.
        mask: like `logit_bias`, False where a query may not see a key.
        scale: multiplies Q K^T; None for 1/sqrt(d).
        query_map: token-wise map of the queries; see `TokenMap`. The same for every head.
        key_map: the same for keys.

    Returns:
        A `Head` whose arrays have the H heads as leading axis; NumPy arrays stay NumPy arrays, in
        their precision.

    Raises:
        UserError: if shapes do not fit each other.

    Example:
        >>> kernel = jnp.ones((6, 2, 3))
        >>> heads = attention_heads(AttentionKernels(kernel, kernel, kernel), jnp.ones((5, 6)))
        >>> heads.query.shape, heads.tokens.shape
        ((2, 6, 3), (2, 5, 6))
    """
    check_shapes(kernels, tokens, context)
    count, kv_count = kernels.query.shape[1], kernels.key.shape[1]
    length, context_length = len(tokens), len(tokens if context is None else context)

    def per_head(array: Any, axis: int, groups: int) -> Any:
        if array is None:
            return None
        xp = namespace(array)
        array = xp.moveaxis(array, axis, 0)
        # Where nothing repeats, an array that is sharded over heads stays as it is.
        return array if groups == 1 else xp.repeat(array, groups, axis=0)

    def pairwise(array: Array | None, name: str) -> Array | None:
        if array is None:
            return None
        try:
            return namespace(array).broadcast_to(array, (count, length, context_length))
        except ValueError as error:
            raise UserError(
                f"{name}: shape {array.shape} does not fit {count} heads, {length} queries and "
                f"{context_length} keys; give (heads, queries, keys), heads may be 1"
            ) from error

    def shared(tree: Any) -> Any:
        return jax.tree.map(lambda a: namespace(a).broadcast_to(a, (count, *jnp.shape(a))), tree)

    groups = count // kv_count
    query_bias, key_bias, value_bias = biases or (None, None, None)
    return Head(
        tokens=shared(tokens),
        query=per_head(kernels.query, 1, 1),
        key=per_head(kernels.key, 1, groups),
        value=per_head(kernels.value, 1, groups),
        context=None if context is None else shared(context),
        query_bias=query_bias,
        key_bias=per_head(key_bias, 0, groups),
        value_bias=per_head(value_bias, 0, groups),
        logit_bias=pairwise(logit_bias, "logit_bias"),
        mask=pairwise(mask, "mask"),
        scale=None if scale is None else namespace(tokens).full((count,), scale),
        query_map=shared(query_map),
        key_map=shared(key_map),
    )


def namespace(tree: Any) -> Any:
    """JAX if any array of a tree is one of its own, else NumPy, whose float64 JAX would round."""
    leaves = jax.tree.leaves(tree)
    return jnp if any(isinstance(leaf, jax.Array) for leaf in leaves) else np


def check_shapes(kernels: AttentionKernels, tokens: Array, context: Array | None) -> None:
    """Raises a UserError where kernels and tokens do not fit each other."""
    for role, array, axes in (
        ("query", kernels.query, 3), ("key", kernels.key, 3), ("value", kernels.value, 3),
        ("tokens", tokens, 2), ("context", context, 2),
    ):  # fmt: skip
        if array is not None and array.ndim != axes:
            form = "(width, heads, dim)" if axes == 3 else "(tokens, width)"
            raise UserError(f"{role}: shape {array.shape} must be {form}")
    keys_from = tokens if context is None else context
    for role, kernel, source, name in (
        ("query", kernels.query, tokens, "tokens"),
        ("key", kernels.key, keys_from, "tokens" if context is None else "context"),
        ("value", kernels.value, keys_from, "tokens" if context is None else "context"),
    ):
        if kernel.shape[0] != source.shape[-1]:
            raise UserError(
                f"{role}: kernel {kernel.shape} reads width {kernel.shape[0]}, but {name} have "
                f"shape {source.shape}"
            )
    (_, heads, dim), (_, kv_heads, key_dim), (_, value_heads, _) = (
        kernel.shape for kernel in kernels[:3]
    )
    if key_dim != dim or kv_heads != value_heads or heads % kv_heads:
        raise UserError(
            f"key: kernels query {kernels.query.shape}, key {kernels.key.shape} and value "
            f"{kernels.value.shape} do not fit; key needs query's dim, and as many heads as value, "
            "a divisor of query's"
        )
