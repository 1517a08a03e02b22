"""What every method on attention blocks promises, whatever its rule."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import condinit_jax as cj
from condinit_jax.kernels import ROLES
from tests.methods.block_methods import (
    BLOCK_METHODS,
    KEY,
    ONE_ROLE,
    SENTINEL,
    TIED,
    block,
    make,
    touched,
)

every_method = pytest.mark.parametrize("name", BLOCK_METHODS)
# One by QR, one by eigenvectors, one entry by entry; the costly tests take the others when slow.
QUICK = ("conditioned", "mimetic", "xavier_uniform")
costly_for_every_method = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in BLOCK_METHODS],
)
# Whether the heads fill the width, leave some of it, or are more than it has.
SHAPES = [(24, 3, 8), (24, 2, 4), (8, 2, 12)]


def same(left, right, **tolerance):
    for a, b in zip(left, right, strict=True):
        if a is not None:
            np.testing.assert_allclose(a, b, **tolerance)


@every_method
def test_a_method_rewrites_the_kernels_it_names_and_nothing_else(name):
    old = block()
    new = make(name)(KEY, old)
    for role in ROLES:
        if role in touched(name):
            assert (getattr(new, role) != SENTINEL).all()
        else:
            assert getattr(new, role) is getattr(old, role)
    if name != "tied":
        assert (new.query != new.key).any()


@pytest.mark.slow
@costly_for_every_method
@settings(max_examples=6)
@given(
    quarter=st.integers(1, 5),
    heads=st.integers(1, 3),
    dim=st.integers(1, 9),
    dtype=st.sampled_from(["float32", "bfloat16", "float16"]),
    seed=st.integers(0, 2**31 - 1),
)
def test_any_shape_and_dtype_stays_and_is_finite(name, quarter, heads, dim, dtype, seed):
    old = block(4 * quarter, heads, dim, dtype=dtype)
    new = jax.jit(make(name))(jax.random.key(seed), old)
    for before, after in zip(old, new, strict=True):
        assert (after.shape, after.dtype) == (before.shape, before.dtype)
        assert jnp.isfinite(after.astype(jnp.float32)).all()


@every_method
def test_narrow_dtypes_are_the_rounded_float32_draw(name):
    wide = make(name)(KEY, block())
    narrow = make(name)(KEY, block(dtype="bfloat16"))
    for role in touched(name):
        rounded = getattr(wide, role).astype(jnp.bfloat16).astype(jnp.float32)
        np.testing.assert_allclose(getattr(narrow, role).astype(jnp.float32), rounded, rtol=0.01)


@every_method
def test_float64_is_drawn_in_float64(name):
    with jax.enable_x64(True):
        new = make(name)(KEY, block(dtype="float64"))
        for role in touched(name):
            kernel = getattr(new, role)
            assert kernel.dtype == jnp.float64
            identity = role == "value" and np.isin(kernel, (0, 1)).all()
            assert identity or (kernel != kernel.astype(jnp.float32)).any()


@pytest.mark.slow
@every_method
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_same_key_gives_the_same_block_under_jit_too(name, shape):
    method, old = make(name), block(*shape)
    first = method(KEY, old)
    same(first, method(KEY, old), rtol=0, atol=0)
    same(first, jax.jit(method)(KEY, old), rtol=2e-4, atol=1e-5)
    other = method(jax.random.key(4), old)
    assert (first.query != other.query).any()


@pytest.mark.parametrize(("name", "role"), ONE_ROLE)
def test_a_method_can_be_kept_to_one_kernel_and_draws_it_the_same(name, role):
    old = block()
    one, everything = make(name, kernels=(role,))(KEY, old), make(name)(KEY, old)
    for other in ROLES:
        expected = everything if other == role else old
        np.testing.assert_array_equal(getattr(one, other), getattr(expected, other))
        assert other == role or getattr(one, other) is getattr(old, other)


@every_method
def test_grouped_queries_are_drawn_or_refused_by_name(name):
    old = block(24, 4, 6, kv_heads=2)
    if name in TIED:
        with pytest.raises(ValueError, match=f"{name}: 4 query heads share 2 key heads"):
            make(name)(KEY, old)
        return
    new = make(name)(KEY, old)
    for role in touched(name):
        assert getattr(new, role).shape == getattr(old, role).shape
        assert (getattr(new, role) != SENTINEL).all()


@every_method
def test_a_block_without_out_is_drawn_or_refused_by_name(name):
    old = block(out=False)
    if name in TIED:
        with pytest.raises(ValueError, match=f"{name}: the block has no out kernel"):
            make(name)(KEY, old)
        new = make(name, kernels=("query", "key"))(KEY, old)
        assert new.out is None
        assert new.value is old.value
        return
    assert make(name)(KEY, old).out is None


@every_method
@pytest.mark.parametrize("shape", [(0, 2, 4), (8, 2, 0), (8, 0, 4)], ids=str)
def test_an_empty_kernel_is_refused_on_one_line(name, shape):
    width, heads, dim = shape
    old = block(width, 1, dim, out=True)
    old = old._replace(
        query=jnp.zeros(shape),
        key=jnp.zeros(shape),
        value=jnp.zeros(shape),
        out=jnp.zeros((heads, dim, width)),
    )
    with pytest.raises(ValueError, match="is empty") as error:
        make(name)(KEY, old)
    assert "\n" not in str(error.value)


def attention(layers=()):
    shapes = {role: (*layers, 24, 4, 6) for role in ROLES[:3]} | {"out": (*layers, 4, 6, 24)}
    return {
        role: {"kernel": jnp.full(shape, SENTINEL), "bias": jnp.zeros(3)}
        for role, shape in shapes.items()
    }


@every_method
def test_reinitialize_keeps_every_other_leaf_as_it_is(name):
    params = {"one": attention(), "scan": attention((2,)), "mlp": {"kernel": jnp.ones(3)}}
    new = cj.reinitialize(params, KEY, make(name))
    for path in ("one", "scan"):
        for role in ROLES:
            kept = new[path][role]["kernel"] is params[path][role]["kernel"]
            assert kept == (role not in touched(name))
            assert new[path][role]["bias"] is params[path][role]["bias"]
    assert new["mlp"]["kernel"] is params["mlp"]["kernel"]
    layers = new["scan"]["query"]["kernel"]
    assert (layers[0] != layers[1]).any()


@pytest.mark.slow
@every_method
def test_reinitialize_takes_nnx_states(name):
    model = nnx.MultiHeadAttention(num_heads=4, in_features=24, decode=False, rngs=nnx.Rngs(0))
    before = nnx.state(model, nnx.Param)
    after = cj.reinitialize(before, KEY, make(name))
    for role in ROLES:
        changed = (before[role]["kernel"][...] != after[role]["kernel"][...]).any()
        assert changed == (role in touched(name))


@pytest.mark.slow
@costly_for_every_method
@pytest.mark.parametrize("axis", range(1, 4), ids=["first", "second", "third"])
def test_sharded_kernels_are_the_unsharded_ones(name, axis):
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
    shapes = {role: (2, 16, 8, 8) for role in ROLES[:3]} | {"out": (2, 8, 8, 16)}
    params = {role: {"kernel": jnp.zeros(shape)} for role, shape in shapes.items()}
    rewrite = jax.jit(lambda key: cj.reinitialize(params, key, make(name)))
    plain = rewrite(KEY)
    spec = P(*[None] * axis, "a")
    sharded = jax.jit(
        lambda key: cj.reinitialize(params, key, make(name)),
        out_shardings=NamedSharding(mesh, spec),
    )(KEY)
    assert sharded["query"]["kernel"].sharding.spec == spec
    if name == "truncated_normal":
        # Its inverse error function is compiled with the shape of a shard, and rounds accordingly.
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-8), sharded, plain)
        return
    jax.tree.map(np.testing.assert_array_equal, sharded, plain)
