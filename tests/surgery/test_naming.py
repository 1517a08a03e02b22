"""`reinitialize` on trees in other layouts than Flax's: the same kernels, wherever they stand."""

import dataclasses
import functools
import json
import pathlib

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import condinit_jax as cj
from condinit_jax import methods, namings
from condinit_jax.errors import UserError
from tests.surgery.foreign_layouts import CASES, KEY, Sizes, flax_kernels, foreign, marked

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "hf_trees.json"
FUSED = CASES["fused"]
SIZES = Sizes(width=24, heads=3, kv_heads=3, dim=8)
QKV, PROJ = "layer/attn/qkv/kernel", "layer/attn/proj/kernel"


@functools.cache
def fused_tree():
    return foreign(FUSED, flax_kernels(SIZES))


def test_what_a_method_leaves_alone_keeps_its_bits_and_its_objects():
    tree = fused_tree()
    new = cj.reinitialize(
        tree, KEY, methods.conditioned(kernels=("query",)), names=namings.fused(3)
    )
    np.testing.assert_array_equal(new[QKV][:, 24:], tree[QKV][:, 24:])
    query = np.asarray(new[QKV][:, :24]).reshape(24, 3, 8)
    for head in query.swapaxes(0, 1):
        np.testing.assert_allclose(head.T @ head, np.eye(8), atol=5e-6)
    assert new[PROJ] is tree[PROJ]


def test_nans_beside_a_drawn_kernel_stay_where_they_were():
    tree = fused_tree() | {QKV: jnp.full((24, 72), jnp.nan)}
    method = methods.conditioned(kernels=("value",))
    new = cj.reinitialize(tree, KEY, method, names=namings.fused(3))[QKV]
    assert bool(jnp.isnan(new[:, :48]).all())
    assert bool(jnp.isfinite(new[:, 48:]).all())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_stay(dtype):
    tree = {path: leaf.astype(dtype) for path, leaf in fused_tree().items()}
    new = cj.reinitialize(tree, KEY, methods.conditioned(), names=namings.fused(3))
    assert {leaf.dtype for leaf in new.values()} == {jnp.dtype(dtype)}


def test_it_runs_inside_jit_and_under_eval_shape():
    tree = fused_tree()

    def rewrite(params):
        return cj.reinitialize(params, KEY, marked, names=namings.fused(3))

    jax.tree.map(np.testing.assert_array_equal, jax.jit(rewrite)(tree), rewrite(tree))
    shapes = jax.eval_shape(rewrite, tree)
    assert {p: leaf.shape for p, leaf in shapes.items()} == {p: v.shape for p, v in tree.items()}


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["Auto", "Explicit"])
@pytest.mark.parametrize("inside_jit", [False, True])
def test_sharded_leaves_stay_sharded_and_have_the_unsharded_bits(axis, kind, inside_jit):
    kind = getattr(jax.sharding.AxisType, kind)
    mesh = jax.make_mesh((8,), ("a",), axis_types=(kind,))
    sharding = NamedSharding(mesh, P(*[None] * axis, "a"))
    method = methods.conditioned(kernels=("query", "value"))

    def rewrite(tree):
        return cj.reinitialize(tree, KEY, method, names=namings.fused(3))

    tree = {QKV: fused_tree()[QKV], PROJ: fused_tree()[PROJ]}
    placed = jax.device_put(tree, sharding)
    run = jax.jit(rewrite, out_shardings=sharding) if inside_jit else rewrite
    with jax.set_mesh(mesh):
        new = run(placed)
    assert new[QKV].sharding.is_equivalent_to(sharding, 2)
    np.testing.assert_array_equal(new[QKV], rewrite(tree)[QKV])
    if not inside_jit:
        assert new[PROJ] is placed[PROJ]


def test_scanned_layers_inside_the_leaf_are_rewritten_one_by_one():
    sizes = dataclasses.replace(SIZES, layers=3)
    case = CASES["maxtext"]
    tree = foreign(case, flax_kernels(sizes))
    new = cj.reinitialize(tree, KEY, methods.conditioned(), names=namings.maxtext())
    query = np.asarray(new["layer/attn/query/kernel"])
    assert query.shape == (24, 3, 3, 8)
    gram = np.einsum("dlhi,dlhj->lhij", query, query)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(8), gram.shape), atol=5e-6)
    assert np.abs(query[:, 0] - query[:, 1]).max() > 0.1


def test_maxtext_fused_and_unscanned():
    kernels = flax_kernels(SIZES)
    stacked = np.stack([kernels[role] for role in ("query", "key", "value")], axis=1)
    tree = {"a/qkv_proj/kernel": jnp.asarray(stacked), "a/out/kernel": jnp.asarray(kernels["out"])}
    new = cj.reinitialize(tree, KEY, marked, names=namings.maxtext(scanned=False))
    flat = {f"a/{role}/kernel": jnp.asarray(kernel) for role, kernel in kernels.items()}
    expected = cj.reinitialize(flat, KEY, marked)
    for part, role in enumerate(("query", "key", "value")):
        np.testing.assert_array_equal(
            new["a/qkv_proj/kernel"][:, part], expected[f"a/{role}/kernel"]
        )
    np.testing.assert_array_equal(new["a/out/kernel"], expected["a/out/kernel"])


def test_query_heads_may_be_stored_by_group():
    kernels = flax_kernels(Sizes(width=5, heads=6, kv_heads=2, dim=3))
    names = cj.Naming(
        {
            "q": "query: width groups heads dim",
            "k": "key: width heads dim",
            "v": "value: width heads dim",
            "o": "out: groups heads dim width",
        }
    )
    tree = {
        "a/q": jnp.asarray(kernels["query"].reshape(5, 2, 3, 3)),
        "a/k": jnp.asarray(kernels["key"]),
        "a/v": jnp.asarray(kernels["value"]),
        "a/o": jnp.asarray(kernels["out"].reshape(2, 3, 3, 5)),
    }
    new = cj.reinitialize(tree, KEY, marked, names=names)
    flat = {f"a/{role}/kernel": jnp.asarray(kernel) for role, kernel in kernels.items()}
    expected = cj.reinitialize(flat, KEY, marked, names=namings.flax())
    np.testing.assert_array_equal(new["a/q"].reshape(5, 6, 3), expected["a/query/kernel"])
    np.testing.assert_array_equal(new["a/o"].reshape(6, 3, 5), expected["a/out/kernel"])


class FusedAttention(nnx.Module):
    """An NNX module with one fused kernel, as a user might write it."""

    def __init__(self, rngs):
        self.qkv = nnx.Linear(24, 72, rngs=rngs)
        self.proj = nnx.Linear(24, 24, rngs=rngs)


def test_nnx_states():
    model = FusedAttention(nnx.Rngs(0))
    bias = model.qkv.bias[...]
    state = nnx.state(model, nnx.Param)
    nnx.update(model, cj.reinitialize(state, KEY, methods.conditioned(), names=namings.fused(3)))
    value = np.asarray(model.qkv.kernel[...])[:, 48:].reshape(24, 3, 8)
    for head in value.swapaxes(0, 1):
        np.testing.assert_array_equal(head, np.eye(24, 8))
    np.testing.assert_array_equal(model.qkv.bias[...], bias)


def test_boxed_leaves_keep_their_boxes():
    tree = {"attn": {"qkv": {"kernel": fused_tree()[QKV]}, "proj": {"kernel": fused_tree()[PROJ]}}}
    boxed = jax.tree.map(lambda leaf: nn.Partitioned(leaf, names=(None, "model")), tree)
    new = cj.reinitialize(boxed, KEY, marked, names=namings.fused(3))
    assert isinstance(new["attn"]["qkv"]["kernel"], nn.Partitioned)
    expected = cj.reinitialize(tree, KEY, marked, names=namings.fused(3))
    jax.tree.map(np.testing.assert_array_equal, nn.meta.unbox(new), expected)


def test_where_selects_among_described_blocks():
    tree = {
        path.replace("layer", f"layer_{i}"): v for i in (1, 10) for path, v in fused_tree().items()
    }
    new = cj.reinitialize(tree, KEY, marked, where="layer_1", names=namings.fused(3))
    changed = {path for path in tree if new[path] is not tree[path]}
    assert changed == {"layer_1/attn/qkv/kernel", "layer_1/attn/proj/kernel"}
    with pytest.raises(ValueError, match=r"'x' selects none.*'layer_10/attn'"):
        cj.reinitialize(tree, KEY, marked, where="x", names=namings.fused(3))


def test_an_out_entry_that_begins_elsewhere_is_refused():
    names = namings.fused(3, "qkv/kernel", "attn/proj/kernel")
    with pytest.raises(ValueError, match=r"'layer/attn/proj/kernel' .* begin at the same node"):
        cj.attention_blocks(fused_tree(), names=names)


def test_descriptions_are_hashable_and_equal_by_value():
    assert hash(namings.hf_gpt2(12)) == hash(namings.hf_gpt2(12))
    assert namings.hf_gpt2(12) == namings.hf_gpt2(12) != namings.hf_gpt2(6)
    assert dataclasses.replace(namings.hf_gpt2(12), num_heads=6) == namings.hf_gpt2(6)


# What is refused, and that the message names path, shape and pattern, and what would fit.


def arrays(**shapes):
    return {f"x/{name}": jnp.zeros(shape) for name, shape in shapes.items()}


def separate(**overrides):
    text = {"q": "query: width (heads dim)", "k": "key: width (heads dim)"}
    return text | {"v": "value: width (heads dim)"} | overrides


PARTED = {"qkv": "query key value: width (part heads dim)"}
FLAT = {"qkv": "query key value: width (heads dim)"}
APART = {"qkv": "query key value: width heads dim"}
GROUPED = {"qkv": "query key value: width (groups heads dim)"}


@pytest.mark.parametrize(
    ("tree", "names", "message"),
    [
        (arrays(qkv=(8, 25)), (PARTED, 2), r"'x/qkv' of shape \(8, 25\) .*with num_heads=2: part x "
         r"heads x dim = 3 x 2 x dim must be a multiple of 6; it is 25"),
        (arrays(qkv=(8, 24)), (PARTED,),
         r"24 = 3 x heads x dim does not tell heads and dim: num_heads"),
        (arrays(qkv=(2, 8, 24)), (PARTED, 2), r"has 3 axes and the pattern 2; write '\.\.\.'"),
        (arrays(qkv=(24,)), (PARTED, 2), r"has 1 axes and the pattern 2"),
        (arrays(qkv=(8, 24)), (PARTED, 4, 2), r"holds 4 key heads, where num_kv_heads = 2"),
        (arrays(qkv=(8, 20)), (FLAT, 2), r"num_heads"),
        (arrays(qkv=(8, 21)), (FLAT, 4, 2), r"of 8; it is 21"),
        (arrays(qkv=(8, 5, 3)), (APART, 2), r"3 heads are no"),
        (arrays(qkv=(8, 8, 3)), (APART,), r"write num_heads="),
        (arrays(qkv=(8, 21)), (GROUPED, 4, 2), r"of 8"),
        (arrays(q=(8, 6), k=(8, 6), v=(8, 6)), (separate(), 4), r"'x/q'.*multiple of 4; it is 6"),
        (arrays(q=(8, 8), k=(8, 6), v=(8, 6)), (separate(), 2), r"'x/k'.*multiple of 4; it is 6"),
        (arrays(q=(8, 8), k=(8, 12), v=(8, 12)), (separate(), 2), r"'x'.* do not fit each other"),
        (arrays(q=(8, 2, 4), k=(8, 8), v=(8, 8)), (separate(q="query: width heads dim"), 4),
         r"heads = 4 = 4, and the axis has size 2"),
        (arrays(q=(8, 8), v=(8, 8)), (separate(), 2), r"'x': has no key kernel.*'x/q' \(query\)"),
        (arrays(q=(8, 8), q2=(8, 8), k=(8, 8), v=(8, 8)),
         (separate(q2="query: width (heads dim)"), 2), r"'x/q' and 'x/q2' both claim.*query"),
        (arrays(q=(2, 8, 8), k=(3, 8, 8), v=(2, 8, 8)),
         ({n: t.replace(": ", ": ... ") for n, t in separate().items()}, 2), r"layers \(3,\)"),
        (arrays(other=(8, 8), qkw=(3,)), (PARTED, 2),
         r"none of its 2 leaves ends in 'qkv'; the nearest are 'x/qkw', 'x/other'"),
    ],
)  # fmt: skip
def test_leaves_that_do_not_fit_the_description_are_refused(tree, names, message):
    with pytest.raises(ValueError, match=message) as error:
        cj.reinitialize(tree, KEY, marked, names=cj.Naming(*names))
    assert isinstance(error.value, UserError)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("leaves", "options", "message"),
    [
        ({"q": "width heads dim"}, {}, r"'q': pattern 'width heads dim': must read 'role: axes'"),
        ({"q": "querry: width heads dim"}, {}, r"'querry' must be one or more of query, key"),
        ({"q": "query query: width heads dim"}, {}, r"each once"),
        ({"q": "query out: part width heads dim"}, {}, r"it is alone"),
        ({"q": "query: width heads"}, {}, r"'dim' is missing"),
        ({"q": "query: width heads dim heads"}, {}, r"once each"),
        ({"q": "query: width head dim"}, {}, r"'head' is no axis; the axes are width"),
        ({"q": "query: width (heads dim"}, {}, r"parentheses"),
        ({"q": "query: width () heads dim"}, {}, r"empty parentheses"),
        ({"q": "query: (... width) heads dim"}, {}, r"'\.\.\.' and"),
        ({"q": "query: ... layers width heads dim"}, {}, r"one axis, or as"),
        ({"q": "query: part width heads dim"}, {}, r"'part' runs over"),
        ({"q": "key: width groups heads dim"}, {}, r"one key head"),
        ({"q": "query: width heads dim"}, {}, r"no leaf holds the key kernel"),
        ({"": "query: width heads dim"}, {}, r"must be the end"),
        ({}, {}, r"no leaf holds the query kernel"),
        ("qkv", {}, r"must map path ends"),
        (PARTED | {"a/qkv": "out: width heads dim"}, {}, r"'qkv' and 'a/qkv' would claim"),
        (PARTED, {"num_heads": 0}, r"num_heads = 0: must be a whole number"),
        (PARTED, {"num_heads": 4, "num_kv_heads": 3}, r"num_heads = 4 is no multiple"),
    ],
)
def test_descriptions_that_cannot_be_read_are_refused(leaves, options, message):
    with pytest.raises(ValueError, match=f"Naming: .*{message}"):
        cj.Naming(leaves, **options)


def test_a_head_count_belongs_to_the_description():
    with pytest.raises(ValueError, match=r"write Naming\(\.\.\., num_heads=3\)"):
        cj.reinitialize(fused_tree(), KEY, marked, num_heads=3, names=namings.fused(3))
    with pytest.raises(ValueError, match=r"names = 'bert': must be a condinit_jax\.Naming"):
        cj.attention_blocks(fused_tree(), names="bert")


def needs_out(key, kernels):
    if kernels.out is None:
        raise ValueError("needs_out: there is no out kernel")
    return kernels


@pytest.mark.parametrize(
    "method",
    [
        needs_out,
        lambda key, kernels: kernels._replace(out=kernels.query.swapaxes(0, 2)),
        lambda key, kernels: kernels._replace(query=kernels.query + kernels.out.sum()),
    ],
)
def test_a_method_that_needs_an_out_kernel_says_where_it_is_missing(method):
    with pytest.raises(ValueError, match=r"'layer/attn' has no out kernel by these names"):
        cj.reinitialize(fused_tree(), KEY, method, names=namings.fused(3, out=None))
    names = namings.fused(3, qkv="attn/qkv/kernel", out=None)
    new = cj.reinitialize(fused_tree(), KEY, methods.conditioned(), names=names)
    assert new[PROJ] is fused_tree()[PROJ]


GOLDEN_BLOCKS = {
    "hf_vit": (namings.hf_vit(3), ["encoder/layer/0/attention", "encoder/layer/1/attention"]),
    "hf_bert": (namings.hf_bert(3), ["encoder/layer/0/attention", "encoder/layer/1/attention"]),
    "hf_gpt2": (namings.hf_gpt2(3), ["h/0/attn", "h/1/attn"]),
    "hf_llama": (namings.hf_llama(4), ["layers/0/self_attn", "layers/1/self_attn"]),
    "hf_gemma": (namings.hf_llama(4, 2), ["layers/0/self_attn", "layers/1/self_attn"]),
    "hf_bart": (
        namings.hf_bart(3),
        [
            "decoder/layers/0/encoder_attn",
            "decoder/layers/0/self_attn",
            "encoder/layers/0/self_attn",
        ],
    ),
    "hf_t5": (
        namings.hf_t5(3),
        [
            *(f"decoder/block/{i}/layer/{n}" for i in (0, 1) for n in
              ("0/SelfAttention", "1/EncDecAttention")),
            *(f"encoder/block/{i}/layer/0/SelfAttention" for i in (0, 1)),
        ],
    ),
    "hf_bloom": (namings.hf_bloom(4), ["h/0/self_attention", "h/1/self_attention"]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(GOLDEN_BLOCKS))
def test_hugging_face_trees_are_found(name):
    shapes = json.loads(GOLDEN.read_text())[name]
    tree = {path: jax.ShapeDtypeStruct(tuple(shape), "float32") for path, shape in shapes.items()}
    names, paths = GOLDEN_BLOCKS[name]
    blocks = cj.attention_blocks(tree, names=names)
    assert [block.path for block in blocks] == paths
    assert all("out" in block.shapes and block.shapes["query"][0] == 24 for block in blocks)
    if name in ("hf_llama", "hf_gemma"):
        assert {block.shapes["key"][1] for block in blocks} == {2}
