"""Gram matrices against J J^T and J^T J of the dense Jacobian."""

import jax
import numpy as np
import pytest

from condinit_jax.spectra._factors import factors
from condinit_jax.spectra._gram import column_gram, row_gram
from tests.spectra.softmax_heads import HEADS, dense_jacobian, plain


def close(found, exact):
    np.testing.assert_allclose(found, exact, atol=1e-13 * np.abs(exact).max())


@pytest.mark.slow
@pytest.mark.parametrize("name", HEADS)
def test_the_gram_matrices_are_those_of_the_jacobian(name):
    dense = dense_jacobian(HEADS[name])
    with jax.enable_x64(True):
        parts = jax.jit(factors)(HEADS[name])
        by_rows = np.asarray(jax.jit(row_gram, static_argnums=1)(parts, 2))
        by_columns = np.asarray(jax.jit(column_gram)(parts))
    close(np.tril(by_rows), np.tril(dense @ dense.T))
    close(by_columns, dense.T @ dense)


def test_above_the_diagonal_blocks_nothing_is_filled_in():
    head = plain(tokens=8)
    with jax.enable_x64(True):
        gram = np.asarray(jax.jit(row_gram)(jax.jit(factors)(head)))
    # Four blocks of two tokens: rows of the first know nothing of the other six.
    assert not gram[:8, 8:].any()
    assert gram[8:, :8].any()


@pytest.mark.parametrize("slices", [1, 3, 50])
def test_in_how_many_parts_the_key_kernel_is_taken_makes_no_difference(slices):
    dense = dense_jacobian(HEADS["qk-norm"])
    with jax.enable_x64(True):
        parts = jax.jit(factors)(HEADS["qk-norm"])
        gram = np.asarray(jax.jit(row_gram, static_argnums=1)(parts, slices))
    close(np.tril(gram), np.tril(dense @ dense.T))
