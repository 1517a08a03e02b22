"""The rectangular identity in both layouts."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax import rectangular_identity


@given(
    width=st.integers(1, 40),
    num_heads=st.integers(1, 6),
    head_dim=st.integers(1, 40),
)
def test_per_head_every_head_is_the_rectangular_identity(width, num_heads, head_dim):
    kernel = rectangular_identity(num_heads)(jax.random.key(0), (width, num_heads * head_dim))
    for head in np.asarray(kernel).reshape(width, num_heads, head_dim).swapaxes(0, 1):
        np.testing.assert_array_equal(head, np.eye(width, head_dim))
    assert np.linalg.matrix_rank(kernel) == min(width, head_dim)


@given(num_heads=st.integers(1, 6), head_dim=st.integers(1, 8), rest=st.integers(0, 9))
def test_joint_heads_are_slices_of_one_identity(num_heads, head_dim, rest):
    columns = num_heads * head_dim
    init = rectangular_identity(num_heads, layout="joint")
    kernel = init(jax.random.key(0), (columns + rest, columns))
    np.testing.assert_array_equal(kernel, np.eye(columns + rest, columns))


def test_scale_stands_on_the_diagonal():
    kernel = rectangular_identity(2, scale=0.5)(jax.random.key(0), (6, 4))
    np.testing.assert_array_equal(kernel[:, 2:], 0.5 * np.eye(6, 2))


def test_a_joint_layout_wider_than_its_input_is_refused():
    with pytest.raises(ValueError, match=r"2 \* 8 > 12.*use 'per_head'"):
        rectangular_identity(2, layout="joint")(jax.random.key(0), (12, 16))


def test_a_scale_that_is_no_number_is_refused_at_once():
    with pytest.raises(ValueError, match="scale = nan: must be a finite number"):
        rectangular_identity(scale=float("nan"))


def test_an_unknown_layout_is_refused_at_once():
    with pytest.raises(ValueError, match="'stacked': must be one of per_head, joint"):
        rectangular_identity(layout="stacked")
