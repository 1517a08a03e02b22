"""Constants added to parameters in the forward pass."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from flax.core import FrozenDict

from condinit_jax import with_offsets
from condinit_jax.errors import UserError

PARAMS = {"query": {"kernel": jnp.ones((2, 3)), "bias": jnp.ones(3)}, "norm": jnp.ones(2)}


def test_an_offset_is_added_to_its_parameter_and_to_no_other():
    new = with_offsets(PARAMS, {"query": {"kernel": jnp.full((2, 3), 10.0)}})
    np.testing.assert_array_equal(new["query"]["kernel"], np.full((2, 3), 11.0))
    assert new["query"]["bias"] is PARAMS["query"]["bias"]
    assert new["norm"] is PARAMS["norm"]


def test_without_offsets_the_parameters_are_the_same_object():
    assert with_offsets(PARAMS, None) is PARAMS


def test_the_parameters_dtype_stays():
    narrow = {"kernel": jnp.ones(2, jnp.bfloat16)}
    assert with_offsets(narrow, {"kernel": jnp.ones(2)})["kernel"].dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("offsets", "message"),
    [
        ({"quary": {"kernel": jnp.ones((2, 3))}}, "quary/kernel is no parameter of this model"),
        ({"norm": {"scale": jnp.ones(2)}}, "norm/scale is no parameter of this model"),
        ({"norm": jnp.ones(3)}, r"norm has shape \(3,\), but the parameter has \(2,\)"),
        ({"query": {"kernel": jnp.ones(3)}}, r"query/kernel has shape \(3,\)"),
    ],
)
def test_an_offset_that_fits_no_parameter_is_one_line(offsets, message):
    with pytest.raises(UserError, match=f"^offsets: {message}") as error:
        with_offsets(PARAMS, offsets)
    assert "\n" not in str(error.value)


def test_gradients_reach_the_parameter_and_not_the_constant():
    offsets = {"query": {"kernel": jnp.full((2, 3), 10.0)}}

    def loss(params):
        return jnp.sum(with_offsets(params, offsets)["query"]["kernel"] ** 2)

    np.testing.assert_array_equal(jax.grad(loss)(PARAMS)["query"]["kernel"], np.full((2, 3), 22.0))


def test_frozen_boxed_and_nnx_trees_keep_their_kind():
    offsets = {"kernel": jnp.full((2, 3), 10.0)}
    frozen = with_offsets(FrozenDict({"kernel": jnp.ones((2, 3))}), offsets)
    assert isinstance(frozen, FrozenDict)
    assert frozen["kernel"][0, 0] == 11

    boxed = with_offsets({"kernel": nn.Partitioned(jnp.ones((2, 3)), ("a", "b"))}, offsets)
    assert isinstance(boxed["kernel"], nn.Partitioned)
    assert boxed["kernel"].value[0, 0] == 11

    layer = nnx.Linear(2, 3, rngs=nnx.Rngs(0))
    before = np.asarray(layer.kernel[...])
    nnx.update(layer, with_offsets(nnx.state(layer, nnx.Param), offsets))
    np.testing.assert_array_equal(layer.kernel[...], before + 10)
