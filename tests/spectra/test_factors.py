import jax
import numpy as np
import pytest

from condinit_jax.spectra._factors import factors, jacobian_columns
from condinit_jax.spectra._gram import column_gram, row_gram
from tests.spectra.softmax_heads import HEADS, dense_jacobian


def factors_of(head):
    return jax.jit(factors)(head)


@pytest.mark.parametrize("name", HEADS)
def test_the_factors_make_up_the_jacobian_of_jacfwd(name):
    with jax.enable_x64(True):
        built = np.asarray(jacobian_columns(factors_of(HEADS[name])))
    dense = dense_jacobian(HEADS[name])
    np.testing.assert_allclose(built, dense, atol=1e-13 * np.abs(dense).max())


@pytest.mark.parametrize("name", HEADS)
def test_the_gram_matrices_are_those_of_the_jacobian(name):
    dense = dense_jacobian(HEADS[name])
    with jax.enable_x64(True):
        parts = factors_of(HEADS[name])
        by_rows = np.asarray(jax.jit(row_gram, static_argnums=1)(parts, 2))
        by_columns = np.asarray(jax.jit(column_gram)(parts))
    exact = dense @ dense.T
    np.testing.assert_allclose(np.tril(by_rows), np.tril(exact), atol=1e-13 * np.abs(exact).max())
    exact = dense.T @ dense
    np.testing.assert_allclose(by_columns, exact, atol=1e-13 * np.abs(exact).max())


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
