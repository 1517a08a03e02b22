import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.data import order


@given(seed=st.integers(0, 2**64 - 1), length=st.integers(1, 60), epoch=st.integers(0, 10**6))
def test_every_epoch_is_a_permutation(seed, length, epoch):
    indices = order.shuffled(seed, length, epoch * length, (epoch + 1) * length)
    np.testing.assert_array_equal(np.sort(indices), np.arange(length))


@given(
    length=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 120), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_a_stream_cut_anywhere_is_the_same_stream(length, cuts):
    whole = order.shuffled(7, length, cuts[0], cuts[-1])
    parts = [order.shuffled(7, length, a, b) for a, b in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    draws = [order.uniforms(7, a, b) for a, b in itertools.pairwise(cuts)]
    np.testing.assert_array_equal(np.concatenate(draws), order.uniforms(7, cuts[0], cuts[-1]))


@pytest.mark.parametrize(("seed", "epoch"), [(0, 1), (1, 0)])
def test_epochs_and_seeds_differ(seed, epoch):
    first = order.shuffled(0, 100, 0, 100)
    other = order.shuffled(seed, 100, epoch * 100, (epoch + 1) * 100)
    assert not np.array_equal(first, other)


def test_positions_are_uncorrelated_and_uniform():
    draws = order.uniforms(3, 0, 5000)
    assert len(np.unique(draws)) == draws.size
    np.testing.assert_allclose(draws.mean(0), 0.5, atol=0.02)
    np.testing.assert_allclose(draws.var(0), 1 / 12, atol=0.01)


@given(length=st.integers(1, 50), position=st.integers(0, 10**9))
def test_replacements_visit_the_epoch_once(length, position):
    visited = [order.next_in_epoch(length, position, ahead) for ahead in range(length)]
    assert visited[0] == position
    start = position // length * length
    assert sorted(visited) == list(range(start, start + length))
