"""Shapes of attention kernels, flat and per head."""

import pytest

from condinit_jax.kernels import flat_shape, head_shape


@pytest.mark.parametrize("shape", [(32, 48), (32, 4, 12)])
def test_both_layouts_of_one_kernel_have_the_same_heads(shape):
    assert head_shape(shape, 4) == (32, 4, 12)


@pytest.mark.parametrize(
    ("shape", "num_heads", "message"),
    [
        ((32, 50), 4, "50 columns"),
        ((32, 4, 12), 3, "write num_heads=4"),
        ((32,), 4, r"got \(32,\)"),
        ((32, 48), 0, "at least 1"),
    ],
)
def test_a_shape_that_does_not_hold_the_heads_is_refused(shape, num_heads, message):
    with pytest.raises(ValueError, match=message):
        head_shape(shape, num_heads)


def test_flat_shapes_are_those_that_flax_hands_to_initializers():
    assert flat_shape((32, 4, 12), "value") == (32, 48)
    assert flat_shape((4, 12, 32), "out") == (48, 32)
