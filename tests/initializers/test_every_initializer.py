"""What every initializer promises, whatever its rule."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import condinit_jax as cj
from condinit_jax import initializers

HEADS = 8
FACTORIES = {
    "conditioned query": functools.partial(cj.conditioned, role="query", num_heads=HEADS),
    "conditioned value": functools.partial(cj.conditioned, role="value", num_heads=HEADS),
    "conditioned joint": functools.partial(
        cj.conditioned, role="value", num_heads=HEADS, value="joint"
    ),
    "semi_orthogonal": functools.partial(cj.semi_orthogonal, HEADS),
    "rectangular_identity": functools.partial(cj.rectangular_identity, HEADS),
    "orthogonal": cj.orthogonal,
    "truncated_normal": cj.truncated_normal,
    "normal": cj.normal,
    "xavier_uniform": cj.xavier_uniform,
    "xavier_normal": cj.xavier_normal,
    "he_uniform": cj.he_uniform,
    "he_normal": cj.he_normal,
    "lecun_uniform": cj.lecun_uniform,
    "lecun_normal": cj.lecun_normal,
    "small": initializers.small,
}
FIXED = ("conditioned value", "conditioned joint", "rectangular_identity")
# (256, 8 x 8) is drawn by matrix products, (64, 8 x 8) by QR: see initializers/_orthonormal.py.
SHAPES = [(256, 64), (64, 64)]

every_factory = pytest.mark.parametrize("name", FACTORIES)
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


@every_factory
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_narrow_dtypes_are_the_rounded_float32_draw(name, dtype):
    init, key = FACTORIES[name](), jax.random.key(0)
    kernel = init(key, SHAPES[0], jnp.dtype(dtype))
    chex.assert_shape(kernel, SHAPES[0])
    assert kernel.dtype == jnp.dtype(dtype)
    assert (kernel == init(key, SHAPES[0]).astype(dtype)).all()


@every_factory
def test_float64_is_drawn_in_float64(name):
    with jax.enable_x64(True):
        kernel = FACTORIES[name]()(jax.random.key(0), SHAPES[0], jnp.float64)
        assert kernel.dtype == jnp.float64
        if name not in FIXED:
            assert (kernel != kernel.astype(jnp.float32)).any()


@every_factory
@every_shape
def test_flat_and_per_head_shapes_hold_the_same_kernel(name, shape):
    init, key = FACTORIES[name](), jax.random.key(0)
    per_head = init(key, (shape[0], HEADS, shape[1] // HEADS))
    np.testing.assert_array_equal(per_head.reshape(shape), init(key, shape))


@pytest.mark.slow
@every_factory
@every_shape
def test_jit_vmap_and_eval_shape_agree_with_a_plain_call(name, shape):
    init = functools.partial(FACTORIES[name](), shape=shape)
    keys = jax.random.split(jax.random.key(0), 3)
    plain = jnp.stack([init(key) for key in keys])
    assert jax.eval_shape(init, keys[0]) == jax.ShapeDtypeStruct(shape, jnp.float32)
    # The inverse error function of a far tail magnifies its rounding a hundredfold.
    same = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=1e-6)
    same(jax.jit(init)(keys[1]), plain[1])
    same(jax.vmap(init)(keys), plain)
    same(jax.vmap(jax.vmap(init))(keys[:, None])[:, 0], plain)


@every_factory
def test_the_same_key_gives_the_same_kernel_and_another_key_another(name):
    init = FACTORIES[name]()
    first, again, other = (init(jax.random.key(seed), SHAPES[0]) for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first == other).all() == (name in FIXED)


def assert_sharding_changes_no_bit(init, shape, mesh_shape, spec):
    mesh = jax.make_mesh(mesh_shape, ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    draw, key = functools.partial(init, shape=shape), jax.random.key(3)
    sharded = jax.jit(draw, out_shardings=NamedSharding(mesh, spec))(key)
    assert sharded.sharding.is_equivalent_to(NamedSharding(mesh, spec), 2)
    np.testing.assert_array_equal(sharded, jax.jit(draw)(key))


@every_factory
def test_a_sharded_kernel_is_bitwise_the_unsharded_one(name):
    assert_sharding_changes_no_bit(FACTORIES[name](), SHAPES[0], (2, 4), P("a", "b"))


@every_shape
@pytest.mark.parametrize("name", ["conditioned query", "orthogonal"])
@pytest.mark.parametrize(
    ("mesh_shape", "spec"),
    [((8, 1), P("a")), ((1, 8), P(None, "b")), ((2, 4), P(("a", "b")))],
    ids=str,
)
def test_orthogonal_kernels_are_bitwise_the_same_on_any_mesh(name, shape, mesh_shape, spec):
    assert_sharding_changes_no_bit(FACTORIES[name](), shape, mesh_shape, spec)


@every_factory
def test_explicit_out_sharding_is_followed(name):
    mesh = jax.make_mesh((8,), ("a",), axis_types=(jax.sharding.AxisType.Explicit,))
    init = FACTORIES[name]()
    with jax.set_mesh(mesh):
        kernel = jax.jit(lambda key: init(key, SHAPES[0], jnp.float32, P("a")))(jax.random.key(0))
    assert kernel.sharding.spec == P("a", None) or kernel.sharding.spec == P("a")


@every_factory
@every_shape
def test_strict_promotion_of_ranks_and_dtypes_is_respected(name, shape):
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        kernel = FACTORIES[name]()(jax.random.key(0), shape, jnp.bfloat16)
    assert kernel.dtype == jnp.bfloat16


@every_factory
@pytest.mark.parametrize("shape", [(0, 64), (64, 0)], ids=str)
def test_empty_kernels_are_refused(name, shape):
    with pytest.raises(ValueError, match="is empty"):
        FACTORIES[name]()(jax.random.key(0), shape)


@every_factory
def test_integer_kernels_are_refused(name):
    with pytest.raises(ValueError, match="int32"):
        FACTORIES[name]()(jax.random.key(0), SHAPES[0], jnp.int32)
