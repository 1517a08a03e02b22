"""J as a tall map against the dense Jacobian."""

import jax
import numpy as np
import pytest

from condinit_jax.spectra._null_space import null_space
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._tall_side import largest_value, null_part, survey, tall_side
from tests.spectra.softmax_heads import HEADS, dense_jacobian


def matrix_of(head, *arguments):
    with float64():
        tall = tall_side(head, *arguments)
        forward = np.asarray(tall.matvec(np.eye(tall.columns)))
        np.testing.assert_allclose(tall.rmatvec(np.eye(tall.rows)), forward.T, atol=1e-12)
    assert forward.shape == (tall.rows, tall.columns)
    return forward


def test_on_rows_it_is_the_transposed_jacobian():
    dense = dense_jacobian(HEADS["plain"])
    np.testing.assert_allclose(matrix_of(HEADS["plain"], "rows"), dense.T, atol=1e-12)


def test_on_columns_the_null_space_is_filled_in():
    head = HEADS["long"]
    dense = dense_jacobian(head)
    null, nullity = null_space(head)
    filled = matrix_of(head, "columns", null, 0.5)
    with float64():
        projector = np.asarray(null_part(head, null, np.eye(dense.shape[1])))
    np.testing.assert_allclose(projector @ projector, projector, atol=1e-12)
    assert np.trace(projector) == pytest.approx(nullity)
    np.testing.assert_allclose(
        filled.T @ filled, dense.T @ dense + 0.25 * projector, atol=1e-11 * (dense**2).max()
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plain", "causal", "wide"])
def test_a_survey_finds_the_largest_value_and_bounds_the_smallest(name):
    exact = np.linalg.svd(dense_jacobian(HEADS[name]), compute_uv=False)
    with float64():
        found = jax.device_get(survey(HEADS[name], 1e-8))
        tall = tall_side(HEADS[name], "rows")
        largest = jax.device_get(largest_value(tall, np.dtype("float64"), 1e-8))
    assert found.largest.sigma == pytest.approx(exact[0], rel=1e-7)
    assert largest.sigma == pytest.approx(found.largest.sigma, rel=1e-12)
    assert exact[-1] * (1 - 1e-9) <= found.smallest_at_most <= exact[0]
