"""Hybrids: each kernel is the one that its own method draws."""

import jax
import numpy as np
import pytest

from condinit_jax import methods
from condinit_jax.kernels import ROLES
from tests.methods.block_methods import block

KEY = jax.random.key(0)


@pytest.mark.parametrize(
    ("query_key", "value", "out"),
    [
        ("conditioned", "conditioned", "default"),
        ("conditioned", "mimetic", "mimetic"),
        ("mimetic", "conditioned", "orthogonal"),
        ("default", "mimetic", "default"),
        ("tied", "default", "small"),
        ("impulse", "default", "skipless"),
    ],
)
def test_each_kernel_is_the_one_its_method_draws_alone(query_key, value, out):
    old = block()
    new = methods.hybrid(query_key, value, out, rows=2, columns=3)(KEY, old)
    for role, name in zip(ROLES, (query_key, query_key, value, out), strict=True):
        if name == "default":
            assert getattr(new, role) is getattr(old, role)
            continue
        grid = {"rows": 2, "columns": 3} if name == "impulse" else {}
        alone = methods.METHODS[name](kernels=(role,), **grid)(KEY, old)
        np.testing.assert_array_equal(getattr(new, role), getattr(alone, role))


def test_value_and_out_from_one_method_stay_tied():
    new = methods.hybrid(value="skipless", out="skipless")(KEY, block(24, 3, 8))
    product = np.asarray(new.value).reshape(24, 24) @ np.asarray(new.out).reshape(24, 24)
    np.testing.assert_allclose(np.linalg.svd(product, compute_uv=False), 9, rtol=1e-4)


def test_methods_themselves_are_welcome_in_python():
    small = methods.normal(stddev=1e-3, kernels=("value", "out"))
    new = methods.hybrid("default", small, small)(KEY, block())
    assert abs(np.std(new.out) / 1e-3 - 1) < 0.2
    assert (new.query == block().query).all()


def test_what_is_no_method_is_refused():
    with pytest.raises(ValueError, match="value: mimetic is a factory: write mimetic"):
        methods.hybrid(value=methods.mimetic)
    with pytest.raises(ValueError, match="query_key: an initializer draws one kernel"):
        methods.hybrid(query_key=jax.nn.initializers.he_normal())
    with pytest.raises(ValueError, match="value = 3: must be a name or a method"):
        methods.hybrid(value=3)
    with pytest.raises(ValueError, match="out: the method acts on a network as a whole"):
        methods.hybrid(out=methods.NetworkMethod(lambda key, params, data: params))
