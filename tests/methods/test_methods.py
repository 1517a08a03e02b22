"""Methods on one attention block, and the table of their names."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import condinit_jax as cj
from condinit_jax import methods
from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels

WIDTH, HEADS, DIM = 96, 4, 24
SENTINEL = 7.0


def block(heads=HEADS, kv_heads=HEADS, out=True):
    return AttentionKernels(
        jnp.full((WIDTH, heads, DIM), SENTINEL),
        jnp.full((WIDTH, kv_heads, DIM), SENTINEL),
        jnp.full((WIDTH, kv_heads, DIM), SENTINEL),
        jnp.full((heads, DIM, WIDTH), SENTINEL) if out else None,
    )


@pytest.mark.parametrize("name", methods.METHODS)
def test_a_method_rewrites_query_key_and_value_and_nothing_else(name):
    old = block()
    new = methods.build({"method": name})(jax.random.key(0), old)
    for role in ("query", "key", "value"):
        kernel = getattr(new, role)
        assert kernel.shape == getattr(old, role).shape
        assert not (kernel == SENTINEL).any()
    assert new.out is old.out
    assert (new.query != new.key).any()


@pytest.mark.parametrize("name", methods.METHODS)
@pytest.mark.parametrize("role", ["query", "key", "value"])
def test_a_method_can_be_kept_to_one_kernel_and_draws_it_the_same(name, role):
    old, key = block(), jax.random.key(0)
    one = methods.METHODS[name](kernels=(role,))(key, old)
    everything = methods.METHODS[name]()(key, old)
    for other in ROLES:
        expected = everything if other == role else old
        np.testing.assert_array_equal(getattr(one, other), getattr(expected, other))


@pytest.mark.parametrize("name", [n for n in methods.METHODS if n.endswith(("normal", "uniform"))])
def test_plain_methods_take_the_out_kernel_along_when_asked(name):
    new = methods.METHODS[name](kernels=ROLES)(jax.random.key(0), block())
    assert new.out.shape == (HEADS, DIM, WIDTH)
    init = getattr(cj, name)()
    reference = np.std(init(jax.random.key(1), (HEADS * DIM, WIDTH)))
    assert abs(np.std(new.out) / reference - 1) < 0.05
    assert abs(np.std(new.query) / reference - 1) < 0.05  # the widths are equal, and so the fans


def test_conditioned_rewrites_grouped_queries_and_blocks_without_out():
    new = methods.conditioned()(jax.random.key(0), block(heads=4, kv_heads=2, out=False))
    assert new.out is None
    for kernel in (new.query, new.key):
        gram = np.einsum("dhi,dhj->hij", kernel, kernel)
        np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=5e-6)
    np.testing.assert_array_equal(new.value[:, 1], np.eye(WIDTH, DIM))


def test_conditioned_joint_keeps_the_rank_of_the_stacked_value():
    per_head = methods.conditioned()(jax.random.key(0), block()).value.reshape(WIDTH, -1)
    joint = methods.conditioned(value="joint")(jax.random.key(0), block()).value.reshape(WIDTH, -1)
    assert np.linalg.matrix_rank(per_head) == DIM
    assert np.linalg.matrix_rank(joint) == WIDTH


def test_conditioned_has_the_law_of_the_kernel_init_route():
    """Entry by entry: the first and second moments over many keys agree with each other."""

    def by_method(key):
        return methods.conditioned()(key, block()).query

    def by_kernel_init(key):
        return cj.conditioned(role="query", num_heads=HEADS)(key, (WIDTH, HEADS, DIM))

    keys = jax.random.split(jax.random.key(0), 60)
    for kernels in (jax.lax.map(by_method, keys), jax.lax.map(by_kernel_init, keys)):
        kernels = np.asarray(kernels)
        assert abs(kernels.mean()) < 5 * (WIDTH * kernels.size) ** -0.5
        np.testing.assert_allclose(np.square(kernels).mean((0, 2, 3)), 1 / WIDTH, rtol=0.15)
        np.testing.assert_allclose(np.square(kernels).mean(), 1 / WIDTH, rtol=1e-5)


def test_semi_orthogonal_makes_the_value_heads_random_too():
    value = methods.semi_orthogonal()(jax.random.key(0), block()).value
    gram = np.einsum("dhi,dhj->hij", value, value)
    np.testing.assert_allclose(gram, np.broadcast_to(np.eye(DIM), gram.shape), atol=5e-6)


def test_a_method_is_deterministic_and_jit_agrees():
    method = methods.conditioned()
    first, again = (method(jax.random.key(3), block()) for _ in range(2))
    jitted = jax.jit(method)(jax.random.key(3), block())
    for role in ROLES:
        np.testing.assert_array_equal(getattr(first, role), getattr(again, role))
        np.testing.assert_allclose(getattr(first, role), getattr(jitted, role), atol=1e-6)


def test_default_names_no_method():
    assert methods.build({"method": "default"}) is None
    assert methods.build({}) is None


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"method": "conditionned"}, "config.init.method = 'conditionned'.*mean 'conditioned'"),
        ({"method": "zzz"}, "it takes one of: default, conditioned"),
        ({"method": "conditioned", "valu": "joint"}, "config.init.valu.*did you mean 'value'"),
        ({"method": "default", "value": "joint"}, "config.init.value.*takes none"),
        ({"method": "conditioned", "value": "both"}, "must be one of per_head, joint"),
        ({"method": "conditioned", "kernels": ("out",)}, "leaves the out kernel alone"),
        ({"method": "semi_orthogonal", "kernels": "out"}, "query, key and value only"),
        ({"method": "normal", "stddev": -1.0}, "must be positive"),
        ({"method": "normal", "stddev": "big"}, "config.init"),
        ({"method": "normal", "kernels": ("q",)}, "must be some of query, key, value, out"),
    ],
)
def test_mistakes_in_the_config_get_one_line(init, message):
    with pytest.raises(UserError, match=message) as error:
        methods.build(init)
    assert "\n" not in str(error.value)
