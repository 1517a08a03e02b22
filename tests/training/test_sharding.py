import dataclasses
import math

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

from condinit_jax.config import Config, MeshConfig, OptimizerConfig
from condinit_jax.errors import UserError
from condinit_jax.training.sharding import (
    SMALLEST_SPLIT,
    batch_sharding,
    check_batch,
    leaf_spec,
    make_mesh,
    param_shardings,
    to_devices,
)

BLOCK = (jax.tree_util.DictKey("blocks"), jax.tree_util.DictKey("kernel"))
HEAD = (jax.tree_util.DictKey("head"), jax.tree_util.DictKey("kernel"))


@pytest.mark.parametrize(
    ("data", "fsdp", "shape"), [(-1, 1, (8, 1)), (-1, 4, (2, 4)), (1, 8, (1, 8)), (2, 1, (2, 1))]
)
def test_a_mesh_has_the_asked_shape(data, fsdp, shape):
    mesh = make_mesh(MeshConfig(data=data, fsdp=fsdp))
    assert tuple(mesh.shape.values()) == shape
    assert mesh.axis_names == ("data", "fsdp")


@pytest.mark.parametrize(
    ("data", "fsdp", "message"),
    [
        (-1, 3, "config.mesh.fsdp = 3: must divide 8 devices: 1, 2, 4, 8"),
        (-1, 16, "config.mesh.fsdp = 16"),
        (4, 4, "config.mesh.data = 4: with config.mesh.fsdp = 4 must be 2 or -1 on 8 devices"),
    ],
)
def test_an_impossible_mesh_names_the_field_and_what_fits(data, fsdp, message):
    with pytest.raises(UserError) as error:
        make_mesh(MeshConfig(data=data, fsdp=fsdp))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("path", "shape", "spec"),
    [
        (BLOCK, (16, 64, 256), PartitionSpec(None, None, "fsdp")),
        (BLOCK, (4096, 63, 3), PartitionSpec()),
        (HEAD, (4096, 63, 3), PartitionSpec("fsdp")),
        (HEAD, (256, 256), PartitionSpec(None, "fsdp")),
        (HEAD, (64, 64), PartitionSpec()),
        (HEAD, (), PartitionSpec()),
    ],
)
def test_the_largest_divisible_axis_is_split_and_never_the_layers(path, shape, spec):
    assert leaf_spec(path, shape, fsdp=4) == spec


@given(
    st.lists(st.integers(1, 512), max_size=4),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([BLOCK, HEAD]),
)
def test_every_split_is_even_and_worth_it(shape, fsdp, path):
    spec = leaf_spec(path, tuple(shape), fsdp)
    for axis, name in enumerate(spec):
        if name is not None:
            assert shape[axis] % fsdp == 0
            assert math.prod(shape) >= SMALLEST_SPLIT
            assert path is HEAD or axis > 0


def test_shardings_mirror_the_tree():
    mesh = make_mesh(MeshConfig(fsdp=8))
    tree = {"a": jax.ShapeDtypeStruct((512, 64), "float32"), "b": (np.zeros(3), None)}
    shardings = param_shardings(tree, mesh)
    assert jax.tree.structure(shardings) == jax.tree.structure(tree)
    assert shardings["a"].spec == PartitionSpec("fsdp")
    assert shardings["b"][0].spec == PartitionSpec()


@pytest.mark.parametrize("fsdp", [1, 4])
def test_a_batch_is_split_over_all_devices_in_order(fsdp):
    mesh = make_mesh(MeshConfig(fsdp=fsdp))
    x = np.arange(48, dtype=np.float32).reshape(16, 3)
    array = to_devices({"x": x}, batch_sharding(mesh))["x"]
    assert {shard.data.shape for shard in array.addressable_shards} == {(2, 3)}
    np.testing.assert_array_equal(array, x)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"batch_size": 100},
            "config.batch_size = 100: cannot be split over 8 devices; use 96 or 104",
        ),
        ({"batch_size": 4}, "config.batch_size = 4: cannot be split over 8 devices; use 8"),
        (
            {"batch_size": 24, "optimizer": OptimizerConfig(accumulate=2)},
            "config.batch_size = 24: cannot be split over 8 devices x 2 micro-batches; "
            "use 16 or 32",
        ),
        (
            {"eval_batch_size": 33},
            "config.eval_batch_size = 33: cannot be split over 8 devices; use 32 or 40",
        ),
    ],
)
def test_a_batch_that_cannot_be_split_names_the_nearest_that_can(fields, message):
    config = dataclasses.replace(Config(), **fields)
    with pytest.raises(UserError) as error:
        check_batch(config, make_mesh(config.mesh))
    assert str(error.value) == message


def test_good_batches_pass():
    check_batch(Config(batch_size=64, eval_batch_size=8), make_mesh(MeshConfig()))
