import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.spectra._width_reduction import reduce_width
from tests.spectra.softmax_heads import HEADS, dense_jacobian, plain, replace


def values_of(head):
    return np.linalg.svd(dense_jacobian(head), compute_uv=False)


@pytest.mark.parametrize("name", ["plain", "cross", "qk-norm", "biased projections", "wide"])
def test_no_singular_value_changes_but_zeros_that_are_lost(name):
    before, after = values_of(HEADS[name]), values_of(reduce_width(HEADS[name]))
    assert len(after) <= len(before)
    np.testing.assert_allclose(after, before[: len(after)], atol=1e-13 * before[0])
    assert np.all(before[len(after) :] < 1e-13 * before[0])


@given(tokens=st.integers(1, 6), width=st.integers(1, 12), seed=st.integers(0, 5))
def test_the_width_becomes_the_rank(tokens, width, seed):
    head = plain(tokens, width, 2, seed)
    short = reduce_width(head)
    rank = min(tokens, width)
    assert short.tokens.shape == (tokens, rank)
    assert short.query.shape == (rank, 2)
    np.testing.assert_allclose(short.tokens @ short.query, head.tokens @ head.query, atol=1e-12)


def test_normalised_tokens_and_duplicates_have_a_smaller_rank():
    head = plain(12, 6, 2)
    centred = head.tokens - head.tokens.mean(1, keepdims=True)
    assert reduce_width(replace(head, tokens=centred)).tokens.shape == (12, 5)
    twice = np.concatenate([head.tokens[:2]] * 3)
    assert reduce_width(replace(head, tokens=twice)).tokens.shape == (6, 2)


def test_nearly_equal_tokens_keep_what_tells_them_apart():
    head = plain(3, 8, 2)
    near = head.tokens[:1] + 1e-9 * head.tokens
    assert reduce_width(replace(head, tokens=near)).tokens.shape == (3, 3)
