"""`reinitialize` on every kind of tree that holds Flax attention."""

import functools
import logging

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import condinit_jax as cj
from condinit_jax import methods
from condinit_jax.errors import UserError

WIDTH, HEADS, DIM = 24, 3, 8
KEY = jax.random.key(7)


class Layer(nn.Module):
    """Attention and an MLP, as the body of nn.scan or on its own."""

    heads: int = HEADS

    @nn.compact
    def __call__(self, x, memory=None):
        x = x + nn.MultiHeadDotProductAttention(self.heads, qkv_features=WIDTH, name="attention")(
            nn.LayerNorm()(x), memory
        )
        return x + nn.Dense(WIDTH)(x), None


class Stack(nn.Module):
    """Three layers as separate modules, each under nn.remat."""

    layers: int = 3

    @nn.compact
    def __call__(self, x):
        for index in range(self.layers):
            x, _ = nn.remat(Layer)(name=f"layer_{index}")(x)
        return nn.Dense(5, name="head")(x)


def init(model, *inputs):
    return jax.jit(model.init)(jax.random.key(0), *inputs)["params"]


def tokens(width=WIDTH):
    return jnp.ones((1, 5, width))


@functools.cache
def one_layer():
    return init(Layer(), tokens())


@functools.cache
def stacked():
    return init(Stack(), tokens())


@functools.cache
def everywhere():
    return cj.reinitialize(stacked(), KEY, methods.conditioned())


@functools.cache
def scanned():
    model = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=4)()
    return {"encoder": init(model, tokens(), None)}


def leaves(params):
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]
    }


def assert_conditioned(attention, layer=...):
    for role in ("query", "key"):
        kernel = np.asarray(attention[role]["kernel"])[layer]
        gram = np.einsum("dhi,dhj->hij", kernel, kernel)
        np.testing.assert_allclose(
            gram, np.broadcast_to(np.eye(gram.shape[-1]), gram.shape), atol=5e-6
        )
    value = np.asarray(attention["value"]["kernel"])[layer]
    for head in value.swapaxes(0, 1):
        np.testing.assert_array_equal(head, np.eye(*head.shape))
    query, key = (np.asarray(attention[role]["kernel"])[layer] for role in ("query", "key"))
    assert query.shape != key.shape or np.abs(query - key).max() > 0.1


def test_exactly_the_named_kernels_change_and_every_other_leaf_is_the_same_object():
    params, new = stacked(), everywhere()
    before, after = leaves(params), leaves(new)
    assert before.keys() == after.keys()
    changed = {path for path in before if after[path] is not before[path]}
    assert changed == {
        f"layer_{index}/attention/{role}/kernel"
        for index in range(3)
        for role in ("query", "key", "value")
    }
    for index in range(3):
        assert_conditioned(new[f"layer_{index}"]["attention"])


def test_layers_and_roles_never_share_a_draw():
    new = everywhere()
    scan = cj.reinitialize(scanned(), KEY, methods.conditioned())["encoder"]["attention"]
    draws = [
        new[f"layer_{i}"]["attention"][r]["kernel"] for i in range(3) for r in ("query", "key")
    ]
    draws += [scan[role]["kernel"][layer] for layer in range(4) for role in ("query", "key")]
    heads = np.stack([np.asarray(kernel)[:, h].ravel() for kernel in draws for h in range(HEADS)])
    overlap = np.abs(heads @ heads.T) / DIM
    assert (overlap - np.eye(len(heads))).max() < 0.7


def test_scanned_layers_are_rewritten_one_by_one():
    params = scanned()
    new = cj.reinitialize(params, KEY, methods.conditioned())
    for layer in range(4):
        assert_conditioned(new["encoder"]["attention"], layer)
    (block,) = cj.attention_blocks(params)
    assert (block.path, block.layer_axes, block.layers) == ("encoder/attention", (4,), 4)


def test_cross_attention_with_another_width_for_keys_and_values():
    params = {"decoder": init(Layer(), tokens(), jnp.ones((1, 7, 40)))}
    new = cj.reinitialize(params, KEY, methods.conditioned())["decoder"]["attention"]
    assert new["key"]["kernel"].shape == (40, HEADS, DIM)
    assert_conditioned(new)


def test_nnx_state_by_the_documented_one_liner():
    def build():
        return nnx.MultiHeadAttention(
            num_heads=HEADS, in_features=WIDTH, decode=False, rngs=nnx.Rngs(0)
        )

    model, untouched = build(), build()
    nnx.update(model, cj.reinitialize(nnx.state(model, nnx.Param), KEY, methods.conditioned()))
    assert_conditioned(
        {role: {"kernel": getattr(model, role).kernel[...]} for role in ("query", "key", "value")}
    )
    np.testing.assert_array_equal(model.out.kernel[...], untouched.out.kernel[...])
    assert model(tokens()).shape == (1, 5, WIDTH)


def test_nnx_grouped_queries():
    model = nnx.MultiHeadAttention(
        num_heads=4, num_kv_heads=2, in_features=32, decode=False, rngs=nnx.Rngs(0)
    )
    nnx.update(model, cj.reinitialize(nnx.state(model, nnx.Param), KEY, methods.conditioned()))
    assert model.key.kernel.shape == (32, 2, 8)
    assert_conditioned(
        {role: {"kernel": getattr(model, role).kernel[...]} for role in ("query", "key", "value")}
    )


def test_boxed_kernels_keep_their_boxes():
    params = one_layer()
    box = lambda leaf: nn.Partitioned(leaf, names=(None,) * leaf.ndim)  # noqa: E731
    boxed = jax.tree.map(box, params)
    new = cj.reinitialize(boxed, KEY, methods.conditioned())
    assert isinstance(new["attention"]["query"]["kernel"], nn.Partitioned)
    plain = cj.reinitialize(params, KEY, methods.conditioned())
    jax.tree.map(np.testing.assert_array_equal, nn.meta.unbox(new), plain)


@pytest.mark.parametrize("where", ["layer_1", "/layer_1/", "layer_1/attention", lambda p: "1" in p])
def test_where_picks_blocks_and_their_draws_do_not_depend_on_it(where):
    params = stacked()
    some = cj.reinitialize(params, KEY, methods.conditioned(), where=where)
    everything = cj.reinitialize(params, KEY, methods.conditioned())
    assert (
        some["layer_0"]["attention"]["query"]["kernel"]
        is (params["layer_0"]["attention"]["query"]["kernel"])
    )
    np.testing.assert_array_equal(
        some["layer_1"]["attention"]["query"]["kernel"],
        everything["layer_1"]["attention"]["query"]["kernel"],
    )


def test_a_prefix_ends_at_a_name():
    params = {"layer_1": stacked()["layer_1"], "layer_10": stacked()["layer_0"]}
    new = cj.reinitialize(params, KEY, methods.conditioned(), where="layer_1")
    assert (
        new["layer_10"]["attention"]["query"]["kernel"]
        is (params["layer_10"]["attention"]["query"]["kernel"])
    )


def test_a_method_can_name_some_kernels_only():
    params = one_layer()
    new = cj.reinitialize(params, KEY, methods.conditioned(kernels=("value",)))
    before, after = leaves(params), leaves(new)
    assert [path for path in before if after[path] is not before[path]] == [
        "attention/value/kernel"
    ]


def test_flat_kernels_are_read_with_num_heads():
    params = one_layer()
    flatten = {"query": (WIDTH, -1), "key": (WIDTH, -1), "value": (WIDTH, -1), "out": (-1, WIDTH)}
    flat = {
        "attention": {
            role: {"kernel": params["attention"][role]["kernel"].reshape(shape)}
            for role, shape in flatten.items()
        }
    }
    new = cj.reinitialize(flat, KEY, methods.conditioned(), num_heads=HEADS)
    expected = cj.reinitialize(params, KEY, methods.conditioned())["attention"]["query"]["kernel"]
    np.testing.assert_array_equal(
        new["attention"]["query"]["kernel"].reshape(WIDTH, HEADS, DIM), expected
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_dtypes_stay(dtype):
    params = jax.tree.map(lambda leaf: leaf.astype(dtype), one_layer())
    new = cj.reinitialize(params, KEY, methods.conditioned())
    assert {leaf.dtype for leaf in jax.tree.leaves(new)} == {jnp.dtype(dtype)}


def test_inside_jit_with_output_shardings_it_is_bitwise_the_unsharded_result():
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    model = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=2)()

    def born(key):
        params = model.init(key, tokens(), None)["params"]
        return cj.reinitialize(params, key, methods.conditioned())

    shardings = jax.tree.map(
        lambda leaf: NamedSharding(
            mesh, P(None, "a") if leaf.ndim == 4 and leaf.shape[1] % 2 == 0 else P()
        ),
        jax.eval_shape(born, KEY),
    )
    sharded = jax.jit(born, out_shardings=shardings)(KEY)
    assert sharded["attention"]["query"]["kernel"].sharding.spec == P(None, "a")
    jax.tree.map(np.testing.assert_array_equal, sharded, jax.jit(born)(KEY))


def test_outside_jit_sharded_kernels_stay_where_they_were():
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = NamedSharding(mesh, P("a"))
    params = one_layer()
    placed = jax.tree.map(
        lambda leaf: jax.device_put(leaf, sharding) if leaf.shape[0] % 8 == 0 else leaf, params
    )
    new = cj.reinitialize(placed, KEY, methods.conditioned())
    query = new["attention"]["query"]["kernel"]
    assert query.sharding == sharding
    plain = cj.reinitialize(params, KEY, methods.conditioned())["attention"]["query"]["kernel"]
    np.testing.assert_array_equal(query, plain)


def test_it_runs_under_eval_shape_and_agrees_with_jit():
    params = scanned()
    rewrite = lambda p: cj.reinitialize(p, KEY, methods.conditioned())  # noqa: E731
    shapes = jax.eval_shape(rewrite, params)
    assert jax.tree.map(jnp.shape, params) == jax.tree.map(lambda leaf: leaf.shape, shapes)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6),
        jax.jit(rewrite)(params),
        rewrite(params),
    )


def test_it_says_how_many_blocks_it_changed(caplog):
    with caplog.at_level(logging.INFO, "condinit_jax.surgery"):
        cj.reinitialize(scanned(), KEY, methods.conditioned())
    assert "4 attention blocks under 1 path" in caplog.text


def test_many_separate_layers_compile_as_one():
    """One loop in the program however many layers: no Python loop over them."""

    def program(layers):
        kernel = jnp.zeros((WIDTH, HEADS, DIM))
        attention = {role: {"kernel": kernel} for role in ("query", "key", "value")}
        params = {f"layer_{index}": attention for index in range(layers)}
        run = jax.jit(lambda key: cj.reinitialize(params, key, methods.conditioned()))
        return run.lower(KEY).as_text()

    assert program(12).count("lapack") == program(1).count("lapack") > 0


def explicit(params, spec, size=8):
    mesh = jax.make_mesh((size,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    sharding = NamedSharding(mesh, spec)
    return mesh, jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), params)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "spec", "num_heads"),
    [
        ((8, 16, 2, 8), P("a"), None),
        ((48, 4, 12), P("a"), None),
        ((2, 16, 8, 2), P(None, None, "a"), None),
        ((16, 64), P(None, "a"), 4),
    ],
    ids=["layers", "width", "heads", "flat"],
)
@pytest.mark.parametrize("inside_jit", [False, True])
@pytest.mark.parametrize("reads", [False, True])
def test_explicit_meshes_keep_their_shardings(shape, spec, num_heads, inside_jit, reads):
    def halved(key, kernels):
        return kernels._replace(query=kernels.query / 2)

    kernels = {role: {"kernel": jnp.ones(shape)} for role in ("query", "key", "value")}
    mesh, placed = explicit({"attention": kernels}, spec)
    method = halved if reads else methods.conditioned()

    def rewrite(params):
        return cj.reinitialize(params, KEY, method, num_heads=num_heads)

    with jax.set_mesh(mesh):
        new = (jax.jit(rewrite) if inside_jit else rewrite)(placed)
    query = new["attention"]["query"]["kernel"]
    expected = placed["attention"]["query"]["kernel"].sharding
    assert query.sharding.is_equivalent_to(expected, query.ndim)
    plain = rewrite({"attention": kernels})["attention"]["query"]["kernel"]
    np.testing.assert_allclose(query, plain, atol=1e-6)


def test_a_second_call_compiles_nothing():
    params, method = one_layer(), methods.conditioned()
    cj.reinitialize(params, KEY, method)
    with jax.log_compiles(), pytest.MonkeyPatch.context() as patch:
        compiled = []
        patch.setattr(
            "jax._src.compiler.compile_or_get_cached", lambda *a, **k: compiled.append(a) or 1 / 0
        )
        cj.reinitialize(params, jax.random.key(8), method)
    assert not compiled


def test_the_state_of_an_optimizer_is_refused():
    params = {"params": one_layer(), "opt_state": {"mu": one_layer()}}
    with pytest.raises(ValueError, match=r"'opt_state/mu/attention'.*pass the parameters alone"):
        cj.reinitialize(params, KEY, methods.conditioned())
    new = cj.reinitialize(params, KEY, methods.conditioned(), where="params")
    assert_conditioned(new["params"]["attention"])


def test_shapes_without_values_are_refused_with_what_to_write():
    shapes = jax.eval_shape(lambda: one_layer())
    with pytest.raises(ValueError, match=r"write jax\.eval_shape"):
        cj.reinitialize(shapes, KEY, methods.conditioned())
    assert cj.attention_blocks(shapes)[0].path == "attention"


@pytest.mark.parametrize("separator", ["/", None])
def test_flattened_trees_are_the_same_blocks(separator):
    flat = flax.traverse_util.flatten_dict(one_layer(), sep=separator)
    new = flax.traverse_util.unflatten_dict(
        cj.reinitialize(flat, KEY, methods.conditioned()), sep=separator
    )
    expected = cj.reinitialize(one_layer(), KEY, methods.conditioned())
    jax.tree.map(np.testing.assert_array_equal, new, expected)


def test_a_block_that_stands_twice_is_refused():
    block = one_layer()["attention"]
    with pytest.raises(ValueError, match="'a/b': stands twice"):
        cj.reinitialize({"a/b": block, "a": {"b": block}}, KEY, methods.conditioned())


def test_a_head_count_given_for_flax_kernels_changes_nothing():
    kernels = {role: one_layer()["attention"][role] for role in ("query", "key", "value")}
    new = cj.reinitialize({"attention": kernels}, KEY, methods.conditioned(), num_heads=HEADS)
    assert_conditioned(new["attention"])


@pytest.mark.parametrize(
    ("method", "where", "message"),
    [
        (cj.conditioned(), None, r"write condinit_jax\.methods\.conditioned\(\)"),
        *((factory, None, "with parentheses") for factory in methods.METHODS.values()),
        (methods.lifted, None, "lifted is a factory"),
        (jax.nn.initializers.he_normal(), None, r"an initializer draws one kernel; .*lifted"),
        (cj.xavier_uniform(), None, r"an initializer draws one kernel"),
        ("conditioned", None, "a str is no method"),
        (KEY, None, "is no method; write one such as"),
        (lambda key, kernels: kernels.query, None, "must give AttentionKernels"),
        (methods.conditioned(), ["layer_0"], "where = .*a path prefix or a function"),
    ],
)
def test_common_slips_are_named(method, where, message):
    with pytest.raises(UserError, match=message) as error:
        cj.reinitialize(one_layer(), KEY, method, where=where)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("method", [methods.conditioned(), methods.gpt2()])
@pytest.mark.parametrize("key", [0, None, methods.conditioned()])
def test_what_is_no_key_is_named(method, key):
    with pytest.raises(UserError, match=r"^key: a \w+ is no key; write jax\.random\.key"):
        cj.reinitialize(one_layer(), key, method)


def test_a_tree_without_attention_fails_with_the_paths_it_looked_at():
    with pytest.raises(ValueError, match="no attention block") as error:
        cj.reinitialize(
            init(nn.Dense(3), tokens()) | {"mlp": {"kernel": KEY}}, KEY, methods.normal()
        )
    assert "mlp" in str(error.value)


def test_where_that_selects_nothing_lists_the_blocks():
    with pytest.raises(ValueError, match=r"'layer_9' selects none.*'layer_0/attention'"):
        cj.reinitialize(stacked(), KEY, methods.conditioned(), where="layer_9")


def shapes(query, key, value, out=None):
    roles = {"query": query, "key": key, "value": value} | ({"out": out} if out else {})
    return {"x": {role: {"kernel": jnp.zeros(shape)} for role, shape in roles.items()}}


@pytest.mark.parametrize(
    ("tree", "num_heads", "message"),
    [
        (shapes((8, 8), (8, 8), (8, 8)), None, "flat.*write num_heads=H"),
        (shapes((8, 4, 2), (8, 3, 2), (8, 3, 2)), None, "do not fit"),
        (shapes((8, 4, 2), (8, 4, 3), (8, 4, 2)), None, "do not fit"),
        (shapes((8, 4, 2), (8, 4, 2), (8, 4, 2), (2, 4, 8)), None, "do not fit"),
        (shapes((3, 8, 4, 2), (8, 4, 2), (8, 4, 2)), None, "same leading layer axes"),
        (shapes((3, 8, 8), (3, 8, 8), (3, 8, 8), (3, 8, 8)), None, "flat kernels need num_heads=H"),
        (shapes((3, 8, 8), (3, 8, 8), (3, 8, 8)), None, "flat kernels need num_heads=H"),
        (shapes((8, 8), (8, 8), (8, 8)), 3, "num_heads = 3"),
    ],
)
def test_kernels_that_do_not_fit_each_other_name_the_block(tree, num_heads, message):
    with pytest.raises(ValueError, match=f"(?s)block 'x': .*{message}"):
        cj.reinitialize(tree, KEY, methods.conditioned(), num_heads=num_heads)


def test_a_method_that_changes_a_shape_is_refused():
    def wrong(key, kernels):
        return kernels._replace(query=kernels.query[:1])

    with pytest.raises(ValueError, match="must keep shape and dtype"):
        cj.reinitialize(one_layer(), KEY, wrong)
