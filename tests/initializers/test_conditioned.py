"""`kernel_init=conditioned()` on the unmodified Flax attention."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import condinit_jax as cj

WIDTH, HEADS, DIM = 48, 4, 12


def attention_params(seed=0, x=None, **fields):
    layer = nn.MultiHeadDotProductAttention(num_heads=HEADS, **fields)
    return layer.init(jax.random.key(seed), jnp.ones((1, 5, WIDTH)) if x is None else x)["params"]


def assert_semi_orthogonal(kernel):
    gram = np.einsum("dhi,dhj->hij", kernel, kernel)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=5e-6)


def test_query_and_key_are_semi_orthogonal_and_value_is_the_identity_in_every_head():
    params = attention_params(kernel_init=cj.conditioned())
    assert_semi_orthogonal(params["query"]["kernel"])
    assert_semi_orthogonal(params["key"]["kernel"])
    for head in range(HEADS):
        np.testing.assert_array_equal(params["value"]["kernel"][:, head], np.eye(WIDTH, DIM))


def test_joint_value_heads_read_their_own_coordinates():
    value = attention_params(kernel_init=cj.conditioned(value="joint"))["value"]["kernel"]
    np.testing.assert_array_equal(value.reshape(WIDTH, WIDTH), np.eye(WIDTH))


def test_no_two_kernels_heads_or_layers_share_a_draw():
    layers = [attention_params(seed, kernel_init=cj.conditioned()) for seed in (0, 1)]
    heads = [
        np.asarray(layer[role]["kernel"][:, head]).ravel()
        for layer in layers
        for role in ("query", "key")
        for head in range(HEADS)
    ]
    overlap = np.abs(np.stack(heads) @ np.stack(heads).T) / DIM
    assert (overlap - np.eye(len(heads))).max() < 0.5


def test_everything_but_query_key_and_value_is_as_flax_draws_it():
    ours, flax_own = attention_params(kernel_init=cj.conditioned()), attention_params()
    np.testing.assert_array_equal(ours["out"]["kernel"], flax_own["out"]["kernel"])
    for role in ("query", "key", "value", "out"):
        np.testing.assert_array_equal(ours[role]["bias"], flax_own[role]["bias"])


def test_the_out_kernel_can_be_given_either_way():
    zeros = jax.nn.initializers.zeros
    assert not attention_params(kernel_init=cj.conditioned(out=zeros))["out"]["kernel"].any()
    params = attention_params(kernel_init=cj.conditioned(), out_kernel_init=zeros)
    assert not params["out"]["kernel"].any()


def test_an_out_initializer_of_three_arguments_is_welcome():
    def init(key, shape, dtype=jnp.float32):
        return jnp.full(shape, 3, dtype)

    params = attention_params(kernel_init=cj.conditioned(out=init))
    assert (params["out"]["kernel"] == 3).all()


def test_head_counts_may_be_numpy_integers():
    layer = nn.MultiHeadDotProductAttention(np.int64(HEADS), kernel_init=cj.conditioned())
    params = layer.init(jax.random.key(0), jnp.ones((1, 5, WIDTH)))["params"]
    assert_semi_orthogonal(params["query"]["kernel"])


def test_forgotten_parentheses_are_named():
    with pytest.raises(ValueError, match=r"write conditioned\(\), with parentheses"):
        attention_params(kernel_init=cj.conditioned)


def test_the_out_kernel_keeps_full_rank():
    out = attention_params(kernel_init=cj.conditioned())["out"]["kernel"]
    assert np.linalg.matrix_rank(out.reshape(WIDTH, WIDTH)) == WIDTH


def test_role_and_heads_given_by_hand_need_no_flax():
    init = cj.conditioned(role="query", num_heads=HEADS)
    assert_semi_orthogonal(init(jax.random.key(0), (WIDTH, WIDTH)).reshape(WIDTH, HEADS, DIM))
    assert_semi_orthogonal(init(jax.random.key(0), (WIDTH, HEADS, DIM)))
    out = cj.conditioned(role="out")(jax.random.key(0), (WIDTH, WIDTH))
    expected = jax.nn.initializers.lecun_normal()(jax.random.key(0), (WIDTH, WIDTH))
    np.testing.assert_array_equal(out, expected)


def test_cross_attention_with_other_widths():
    class Cross(nn.Module):
        @nn.compact
        def __call__(self, x, memory):
            return nn.MultiHeadDotProductAttention(
                num_heads=HEADS, qkv_features=WIDTH, kernel_init=cj.conditioned(), name="cross"
            )(x, memory)

    params = Cross().init(jax.random.key(0), jnp.ones((1, 5, 32)), jnp.ones((1, 7, 64)))["params"]
    cross = params["cross"]
    assert_semi_orthogonal(cross["query"]["kernel"])
    assert_semi_orthogonal(cross["key"]["kernel"])
    np.testing.assert_array_equal(cross["value"]["kernel"][:, 1], np.eye(64, DIM))


def test_scanned_layers_differ():
    class Block(nn.Module):
        @nn.compact
        def __call__(self, x, _):
            layer = nn.MultiHeadDotProductAttention(HEADS, kernel_init=cj.conditioned(), name="a")
            return layer(x), None

    model = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)()
    params = jax.jit(model.init)(jax.random.key(0), jnp.ones((1, 5, WIDTH)), None)["params"]
    query = params["a"]["query"]["kernel"]
    for layer in query:
        assert_semi_orthogonal(layer)
    assert np.abs(query[0] - query[1]).max() > 0.1
    np.testing.assert_array_equal(params["a"]["value"]["kernel"][2, :, 0], np.eye(WIDTH, DIM))


def test_apply_and_gradients_trace_without_trouble():
    layer = nn.MultiHeadDotProductAttention(num_heads=HEADS, kernel_init=cj.conditioned())
    x = jax.random.normal(jax.random.key(1), (2, 5, WIDTH))
    variables = layer.init(jax.random.key(0), x)
    gradients = jax.jit(jax.grad(lambda v: layer.apply(v, x).sum()))(variables)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))


def test_bfloat16_parameters_work():
    params = attention_params(kernel_init=cj.conditioned(), param_dtype=jnp.bfloat16)
    assert params["query"]["kernel"].dtype == jnp.bfloat16
    gram = np.einsum("dhi,dhj->hij", *[np.asarray(params["query"]["kernel"], np.float32)] * 2)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=0.02)


@pytest.mark.parametrize(
    "call",
    [
        lambda: cj.conditioned()(jax.random.key(0), (WIDTH, WIDTH)),
        lambda: cj.conditioned(role="query")(jax.random.key(0), (WIDTH, WIDTH)),
        lambda: cj.conditioned(num_heads=4)(jax.random.key(0), (WIDTH, WIDTH)),
        lambda: nn.Dense(8, kernel_init=cj.conditioned()).init(jax.random.key(0), jnp.ones((1, 8))),
        lambda: nnx.MultiHeadAttention(
            num_heads=4,
            in_features=WIDTH,
            kernel_init=cj.conditioned(),
            decode=False,
            rngs=nnx.Rngs(0),
        ),
    ],
    ids=["bare", "role only", "heads only", "dense", "nnx"],
)
def test_where_the_role_cannot_be_known_the_error_says_what_to_write(call):
    with pytest.raises(ValueError, match=r"role='query', num_heads=H.*reinitialize.*nnx\.update"):
        call()


@pytest.mark.parametrize(
    ("fields", "message"),
    [({"value": "both"}, "must be one of per_head, joint"), ({"role": "q"}, "query, key, value")],
)
def test_unknown_names_are_refused_at_once(fields, message):
    with pytest.raises(ValueError, match=message):
        cj.conditioned(**fields)
