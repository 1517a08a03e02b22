"""Triangular factors of J, and what is found with them, against dense singular values."""

import jax
import numpy as np
import pytest

from condinit_jax.spectra._null_space import null_space
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._score_columns import has_score_columns
from condinit_jax.spectra._triangle import (
    small_values,
    triangle,
    triangle_extremes,
    triangle_values,
)
from tests.spectra.softmax_heads import HEADS, dense_jacobian


def dense_values(head):
    return np.linalg.svd(dense_jacobian(head), compute_uv=False)


def factor(head, null=None, scale=0.0, **options):
    with float64():
        return np.asarray(triangle(head, null, scale, **options))


@pytest.mark.parametrize("name", HEADS)
def test_small_heads_have_the_singular_values_of_the_dense_jacobian(name):
    with float64():
        values = small_values(HEADS[name])
    exact = dense_values(HEADS[name])[: len(values)]
    np.testing.assert_allclose(values, exact, atol=1e-13 * exact[0])


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize(("name", "side"), [
    ("plain", "rows"), ("rotary", "rows"), ("cross", "rows"), ("long", "columns"),
])  # fmt: skip
def test_the_triangle_has_the_singular_values_of_the_jacobian(name, side, blocks):
    head = HEADS[name]
    exact = dense_values(head)
    for by_scores in {False, side == "rows" and has_score_columns(head)}:
        upper = factor(head, side=side, by_scores=by_scores, blocks=blocks)
        np.testing.assert_array_equal(upper, np.triu(upper))
        with float64():
            values = np.asarray(triangle_values(upper))
        np.testing.assert_allclose(values, exact, atol=1e-13 * exact[0])


def test_a_null_space_is_given_the_value_asked_for_and_nothing_else_moves():
    head = HEADS["long"]
    null, nullity = null_space(head)
    exact = dense_values(head)
    kept = exact[: len(exact) - nullity]
    scale = float(np.sqrt(kept[0] * kept[-1]))
    upper = factor(head, null, scale, side="columns", by_scores=False, blocks=1)
    expected = np.sort(np.append(kept, np.full(nullity, scale)))[::-1]
    np.testing.assert_allclose(
        np.linalg.svd(upper, compute_uv=False), expected, atol=1e-12 * exact[0]
    )


@pytest.mark.parametrize(("name", "side"), [("plain", "rows"), ("long", "columns")])
def test_the_extremes_are_those_of_the_jacobian(name, side):
    head, null, nullity, scale = HEADS[name], None, 0, 0.0
    exact = dense_values(head)
    if side == "columns":
        null, nullity = null_space(head)
        scale = float(exact[0])
    upper = factor(head, null, scale, side=side, by_scores=False, blocks=1)
    with float64():
        found = jax.device_get(triangle_extremes(head, null, upper, scale, 1e-9, side=side))
    assert found.largest.converged
    assert found.smallest.converged
    assert found.largest.sigma == pytest.approx(exact[0], rel=1e-8)
    assert found.smallest.sigma == pytest.approx(exact[len(exact) - nullity - 1], rel=1e-8)
