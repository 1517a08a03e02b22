"""What is captured is what the model computed with, or an error says why not."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from condinit_jax.errors import UserError
from condinit_jax.models.attention import SoftmaxAttention
from condinit_jax.models.vit import vit
from condinit_jax.spectra._capture import assemble, capture
from condinit_jax.spectra._head import head_output
from condinit_jax.spectra._probe_model import probe_blocks
from condinit_jax.spectra._record import record

B, N, D, H = 3, 6, 8, 2
TOKENS = np.random.default_rng(0).normal(size=(B, N, D)).astype(np.float32)
CONTEXT = np.random.default_rng(1).normal(size=(B, 4, 5)).astype(np.float32)
IMAGES = np.random.default_rng(2).normal(size=(4, 28, 28, 1)).astype(np.float32)
LENGTHS = jnp.array([6, 3, 5])
PADDING = jnp.arange(N) < LENGTHS[:, None]
CAUSAL = nn.make_causal_mask(PADDING)

flax_attention = functools.partial(nn.MultiHeadDotProductAttention, num_heads=H)


def some_variables(model, *args, std=0.4, **kwargs):
    """Random variables, biases and norms among them, without the time that `init` compiles."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(model.init, jax.random.key(0), *args, **kwargs)
    return jax.tree.map(lambda leaf: rng.normal(0, std, leaf.shape).astype(leaf.dtype), shapes)


class Unrolled(nn.Module):
    """Two different attentions, one after the other."""

    @nn.compact
    def __call__(self, tokens):
        tokens = tokens + flax_attention(name="zeroth")(nn.LayerNorm(name="norm")(tokens))
        return tokens + SoftmaxAttention(H, name="another")(tokens)


class DecoderLayer(nn.Module):
    """Causal self-attention, then cross-attention."""

    @nn.compact
    def __call__(self, tokens, context):
        mask = nn.make_causal_mask(tokens[..., 0])
        tokens = tokens + flax_attention(name="own")(tokens, mask=mask)
        return tokens + flax_attention(name="cross")(tokens, context), None


class Decoder(nn.Module):
    """Decoder layers in a scan, after a layer outside of it."""

    axes: tuple = (("params", 0), ("intermediates", 0))

    @nn.compact
    def __call__(self, tokens, context):
        tokens, _ = DecoderLayer(name="first")(tokens, context)
        scan = nn.scan(
            nn.remat(DecoderLayer),
            variable_axes=dict(self.axes),
            split_rngs={"params": True},
            in_axes=nn.broadcast,
            length=3,
        )
        return scan(name="layers")(tokens, context)[0]


class Scaled(nn.Module):
    """Attention with a scale, mask and rotation of which its modules show nothing."""

    scale: float | None = None
    causal: bool = False
    turned: bool = False

    @nn.compact
    def __call__(self, tokens):
        query, key, value = (
            nn.DenseGeneral((H, D // H), name=name)(tokens) for name in ("query", "key", "value")
        )
        if self.turned:
            query = turn(query)
        mask = nn.make_causal_mask(tokens[..., 0]) if self.causal else None
        scale = (D // H) ** -0.5 if self.scale is None else self.scale
        query = query * scale * (D // H) ** 0.5
        mixed = nn.dot_product_attention(query, key, value, mask=mask)
        return nn.DenseGeneral(D, axis=(-2, -1), name="out")(mixed)


class Wrapped(nn.Module):
    """A dense layer inside another module."""

    features: int

    @nn.compact
    def __call__(self, tokens):
        return nn.Dense(self.features)(tokens)


class Inheriting(nn.MultiHeadDotProductAttention):
    """Calls the `__call__` that it inherits."""

    @nn.compact
    def __call__(self, tokens, mask):
        return super().__call__(tokens, mask=mask)


def turn(queries):
    half = queries.shape[-1] // 2
    return jnp.concatenate([-queries[..., half:], queries[..., :half]], axis=-1)


CASES = {
    "flax": (flax_attention(), (TOKENS,), {}),
    "flax, another name": (nn.MultiHeadAttention(num_heads=H), (TOKENS,), {}),
    "flax, normalised queries": (flax_attention(normalize_qk=True), (TOKENS,), {}),
    "flax, other sizes": (flax_attention(qkv_features=12, out_features=7), (TOKENS,), {}),
    "flax, no biases": (flax_attention(use_bias=False), (TOKENS,), {}),
    "flax, causal": (flax_attention(), (TOKENS,), {"mask": CAUSAL}),
    "flax, a subclass": (Inheriting(num_heads=H), (TOKENS,), {"mask": CAUSAL}),
    "flax, mask of a head": (
        flax_attention(), (TOKENS,), {"mask": jnp.tri(N) + jnp.eye(H)[:, :1, None] > 0},
    ),
    "flax, padded keys": (flax_attention(), (TOKENS,), {"mask": PADDING[:, None, None]}),
    "flax, padded queries too": (
        flax_attention(), (TOKENS,), {"mask": nn.make_attention_mask(PADDING, PADDING)},
    ),
    "flax, cross-attention": (flax_attention(), (TOKENS, CONTEXT), {}),
    "flax, bfloat16": (flax_attention(dtype=jnp.bfloat16), (TOKENS,), {}),
    "ours": (SoftmaxAttention(H), (TOKENS,), {}),
    "ours, normalised queries": (SoftmaxAttention(H, qk_norm=True), (TOKENS,), {}),
    "ours, RMS-normalised": (SoftmaxAttention(H, qk_norm=True, norm="rmsnorm"), (TOKENS,), {}),
    "ours, normalised in bfloat16": (
        SoftmaxAttention(H, qk_norm=True, dtype=jnp.bfloat16), (TOKENS,), {},
    ),
    "unrolled": (Unrolled(), (TOKENS,), {}),
    "scan, remat, cross-attention": (Decoder(), (TOKENS, CONTEXT), {}),
    "no batch axis": (flax_attention(), (TOKENS[0],), {}),
    "two batch axes": (flax_attention(), (jnp.stack([TOKENS, 2 * TOKENS]),), {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_captured_heads_compute_what_the_model_computed(case):
    model, args, kwargs = CASES[case]
    variables = some_variables(model, *args, **kwargs)
    blocks = capture(model, variables, *args, **kwargs)
    tolerance = 0.1 if "bfloat16" in case else 1e-4
    for block in blocks:
        for example in range(len(block.tokens)):
            with jax.enable_x64(True):
                outputs = jnp.moveaxis(jax.jit(jax.vmap(head_output))(block.heads(example)), 0, 1)
            if "padded queries" in case:
                assert len(outputs) == LENGTHS[example]
            real = block.output[example, : len(outputs)]
            np.testing.assert_allclose(outputs, real, rtol=tolerance, atol=tolerance)
    assert {block.num_heads for block in blocks} == {H}


def test_tokens_of_a_scanned_model_are_those_that_its_norms_give():
    model = vit("micro", width=16, depth=3, num_heads=2, patch_size=14, num_classes=3, remat=True)
    variables = some_variables(model, IMAGES)
    blocks = capture(model, variables, IMAGES)
    _, state = jax.jit(lambda v: model.apply(v, IMAGES, capture_intermediates=True))(variables)
    expected = state["intermediates"]["blocks"]["norm1"]["__call__"][0]
    assert [block.layer for block in blocks] == [0, 1, 2]
    assert {block.path for block in blocks} == {"blocks/attention"}
    kernels = variables["params"]["blocks"]["attention"]["query"]["kernel"]
    for layer, block in enumerate(blocks):
        np.testing.assert_allclose(block.tokens, expected[layer], rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(block.kernels.query, kernels[layer])


def test_layers_are_counted_in_depth_order_across_a_scan():
    model, args, _ = CASES["scan, remat, cross-attention"]
    blocks = capture(model, some_variables(model, *args), *args)
    paths = ["first/own", "first/cross", *["layers/own", "layers/cross"] * 3]
    assert [block.path for block in blocks] == paths
    assert [block.layer for block in blocks] == list(range(8))
    assert [block.context is None for block in blocks] == [True, False] * 4


def test_a_block_that_is_called_twice_is_two_layers():
    class Twice(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            attention = flax_attention(name="attention")
            return attention(attention(tokens), mask=nn.make_causal_mask(tokens[..., 0]))

    blocks = capture(Twice(), some_variables(Twice(), TOKENS), TOKENS)
    assert [block.layer for block in blocks] == [0, 1]
    np.testing.assert_array_equal(blocks[0].tokens, TOKENS)
    assert not np.array_equal(blocks[1].tokens, TOKENS)
    # Which of the two calls had the mask is not known, so that it has to be given.
    blocks[0].heads()
    with pytest.raises(UserError, match=r"layer 1 \(attention\).*mask="):
        blocks[1].heads()
    blocks[1].heads(mask=np.tri(N, dtype=bool))


def test_parameters_alone_will_do():
    variables = some_variables(flax_attention(), TOKENS)
    (one,), (other,) = (
        capture(flax_attention(), tree, TOKENS) for tree in (variables, variables["params"])
    )
    np.testing.assert_array_equal(one.output, other.output)


def test_chosen_examples_are_the_only_ones_kept():
    model = Unrolled()
    variables = some_variables(model, TOKENS)
    whole, chosen = (capture(model, variables, TOKENS, examples=e) for e in (None, (2, 0)))
    for one, other in zip(whole, chosen, strict=True):
        np.testing.assert_allclose(one.tokens[[2, 0]], other.tokens, rtol=1e-6)
        assert other.examples == (2, 0)
        other.heads(1)
    with pytest.raises(UserError, match=r"examples = \(3,\).* has 3"):
        capture(model, variables, TOKENS, examples=(3,))


def test_recording_works_inside_jit_with_sharded_parameters():
    mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    model = vit("micro", width=16, depth=2, num_heads=4, patch_size=14, num_classes=3)
    variables = some_variables(model, IMAGES)

    def place(array):
        fits = array.ndim == 4 and array.shape[2] == 4
        spec = PartitionSpec(None, None, "model") if fits else PartitionSpec()
        return jax.device_put(array, NamedSharding(mesh, spec))

    sharded = jax.tree.map(place, variables)
    batch = jax.device_put(IMAGES, NamedSharding(mesh, PartitionSpec("data")))
    run = jax.jit(
        lambda variables, images: record(model, variables, images, examples=(1,), train=False),
        out_shardings=NamedSharding(mesh, PartitionSpec()),
    )
    for _ in range(2):  # the second call runs what the first compiled
        blocks = assemble(run(sharded, batch))
    for block, expected in zip(blocks, capture(model, variables, IMAGES[1:2]), strict=True):
        np.testing.assert_allclose(block.tokens, expected.tokens, rtol=1e-4, atol=1e-5)
        block.heads()


@pytest.mark.parametrize("examples", [None, (1,)])
def test_some_queries_attend_over_all_keys(examples):
    model = flax_attention()
    kwargs = {"mask": CAUSAL}
    variables = some_variables(model, TOKENS, **kwargs)
    (block,) = capture(model, variables, TOKENS, examples=examples, **kwargs)
    some, every = block.heads(tokens=3), block.heads()
    with jax.enable_x64(True):
        outputs = jax.vmap(head_output)(every)[:, [0, 2, 5]]
        np.testing.assert_allclose(jax.vmap(head_output)(some), outputs, rtol=1e-12)
    assert block.heads(tokens=99).tokens.shape[1] == N


@pytest.mark.parametrize(
    ("fields", "given"),
    [
        ({"scale": 1.0}, {"scale": 1.0}),
        ({"causal": True}, {"mask": np.tri(N, dtype=bool)}),
        ({"causal": True}, {"logit_bias": np.where(np.tri(N), 0.0, -1e9)}),
        ({"turned": True}, {"query_map": jax.tree_util.Partial(turn)}),
    ],
)
def test_an_attention_that_is_not_as_captured_is_an_error_that_an_argument_resolves(fields, given):
    # With kernels of deviation 0.02 attention is uniform to 1e-4, and a wrong scale changes less.
    model = Scaled(**fields)
    (block,) = capture(model, some_variables(model, TOKENS, std=0.02), TOKENS)
    with pytest.raises(UserError, match=r"layer 0 .*head \d: .* differs .*Pass mask="):
        block.heads()
    block.heads(**given)
    assert block.warning() == ""


def test_bfloat16_says_what_it_cannot_see():
    model = flax_attention(dtype=jnp.bfloat16)
    (block,) = capture(model, some_variables(model, TOKENS, std=0.02), TOKENS)
    block.heads()
    assert "bfloat16" in block.warning()


@pytest.mark.parametrize("count", [N, 20])
def test_tokens_of_a_norm_whose_rank_is_that_of_their_rounding_are_warned_of(count):
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return flax_attention(name="attention")(nn.LayerNorm()(tokens))

    tokens = np.random.default_rng(3).normal(size=(1, count, D)).astype(np.float32)
    (block,) = capture(Normed(), Normed().init(jax.random.key(0), tokens), tokens)
    # 20 tokens of width 8 have rank 7, 6 tokens rank 6.
    assert ("1 of its 8 singular values" in block.warning()) == (count > D)


def normed_block(count, std):
    """A block that reads `count` tokens of a layer norm, and its probe."""

    class Normed(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            return flax_attention(name="attention")(nn.LayerNorm()(tokens))

    tokens = np.random.default_rng(3).normal(size=(1, count, D)).astype(np.float32)
    variables = Normed().init(jax.random.key(0), tokens)
    variables = jax.tree.map(lambda leaf: std * leaf if leaf.ndim == 3 else leaf, variables)
    return capture(Normed(), variables, tokens)


def test_a_kappa_that_the_rounding_of_tokens_cannot_make_is_not_doubted():
    # 9 tokens of width 8: 36 rows, and 96 columns, more than enough without the rounded ones.
    (block,) = normed_block(D + 1, 1.0)
    assert "1 of its 8 singular values" in block.warning()
    probe = probe_blocks([block])
    singles = probe_blocks([dataclasses.replace(block, tokens=without_rounding(block.tokens))])
    for row, exact in zip(probe.rows, singles.rows, strict=True):
        assert (row["rank"], row["warning"]) == (row["size"], "")
        assert row["kappa"] == pytest.approx(exact["kappa"], rel=1e-3)


def test_a_kappa_of_rounding_is_doubted():
    # 20 tokens of width 8: 80 rows for 80 columns beside the gauge, some of them rounding.
    (block,) = normed_block(20, 1.0)
    probe = probe_blocks([block])
    exact = probe_blocks([dataclasses.replace(block, tokens=without_rounding(block.tokens))])
    for row, other in zip(probe.rows, exact.rows, strict=True):
        assert "kappa may be that of rounding" in row["warning"]
        assert row["kappa"] > 1e3 * other["kappa"]


def without_rounding(tokens):
    """Tokens in float64 whose singular values of the size of float32's rounding are zero."""
    left, values, right = np.linalg.svd(np.float64(tokens), full_matrices=False)
    return (left * np.where(values < 1e-6 * values[..., :1], 0, values)[:, None]) @ right


def test_without_an_out_projection_a_warning_says_that_nothing_was_compared():
    class Bare(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            parts = [nn.DenseGeneral((H, 4), name=n)(tokens) for n in ("query", "key", "value")]
            return nn.dot_product_attention(*parts)

    (block,) = capture(Bare(), some_variables(Bare(), TOKENS), TOKENS)
    block.heads()
    assert "no out projection" in block.warning()


def test_a_model_without_attention_is_one_error():
    model = nn.Dense(3)
    with pytest.raises(UserError, match=r"Dense: has no attention block; looked for .* query, key"):
        capture(model, some_variables(model, TOKENS), TOKENS)


def test_a_scan_that_drops_intermediates_is_named():
    model = Decoder((("params", 0),))
    variables = some_variables(model, TOKENS, CONTEXT)
    with pytest.raises(UserError, match=r"'layers/own'.*add \"intermediates\": 0"):
        capture(model, variables, TOKENS, CONTEXT)


@pytest.mark.parametrize(
    ("layer", "found"), [(nn.Dense, r"one of shape \(8, 8\)"), (Wrapped, "none")]
)
def test_kernels_whose_heads_cannot_be_told_are_refused(layer, found):
    class Flat(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            parts = [layer(D, name=n)(tokens) for n in ("query", "key", "value")]
            return nn.dot_product_attention(*(part.reshape(B, N, H, -1) for part in parts))

    with pytest.raises(
        UserError, match=rf"attention block '': its query needs a kernel .* {found}"
    ):
        capture(Flat(), some_variables(Flat(), TOKENS), TOKENS)


def test_keys_and_values_of_different_tokens_are_refused():
    model = flax_attention()
    args = (TOKENS, TOKENS, 2 * TOKENS)
    with pytest.raises(UserError, match="keys and values are made of different tokens"):
        capture(model, some_variables(model, *args), *args)


def test_kernels_that_are_not_finite_name_the_layer():
    model, args, _ = CASES["scan, remat, cross-attention"]
    variables = some_variables(model, *args)
    kernel = variables["params"]["layers"]["cross"]["key"]["kernel"]
    kernel[1, 0, 0, 0] = np.nan
    with pytest.raises(UserError, match=r"layer 5 \(layers/cross\): key kernel: 1 of 40"):
        capture(model, variables, *args)


def test_tokens_that_are_not_finite_name_the_layer():
    with pytest.raises(UserError, match=r"layer 0 \(the model itself\): tokens: 18 of 144"):
        capture(
            flax_attention(),
            some_variables(flax_attention(), TOKENS),
            np.where(np.arange(D) == 3, np.inf, TOKENS),
        )


def test_a_bias_that_is_not_finite_names_the_layer():
    variables = some_variables(flax_attention(), TOKENS)
    variables["params"]["query"]["bias"][0, 0] = np.nan
    with pytest.raises(UserError, match=r"layer 0 \(the model itself\): query bias: 1 of 8"):
        capture(flax_attention(), variables, TOKENS)


@pytest.mark.parametrize("order", [("key", "value", "query"), ("value", "query", "key")])
def test_projections_may_be_called_in_any_order(order):
    class Ordered(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            parts = {name: nn.DenseGeneral((H, 4), name=name)(tokens) for name in order}
            mixed = nn.dot_product_attention(parts["query"], parts["key"], parts["value"])
            return nn.DenseGeneral(D, axis=(-2, -1), name="out")(mixed)

    (block,) = capture(Ordered(), some_variables(Ordered(), TOKENS), TOKENS)
    block.heads()


def test_examples_are_counted_over_all_batch_axes():
    model, tokens = flax_attention(), np.stack([TOKENS, 2 * TOKENS])
    variables = some_variables(model, tokens)
    kwargs = {"mask": jnp.tri(N, dtype=bool)}
    (block,) = capture(model, variables, tokens, examples=(B + 1, 0), **kwargs)
    np.testing.assert_array_equal(block.tokens, [2 * TOKENS[1], TOKENS[0]])
    block.heads(1)


def test_a_model_that_is_not_linen_is_refused():
    with pytest.raises(UserError, match="model: object is not a linen module"):
        capture(object(), {}, TOKENS)


def test_variables_that_are_no_dict_are_refused():
    with pytest.raises(UserError, match="variables: list is not a dict"):
        capture(flax_attention(), [1], TOKENS)


def test_an_example_that_is_not_there_is_refused():
    (block,) = capture(flax_attention(), some_variables(flax_attention(), TOKENS), TOKENS)
    with pytest.raises(UserError, match=r"example = 3: layer 0 .* holds 3"):
        block.heads(3)
