"""Heads against Flax's attention, JAX's attention, and rotations and norms written out."""

import dataclasses

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra import Head, attention_heads, head_output
from condinit_jax.spectra._head import project

N, M, D, E, H, HEAD_DIM = 5, 6, 8, 7, 4, 3


def normal(*shape, seed=0):
    return jnp.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape), jnp.float32)


def block(kv_heads=H, context_width=D, value_dim=HEAD_DIM, seed=0):
    return AttentionKernels(
        0.4 * normal(D, H, HEAD_DIM, seed=seed),
        0.4 * normal(context_width, kv_heads, HEAD_DIM, seed=seed + 1),
        0.4 * normal(context_width, kv_heads, value_dim, seed=seed + 2),
    )


@jax.jit
def outputs(heads):
    """(N, H, v), every head."""
    return jnp.moveaxis(jax.vmap(head_output)(heads), 0, 1)


def test_heads_are_those_of_flax():
    layer = nn.MultiHeadDotProductAttention(
        num_heads=H, qkv_features=H * HEAD_DIM, bias_init=nn.initializers.normal(1.0)
    )
    tokens, context = normal(N, D), normal(M, D)
    mask = normal(H, N, M) > -0.5
    variables = jax.jit(layer.init)(jax.random.key(0), tokens, context)
    params = variables["params"]
    heads = attention_heads(
        AttentionKernels(*(params[role]["kernel"] for role in ("query", "key", "value"))),
        tokens,
        context=context,
        biases=tuple(params[role]["bias"] for role in ("query", "key", "value")),
        mask=mask,
    )
    mixed = jnp.einsum("nhv,hvo->no", outputs(heads), params["out"]["kernel"])
    expected = jax.jit(layer.apply)(variables, tokens, context, mask=mask)
    np.testing.assert_allclose(mixed + params["out"]["bias"], expected, atol=1e-5)


CASES = {
    "self-attention": {},
    "cross-attention": {"context": normal(M, E)},
    "grouped queries": {"kv_heads": 2},
    "one key head": {"kv_heads": 1},
    "scale": {"scale": 0.2},
    "bias of every head": {"logit_bias": normal(H, N, N)},
    "one bias for all heads": {"logit_bias": normal(1, N, N)},
    "bias without heads": {"logit_bias": normal(N, N)},
    "causal mask": {"mask": jnp.tri(N, dtype=bool)},
    "mask of every head": {"mask": normal(H, N, N) > -0.3},
    "everything": {
        "context": normal(M, E),
        "kv_heads": 2,
        "scale": 0.3,
        "logit_bias": normal(H, N, M),
        "mask": normal(1, N, M) > -0.3,
    },
}


@pytest.mark.parametrize("name", CASES)
def test_heads_are_those_of_jax(name):
    options = dict(CASES[name])
    context = options.get("context")
    kernels = block(options.pop("kv_heads", H), D if context is None else E)
    tokens = normal(N, D, seed=9)
    keys_from = tokens if context is None else context
    query, key, value = (
        jnp.einsum("nw,whd->nhd", source, kernel)
        for source, kernel in zip((tokens, keys_from, keys_from), kernels[:3], strict=True)
    )
    length = (N, len(keys_from))

    def heads_of_all(array):
        return None if array is None else jnp.broadcast_to(array, (H, *length))[None]

    expected = jax.jit(jax.nn.dot_product_attention)(
        query[None], key[None], value[None],
        bias=heads_of_all(options.get("logit_bias")),
        mask=heads_of_all(options.get("mask")),
        scale=options.get("scale"),
    )  # fmt: skip
    heads = attention_heads(kernels, tokens, **options)
    assert heads.query.shape == (H, D, HEAD_DIM)
    np.testing.assert_allclose(outputs(heads), expected[0], atol=2e-6)


def test_biases_of_grouped_heads_go_with_their_heads():
    kernels, tokens = block(kv_heads=2), normal(N, D)
    biases = normal(H, HEAD_DIM), normal(2, HEAD_DIM, seed=1), normal(2, HEAD_DIM, seed=2)
    query, key, value = (
        jnp.einsum("nw,whd->nhd", tokens, kernel) + bias
        for kernel, bias in zip(kernels[:3], biases, strict=True)
    )
    expected = jax.nn.dot_product_attention(query[None], key[None], value[None])
    heads = attention_heads(kernels, tokens, biases=biases)
    np.testing.assert_allclose(outputs(heads), expected[0], atol=2e-6)
    alone = attention_heads(kernels, tokens, biases=(None, None, biases[2]))
    assert alone.query_bias is alone.key_bias is None
    assert alone.value_bias.shape == (H, HEAD_DIM)


def test_values_may_have_a_width_of_their_own():
    heads = attention_heads(block(value_dim=2), normal(N, D))
    assert jax.vmap(head_output)(heads).shape == (H, N, 2)


def layer_norm(gain, rows):
    centred = rows - rows.mean(axis=-1, keepdims=True)
    return gain * centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)


def test_qk_norm_is_flaxs():
    layer = nn.MultiHeadDotProductAttention(
        num_heads=H, qkv_features=H * HEAD_DIM, normalize_qk=True, use_bias=False
    )
    tokens = normal(N, D)
    variables = jax.jit(layer.init)(jax.random.key(0), tokens)
    params = variables["params"]
    gains = [np.linspace(0.5, 2, HEAD_DIM), np.linspace(2, 0.1, HEAD_DIM)]
    params = params | {
        f"{role}_ln": {"scale": jnp.asarray(gain, jnp.float32)}
        for role, gain in zip(("query", "key"), gains, strict=True)
    }
    heads = attention_heads(
        AttentionKernels(*(params[role]["kernel"] for role in ("query", "key", "value"))),
        tokens,
        query_map=jax.tree_util.Partial(layer_norm, params["query_ln"]["scale"]),
        key_map=jax.tree_util.Partial(layer_norm, params["key_ln"]["scale"]),
    )
    mixed = jnp.einsum("nhv,hvo->no", outputs(heads), params["out"]["kernel"])
    expected = jax.jit(layer.apply)({"params": params}, tokens)
    np.testing.assert_allclose(mixed, expected, atol=1e-5)


def rotate(angles, rows):
    """Each pair of neighbouring channels, as one complex number, turned by its angle."""
    pairs = rows.reshape(len(rows), -1, 2)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    turned = jnp.stack(
        [pairs[..., 0] * cos - pairs[..., 1] * sin, pairs[..., 0] * sin + pairs[..., 1] * cos], -1
    )
    return turned.reshape(rows.shape)


def test_rotary_positions_act_through_the_distance_of_tokens():
    frequencies = np.array([1.0, 0.2])
    kernels = AttentionKernels(*(normal(D, H, 4, seed=seed) for seed in range(3)))
    tokens = normal(N, D)
    turn = jax.tree_util.Partial(rotate, jnp.arange(N)[:, None] * frequencies)
    heads = attention_heads(kernels, tokens, query_map=turn, key_map=turn)
    weights = jax.vmap(lambda head: project(head).weights)(heads)
    query, key = (
        np.einsum("nw,whd->hnd", tokens, kernel).reshape(H, N, 2, 2) @ np.array([1, 1j])
        for kernel in kernels[:2]
    )
    distance = np.arange(N)[:, None] - np.arange(N)
    turns = np.exp(1j * distance[..., None] * frequencies)
    logits = np.einsum("hnc,hmc,nmc->hnm", query, key.conj(), turns).real / 2
    np.testing.assert_allclose(weights, jax.nn.softmax(logits, axis=-1), atol=1e-5)


def test_a_map_sees_queries_with_their_bias_and_is_kept_apart_from_them():
    head = Head(
        *[jnp.eye(2)] * 4, query_bias=jnp.ones(2), query_map=jax.tree_util.Partial(jnp.tanh)
    )
    parts = project(head)
    np.testing.assert_allclose(parts.raw_query, np.eye(2) + 1)
    np.testing.assert_allclose(parts.query, np.tanh(np.eye(2) + 1), rtol=1e-6)
    np.testing.assert_array_equal(parts.key, parts.raw_key)


def test_the_default_scale_is_that_of_the_head_width():
    assert project(Head(normal(3, D), *[normal(D, 4)] * 3)).scale == 0.5


def test_weights_are_those_of_a_distribution_over_visible_keys():
    mask = jnp.tri(N, dtype=bool)
    weights = project(Head(normal(N, D), *[normal(D, 4)] * 3, mask=mask)).weights
    np.testing.assert_allclose(weights.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(weights > 0, mask)


def test_other_kernels_can_take_the_place_of_a_heads_own():
    head = Head(normal(N, D), *[normal(D, 4, seed=seed) for seed in range(3)])
    others = tuple(normal(D, 4, seed=seed) for seed in range(3, 6))
    np.testing.assert_array_equal(head_output(head, head.kernels), head_output(head))
    np.testing.assert_array_equal(
        head_output(head, others), head_output(Head(head.tokens, *others))
    )


def test_a_head_goes_through_jit_vmap_and_scan():
    heads = attention_heads(block(), normal(N, D), mask=jnp.tri(N, dtype=bool), scale=0.4)
    mapped = jax.jit(lambda stack: jax.lax.map(head_output, stack))(heads)
    np.testing.assert_allclose(mapped, jax.vmap(head_output)(heads), atol=1e-6)
    second = jax.tree.map(lambda array: array[1], heads)
    np.testing.assert_allclose(head_output(second), mapped[1], atol=1e-6)


def test_float64_stays_float64():
    with jax.enable_x64(True):
        head = Head(*(np.ones((4, 4)) for _ in range(4)), scale=0.5, logit_bias=np.zeros((4, 4)))
        assert head_output(head).dtype == np.float64


GOOD = block()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": normal(D, 12)}, r"query: shape \(8, 12\) must be \(width, heads, dim\)"),
        ({"tokens": normal(2, N, D)}, r"tokens: shape \(2, 5, 8\) must be \(tokens, width\)"),
        ({"context": normal(D)}, r"context: shape \(8,\) must be \(tokens, width\)"),
        ({"tokens": normal(N, 9)}, "query: kernel .* reads width 8, but tokens have shape"),
        ({"context": normal(M, E)}, "key: kernel .* reads width 8, but context have|has shape"),
        ({"value": normal(9, H, 3)}, "value: kernel .* reads width 9, but tokens"),
        ({"key": normal(D, H, 2)}, "key: kernels query .* do not fit; key needs query's dim"),
        ({"key": normal(D, 2, 3)}, "key: kernels query .* as many heads as value"),
        ({"key": normal(D, 3, 3), "value": normal(D, 3, 3)}, "a divisor of query's"),
        ({"logit_bias": normal(2, N, N)}, r"logit_bias: shape \(2, 5, 5\) does not fit 4 heads"),
        ({"mask": jnp.ones((N, M), bool)}, r"mask: shape \(5, 6\) .* 5 queries and 5 keys"),
    ],
)
def test_shapes_that_do_not_fit_are_told_in_one_line(change, message):
    kernels = GOOD._replace(**{role: change[role] for role in GOOD._fields if role in change})
    options = {name: array for name, array in change.items() if name not in GOOD._fields}
    tokens = options.pop("tokens", normal(N, D))
    with pytest.raises(UserError, match=message) as caught:
        attention_heads(kernels, tokens, **options)
    assert "\n" not in str(caught.value)


def test_replacing_a_field_keeps_the_others():
    head = attention_heads(block(), normal(N, D), scale=0.4)
    assert dataclasses.replace(head, scale=None).query is head.query
