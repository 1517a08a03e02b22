"""What a Gram matrix and its Cholesky factor give, against dense singular values."""

import jax
import numpy as np
import pytest

from condinit_jax.spectra._cholesky import gram_smallest, gram_values
from condinit_jax.spectra._null_space import null_space
from condinit_jax.spectra._precision import float64
from tests.spectra.softmax_heads import HEADS, dense_jacobian


def dense_values(head):
    return np.linalg.svd(dense_jacobian(head), compute_uv=False)


@pytest.mark.parametrize(("name", "side"), [("plain", "rows"), ("long", "columns")])
def test_every_value_to_half_the_digits(name, side):
    exact = dense_values(HEADS[name])
    with float64():
        values = np.asarray(gram_values(HEADS[name], side=side))
    np.testing.assert_allclose(values[: len(exact)], exact, atol=1e-7 * exact[0])


@pytest.mark.parametrize("factor_dtype", ["float64", "float32"])
def test_the_smallest_has_all_digits_whatever_the_factor_has(factor_dtype):
    exact = dense_values(HEADS["plain"])
    shift = 1e-14 if factor_dtype == "float64" else 3e-6
    with float64():
        found = jax.device_get(
            gram_smallest(
                HEADS["plain"], None, exact[0], shift, 1e-10, side="rows", factor_dtype=factor_dtype
            )
        )
    assert found.converged
    assert found.sigma == pytest.approx(exact[-1], rel=1e-9)


def test_null_directions_do_not_pass_for_small_values():
    head = HEADS["long"]
    null, nullity = null_space(head)
    exact = dense_values(head)
    with float64():
        found = jax.device_get(gram_smallest(head, null, exact[0], 1e-14, 1e-10, side="columns"))
    assert found.sigma == pytest.approx(exact[len(exact) - nullity - 1], rel=1e-9)
