"""Spectral conditioning: the constants of the forward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import methods, with_offsets
from condinit_jax.errors import UserError
from condinit_jax.initializers import truncated_normal
from condinit_jax.surgery import reinitialize

ROLES = ("query", "key", "value")


def block(width=16, heads=2, dim=4, kv_heads=2, layers=()):
    shapes = {
        "query": (width, heads, dim),
        "key": (width, kv_heads, dim),
        "value": (width, kv_heads, dim),
        "out": (heads, dim, width),
    }
    return {
        role: {"kernel": jnp.ones((*layers, *shape)), "bias": jnp.ones(shape[1:])}
        for role, shape in shapes.items()
    }


def test_the_constants_are_scaled_rectangular_identities_of_every_head_and_layer():
    params = {"blocks": {"attention": block(kv_heads=1, layers=(3,))}, "norm": jnp.ones(16)}
    offsets = methods.spectral(scale=3.0).offsets(params)
    assert list(offsets) == ["blocks"]
    assert set(offsets["blocks"]["attention"]) == set(ROLES)
    for role, heads in (("query", 2), ("key", 1), ("value", 1)):
        (constant,) = offsets["blocks"]["attention"][role].values()
        expected = np.broadcast_to(3 * np.eye(16, 4)[None, :, None], (3, 16, heads, 4))
        np.testing.assert_array_equal(constant, expected)


def test_joint_constants_give_heads_coordinates_of_their_own():
    offsets = methods.spectral(scale=2.0, layout="joint").offsets(block())
    stacked = offsets["query"]["kernel"].reshape(16, 8)
    np.testing.assert_array_equal(stacked, 2 * np.eye(16, 8))


def test_one_role_alone_has_a_constant():
    assert list(methods.spectral(kernels=("value",)).offsets(block())) == ["value"]


def test_a_head_of_vit_b_has_kappa_near_one():
    """At deviation 0.02, D = 768 and d = 64; without the constant about 1.8."""
    kernel = jax.jit(truncated_normal(0.02), static_argnums=1)(jax.random.key(0), (768, 3, 64))
    params = {role: {"kernel": kernel} for role in ROLES}
    effective = with_offsets(params, methods.spectral().offsets(params))["query"]["kernel"]

    def kappa(head):
        values = np.linalg.svd(np.asarray(head, np.float64), compute_uv=False)
        return values[0] / values[-1]

    assert all(1.03 < kappa(effective[:, head]) < 1.07 for head in range(3))
    assert kappa(kernel[:, 0]) > 1.6


def test_no_parameter_is_rewritten_and_reinitialize_alone_is_refused():
    params, method = block(), methods.spectral()
    assert method.rewrite(jax.random.key(0), params, None) is params
    with pytest.raises(UserError, match="adds constants in the forward pass"):
        reinitialize(params, jax.random.key(0), method)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"scale": float("nan")}, "scale = nan: must be a finite number"),
        ({"scale": True}, "scale = True: must be a finite number"),
        ({"layout": "both"}, "must be one of per_head, joint"),
        ({"kernels": ("out",)}, "leaves the out kernel alone"),
        ({"kernels": ()}, "must be some of"),
    ],
)
def test_impossible_arguments_are_refused_when_the_config_is_read(init, message):
    with pytest.raises(UserError, match=message):
        methods.build({"method": "spectral", **init})


@pytest.mark.parametrize(
    ("params", "layout", "message"),
    [
        ({"dense": {"kernel": jnp.ones((2, 2))}}, "per_head", "config.init.kernels: no parameter"),
        (block(width=4), "joint", "key/kernel: layout 'joint' needs heads"),
        ({r: {"kernel": jnp.ones((8, 8))} for r in ROLES}, "per_head", "heads cannot be told"),
    ],
)
def test_kernels_without_a_rectangular_identity_are_one_line(params, layout, message):
    with pytest.raises(UserError, match=message) as error:
        methods.spectral(layout=layout).offsets(params)
    assert "\n" not in str(error.value)
