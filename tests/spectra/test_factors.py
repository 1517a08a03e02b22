import jax
import numpy as np
import pytest

from condinit_jax.spectra._factors import factors, jacobian_columns, slices
from tests.spectra.softmax_heads import HEADS, dense_jacobian


def factors_of(head):
    return jax.jit(factors)(head)


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_the_factors_make_up_the_jacobian_of_jacfwd(name):
    with jax.enable_x64(True):
        built = np.asarray(jacobian_columns(factors_of(HEADS[name])))
    dense = dense_jacobian(HEADS[name])
    np.testing.assert_allclose(built, dense, atol=1e-13 * np.abs(dense).max())


@pytest.mark.parametrize(("count", "parts"), [(7, 3), (8, 4), (2, 5), (1, 1)])
def test_slices_cover_an_axis_in_order_and_evenly(count, parts):
    found = slices(count, parts)
    assert len(found) == parts
    assert [i for part in found for i in range(count)[part]] == list(range(count))
    lengths = [part.stop - part.start for part in found]
    assert max(lengths) - min(lengths) <= 1


def test_some_columns_are_columns_of_the_whole():
    head = HEADS["qk-norm"]
    dense = dense_jacobian(head)
    width, dim = head.query.shape
    with jax.enable_x64(True):
        some = np.asarray(jacobian_columns(factors_of(head), slice(2, 4), slice(5, 8)))
    query, key, value = np.split(dense.reshape(len(dense), -1, dim), [width, 2 * width], axis=1)
    expected = [query[:, 2:4], key[:, 5:8], value[:, 5:8]]
    expected = np.concatenate([part.reshape(len(dense), -1) for part in expected], axis=1)
    np.testing.assert_allclose(some, expected, atol=1e-13 * np.abs(dense).max())
