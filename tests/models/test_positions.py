"""sincos2d: the formula, row-major order, and any grid."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condinit_jax.models.positions import sincos2d


@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 6), columns=st.integers(1, 6), quarter=st.integers(1, 6))
def test_every_token_follows_the_formula(rows, columns, quarter):
    table = np.asarray(sincos2d(rows, columns, 4 * quarter))
    assert table.shape == (rows * columns, 4 * quarter)
    assert table.dtype == np.float32
    frequency = 10_000.0 ** -np.linspace(0, 1, quarter)
    for row in range(rows):
        for column in range(columns):
            x, y = column * frequency, row * frequency
            expected = np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)])
            np.testing.assert_allclose(table[row * columns + column], expected, atol=1e-6)


def test_the_product_of_two_positions_depends_on_their_offset_only():
    table = np.asarray(sincos2d(5, 5, 32)).reshape(5, 5, 32)
    shifted = np.einsum("yxd,yxd->yx", table[:-2, :-1], table[2:, 1:])
    np.testing.assert_allclose(shifted, shifted[0, 0], rtol=1e-5)


@pytest.mark.parametrize("temperature", [10.0, 1e4])
def test_temperature_is_the_inverse_of_the_lowest_frequency(temperature):
    table = np.asarray(sincos2d(1, 2, 12, temperature=temperature))
    np.testing.assert_allclose(table[1, 2], np.sin(1 / temperature), rtol=1e-5)


@pytest.mark.parametrize("width", [0, 6])
def test_widths_that_four_does_not_divide_are_refused(width):
    with pytest.raises(ValueError, match=f"width = {width}: .* multiple of 4"):
        sincos2d(2, 2, width)
