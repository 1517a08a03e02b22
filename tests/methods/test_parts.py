"""Kernels found by the ends of their paths, and drawn layer by layer."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from condinit_jax import initializers
from condinit_jax.errors import UserError
from condinit_jax.methods import NetworkMethod
from condinit_jax.methods import _parts as parts
from condinit_jax.surgery import reinitialize


def leaves_of(tree):
    return jax.tree_util.tree_flatten_with_path(tree)[0]


def test_a_pattern_is_the_end_of_a_path_in_whole_names():
    tree = {
        "a": {"fc1": {"kernel": jnp.zeros((2, 3)), "bias": jnp.zeros(3)}},
        "not_fc1": {"kernel": jnp.zeros((2, 3))},
        "MlpBlock_3": {"Dense_0": {"kernel": jnp.zeros((5, 2, 3))}},
    }
    found = parts.find(leaves_of(tree), "mlp", parts.MLP_IN + parts.MLP_OUT)
    assert {part.path: (part.layer_axes, part.flat) for part in found} == {
        "a/fc1/kernel": ((), (2, 3)),
        "MlpBlock_3/Dense_0/kernel": ((5,), (2, 3)),
    }


@pytest.mark.parametrize(
    ("path", "shape", "layer_axes", "flat"),
    [
        ("query", (6, 2, 3), (), (6, 6)),
        ("out", (2, 3, 6), (), (6, 6)),
        ("out", (4, 2, 3, 7), (4,), (6, 7)),
        ("value", (5, 4, 6, 2, 3), (5, 4), (6, 6)),
        ("key", (6, 8), (), (6, 8)),
        ("fc1", (4, 6, 9), (4,), (6, 9)),
    ],
)
def test_fans_and_layers_are_read_from_names_and_shapes(path, shape, layer_axes, flat):
    tree = {path: {"kernel": jax.ShapeDtypeStruct(shape, "float32")}}
    (part,) = parts.find(leaves_of(tree), "x", [f"{path}/kernel"])
    assert (part.layer_axes, part.flat) == (layer_axes, flat)


@pytest.mark.parametrize("shape", [(3, 64, 64), (7,)])
def test_kernels_that_cannot_be_per_head_are_refused(shape):
    tree = {"query": {"kernel": jax.ShapeDtypeStruct(shape, "float32")}}
    with pytest.raises(UserError, match=r"query/kernel: shape .* is neither \(inputs, outputs\)"):
        parts.find(leaves_of(tree), "x", ["query/kernel"])


def test_nothing_found_is_one_line_with_the_paths_that_are_there():
    tree = {"dense": {"kernel": jnp.zeros((2, 3))}}
    with pytest.raises(UserError, match=r"^config.init.mlp: no parameter's path ends in") as error:
        parts.find(leaves_of(tree), "mlp", parts.MLP_IN + parts.MLP_OUT)
    assert "there are dense/kernel" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_pattern_of_the_users_own_has_to_be_found_each():
    tree = {"dense": {"kernel": jnp.zeros((2, 3))}}
    with pytest.raises(UserError, match="no parameter's path ends in dens/kernel;"):
        parts.find(leaves_of(tree), "mlp", ("dense/kernel", "dens/kernel"))


def test_blocks_are_counted_over_stacks_and_single_ones():
    tree = {
        "encoder": {
            "query": {"kernel": jnp.zeros((3, 6, 2, 3))},
            "key": {"kernel": jnp.zeros((3, 6, 2, 3))},
        },
        "decoder_0": {"query": {"kernel": jnp.zeros((6, 2, 3))}},
    }
    found = parts.find(leaves_of(tree), "x", parts.QUERY_KEY)
    assert parts.blocks(found) == 4


def redrawn(tree, key=0, patterns=("query/kernel", "fc1/kernel"), gain=1.0):
    init = initializers.normal(1.0)

    def rewrite(key, params, data):
        found = parts.find(leaves_of(params), "x", patterns)
        return parts.redraw(params, key, {p.position: (p, init, gain) for p in found}, "x")

    return reinitialize(tree, jax.random.key(key), NetworkMethod(rewrite))


def stacked_tree(depth=3, dtype=jnp.float32):
    return {
        "blocks": {
            "query": {"kernel": jnp.zeros((depth, 8, 2, 4), dtype), "bias": jnp.ones(depth)},
            "fc1": {"kernel": jnp.zeros((depth, 8, 16), dtype)},
        }
    }


def test_a_draw_depends_on_its_path_and_layer_and_on_nothing_else():
    whole, more = redrawn(stacked_tree()), redrawn(stacked_tree(depth=5))
    only = redrawn(
        {"blocks": {"query": stacked_tree()["blocks"]["query"]}}, patterns=("query/kernel",)
    )
    query = whole["blocks"]["query"]["kernel"]
    np.testing.assert_array_equal(query, more["blocks"]["query"]["kernel"][:3])
    np.testing.assert_array_equal(query, only["blocks"]["query"]["kernel"])
    assert len(np.unique(query)) == query.size  # no layer repeats another
    again = redrawn(stacked_tree())
    jax.tree.map(np.testing.assert_array_equal, whole, again)
    assert (redrawn(stacked_tree(), key=1)["blocks"]["query"]["kernel"] != query).any()


def test_other_leaves_are_the_same_objects_and_jit_draws_the_same():
    tree = stacked_tree()
    new = redrawn(tree)
    assert new["blocks"]["query"]["bias"] is tree["blocks"]["query"]["bias"]
    jitted = jax.jit(redrawn)(tree)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), new, jitted)


def test_a_narrow_kernel_is_scaled_before_it_is_rounded():
    wide = redrawn(stacked_tree(), gain=0.3)["blocks"]["fc1"]["kernel"]
    narrow = redrawn(stacked_tree(dtype=jnp.bfloat16), gain=0.3)["blocks"]["fc1"]["kernel"]
    assert narrow.dtype == jnp.bfloat16
    np.testing.assert_array_equal(narrow, wide.astype(jnp.bfloat16))


def test_kernels_of_integers_are_refused_by_their_path():
    with pytest.raises(UserError, match=r"^blocks/fc1/kernel: dtype int8: x needs a floating"):
        redrawn(stacked_tree(dtype=jnp.int8))


@pytest.mark.parametrize("spec", [(None, "x"), (None, None, "x")])
def test_a_sharded_kernel_stays_sharded_and_has_the_same_bits(spec):
    mesh = jax.make_mesh((8,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
    whole = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    tree = stacked_tree()
    shardings = jax.tree.map(lambda leaf: whole, tree)
    shardings["blocks"]["fc1"]["kernel"] = sharding
    new = redrawn(jax.device_put(tree, shardings))["blocks"]["fc1"]["kernel"]
    assert new.sharding == sharding
    np.testing.assert_array_equal(new, redrawn(tree)["blocks"]["fc1"]["kernel"])

    born = jax.jit(redrawn, out_shardings=shardings)(tree)
    jax.tree.map(np.testing.assert_array_equal, born, jax.jit(redrawn)(tree))


def test_boxed_leaves_and_nnx_states_have_the_same_names():
    boxed = {"fc1": {"kernel": nn.Partitioned(jnp.zeros((8, 16)), ("a", "b"))}}
    plain = {"fc1": {"kernel": jnp.zeros((8, 16))}}
    new = redrawn(boxed, patterns=("fc1/kernel",))["fc1"]["kernel"]
    assert isinstance(new, nn.Partitioned)
    expected = redrawn(plain, patterns=("fc1/kernel",))["fc1"]["kernel"]
    np.testing.assert_array_equal(new.value, expected)

    class Net(nnx.Module):
        def __init__(self):
            self.fc1 = nnx.Linear(8, 16, rngs=nnx.Rngs(0))

    state = redrawn(nnx.state(Net(), nnx.Param), patterns=("fc1/kernel",))
    np.testing.assert_array_equal(state["fc1"]["kernel"][...], expected)
