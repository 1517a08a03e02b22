import jax
import numpy as np
import pytest

from condinit_jax.spectra._factors import factors
from condinit_jax.spectra._score_columns import has_score_columns, score_columns
from condinit_jax.spectra._width_reduction import reduce_width
from tests.spectra.softmax_heads import HEADS, dense_jacobian

PLAIN = [name for name, head in HEADS.items() if has_score_columns(head)]


def test_maps_and_query_biases_rule_them_out():
    assert set(HEADS) - set(PLAIN) == {
        "biased projections", "qk-norm", "rotary", "query map only", "long, query bias",
        "long, rotary",
    }  # fmt: skip


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", PLAIN)
def test_fewer_columns_have_the_gram_matrix_of_all(name, blocks):
    head = HEADS[name]
    found = np.concatenate(score_columns(head, factors(head), blocks), axis=1)
    dense = dense_jacobian(head)
    exact = dense @ dense.T
    np.testing.assert_allclose(found @ found.T, exact, atol=1e-13 * np.abs(exact).max())
    assert found.shape[1] <= dense.shape[1]


def test_their_number_is_that_of_the_columns_less_the_gauge():
    head = HEADS["plain"]
    found = np.concatenate(score_columns(head, factors(head)), axis=1)
    assert found.shape[1] == dense_jacobian(head).shape[1] - 4 * 4
    short = reduce_width(HEADS["wide"])
    # Five tokens of width 5: the score matrix has 25 entries, of which 2 x 2 are out of reach.
    assert sum(part.shape[1] for part in score_columns(short, factors(short))) == 21 + 5 * 3


def test_small_singular_values_are_not_squared_away():
    head = HEADS["wide"]
    near = jax.tree.map(np.copy, head)
    near.tokens[1:] = near.tokens[:1] + 1e-3 * near.tokens[1:]
    found = np.concatenate(score_columns(near, factors(near)), axis=1)
    exact = np.linalg.svd(dense_jacobian(near), compute_uv=False)
    values = np.linalg.svd(found, compute_uv=False)
    assert exact[0] / exact[-1] > 1e9
    np.testing.assert_allclose(values, exact, atol=1e-14 * exact[0])
