"""GPT-2's, T-Fixup's and DeepNorm's initialization: moments, depth and what is left alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import methods
from condinit_jax.errors import UserError
from condinit_jax.surgery import reinitialize

NAMES = ("gpt2", "t_fixup", "deepnorm")
WIDTH, HEADS, DIM, HIDDEN = 64, 4, 16, 192
KERNELS = {
    "attention/query": (WIDTH, HEADS, DIM),
    "attention/key": (WIDTH, HEADS, DIM),
    "attention/value": (WIDTH, HEADS, DIM),
    "attention/out": (HEADS, DIM, WIDTH),
    "mlp/fc1": (WIDTH, HIDDEN),
    "mlp/fc2": (HIDDEN, WIDTH),
}


def tree(depth=8):
    """A scanned transformer's parameters, all of them 7."""
    blocks = {"norm1": {"scale": np.full((depth, WIDTH), 7.0)}}
    for path, shape in KERNELS.items():
        room, name = path.split("/")
        leaf = {"kernel": np.full((depth, *shape), 7.0), "bias": np.full((depth, shape[-1]), 7.0)}
        blocks.setdefault(room, {})[name] = leaf
    return {
        "patch_embed": {"kernel": np.full((4, 4, 8, WIDTH), 7.0), "bias": np.full(WIDTH, 7.0)},
        "pos_embed": np.full((300, WIDTH), 7.0),
        "cls_token": np.full(WIDTH, 7.0),
        "blocks": blocks,
        "head": {"kernel": np.full((WIDTH, 10), 7.0)},
    }


def listed(params):
    """The depth-8 tree with a subtree for each layer instead of a stack."""
    blocks = params["blocks"]
    layers = {f"block_{n}": jax.tree.map(lambda leaf, n=n: leaf[n], blocks) for n in range(8)}
    return {**{name: part for name, part in params.items() if name != "blocks"}, **layers}


@pytest.fixture(scope="module")
def drawn():
    return {name: jax.jit(_drawn, static_argnums=0)(name, tree()) for name in NAMES}


def _drawn(name, params):
    return reinitialize(params, jax.random.key(0), methods.METHODS[name]())


def expected(name, path, depth):
    """The standard deviation of a kernel's entries, from the papers."""
    inputs = KERNELS[path][0] if path != "attention/out" else HEADS * DIM
    outputs = np.prod(KERNELS[path]) / inputs
    xavier = (2 / (inputs + outputs)) ** 0.5
    role = path.split("/")[1]
    if name == "gpt2":
        return 0.02 / (2 * depth) ** 0.5 if role in ("out", "fc2") else 0.02
    beta = {"t_fixup": 0.67 * depth**-0.25, "deepnorm": (8 * depth) ** -0.25}[name]
    return xavier * (1 if role in ("query", "key") else beta)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("path", KERNELS)
def test_every_kernel_has_the_deviation_of_the_paper(drawn, name, path):
    room, kernel = path.split("/")
    for layer in np.asarray(drawn[name]["blocks"][room][kernel]["kernel"]):
        assert layer.std() == pytest.approx(expected(name, path, 8), rel=0.06)
        assert abs(layer.mean()) < 5 * layer.std() / layer.size**0.5


def test_the_distributions_are_those_of_the_papers(drawn):
    """A uniform's largest entry is at sqrt(3) deviations, a normal one's far beyond."""
    for name, normal in (("gpt2", True), ("t_fixup", False), ("deepnorm", True)):
        kernel = np.asarray(drawn[name]["blocks"]["mlp"]["fc1"]["kernel"])
        ratio = np.abs(kernel).max() / kernel.std()
        assert ratio > 4 if normal else ratio == pytest.approx(3**0.5, rel=0.01)


def test_t_fixup_scales_embeddings_and_patches(drawn):
    new, gain = drawn["t_fixup"], (9 * 8) ** -0.25
    assert new["pos_embed"].std() == pytest.approx(WIDTH**-0.5 * gain, rel=0.02)
    assert new["cls_token"].std() == pytest.approx(WIDTH**-0.5 * gain, rel=0.4)
    fans = 4 * 4 * 8 + WIDTH
    assert new["patch_embed"]["kernel"].std() == pytest.approx((2 / fans) ** 0.5 * gain, rel=0.03)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_else_is_touched(drawn, name):
    embeddings = {"patch_embed/kernel", "pos_embed", "cls_token"} if name == "t_fixup" else set()
    wanted = embeddings | {f"blocks/{path}/kernel" for path in KERNELS}
    touched = {
        jax.tree_util.keystr(path, simple=True, separator="/")
        for path, leaf in jax.tree_util.tree_leaves_with_path(drawn[name])
        if (leaf != 7.0).any()
    }
    assert touched == wanted
    for path, leaf in jax.tree_util.tree_leaves_with_path(drawn[name]):
        if jax.tree_util.keystr(path, simple=True, separator="/") in wanted:
            assert not (leaf == 7.0).any()


@pytest.mark.parametrize("name", ["gpt2", "deepnorm"])
def test_a_tree_with_a_node_for_each_layer_is_counted_alike(name):
    params = jax.eval_shape(lambda: listed(tree()))
    new = jax.jit(_drawn, static_argnums=0)(
        name, jax.tree.map(lambda s: jnp.zeros(s.shape), params)
    )
    for path in KERNELS:
        room, kernel = path.split("/")
        layer = new["block_3"][room][kernel]["kernel"]
        assert layer.std() == pytest.approx(expected(name, path, 8), rel=0.06)


@pytest.mark.parametrize(
    ("name", "arguments", "field"),
    [
        ("gpt2", {}, "mlp"),
        ("gpt2", {"mlp": ("fc1/kernel",), "residual": ("fc3/kernel",)}, "mlp"),
        ("t_fixup", {"mlp": ("query/kernel",), "embeddings": ("wte",)}, "embeddings"),
        ("t_fixup", {"mlp": ("query/kernel",), "patches": ("conv/kernel",)}, "patches"),
        ("deepnorm", {"query_key": ("q_proj/kernel",)}, "query_key"),
    ],
)
def test_a_group_that_is_not_there_is_named(name, arguments, field):
    params = {"blocks": {"attention": tree()["blocks"]["attention"]}}
    method = methods.METHODS[name](**arguments)
    with pytest.raises(UserError, match=rf"^config.init.{field}: no parameter's path") as error:
        jax.eval_shape(lambda p: reinitialize(p, jax.random.key(0), method), params)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"method": "gpt2", "stddev": 0.0}, "stddev = 0.0: must be positive"),
        ({"method": "gpt2", "mlp": "fc1/kernel"}, "must be a tuple of the ends of paths"),
        ({"method": "t_fixup", "embeddings": (3,)}, "embeddings = .*must be a tuple"),
        ({"method": "deepnorm", "value_out": ("",)}, "value_out = .*must be a tuple"),
        ({"method": "gpt2", "attention": ()}, r"attention = \(\): must name some kernels"),
        ({"method": "t_fixup", "query_key": ()}, r"query_key = \(\): must name some kernels"),
        ({"method": "deepnorm", "query_key": ()}, r"query_key = \(\): must name some kernels"),
    ],
)
def test_impossible_arguments_are_refused_when_the_config_is_read(init, message):
    with pytest.raises(UserError, match=message):
        methods.build(init)


def test_names_of_other_models_are_given_by_the_ends_of_their_paths():
    params = {
        "layer": {
            "q_proj": {"kernel": jnp.zeros((64, 64))},
            "k_proj": {"kernel": jnp.zeros((64, 64))},
            "v_proj": {"kernel": jnp.zeros((64, 64))},
            "o_proj": {"kernel": jnp.zeros((64, 64))},
            "up": {"kernel": jnp.zeros((64, 256))},
        }
    }
    method = methods.deepnorm(
        query_key=("q_proj/kernel", "k_proj/kernel"),
        value_out=("v_proj/kernel", "o_proj/kernel"),
        mlp=("up/kernel",),
    )
    new = jax.jit(lambda p: reinitialize(p, jax.random.key(0), method))(params)["layer"]
    assert new["q_proj"]["kernel"].std() == pytest.approx(1 / 8, rel=0.05)
    assert new["o_proj"]["kernel"].std() == pytest.approx(8**-0.25 / 8, rel=0.05)
