"""Impulse initialization: where heads look by position alone."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import methods
from condinit_jax.models.positions import sincos2d
from tests.methods.block_methods import block


def attention(new, rows, columns):
    """The attention map of every head on the position embedding alone."""
    table = sincos2d(rows, columns, new.query.shape[0])
    tokens = (table - table.mean(1, keepdims=True)) / table.std(1, keepdims=True)
    query, key = (jnp.einsum("nD,Dhd->hnd", tokens, kernel) for kernel in new[:2])
    return jax.nn.softmax(jnp.einsum("hnd,hmd->hnm", query, key) / new.query.shape[2] ** 0.5)


def found_shift(weights, rows, columns):
    """The one shift at which most tokens look, and the share of tokens with that target there."""
    looked = np.asarray(weights.argmax(axis=1))
    y, x = np.divmod(np.arange(rows * columns), columns)
    shares = {}
    for dy in (-1, 0, 1):
        for dx in (-1, 0, 1):
            ok = (y + dy >= 0) & (y + dy < rows) & (x + dx >= 0) & (x + dx < columns)
            target = (y + dy) * columns + x + dx
            shares[dy, dx] = (looked[ok] == target[ok]).mean()
    return max(shares.items(), key=lambda item: item[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "columns", "width", "heads", "dim", "sharpest"),
    [
        (4, 4, 64, 4, 16, 0.5),
        (8, 8, 192, 3, 64, 0.2),
        (14, 14, 192, 3, 64, 0.1),
        (3, 5, 64, 4, 16, 0.1),
    ],
)
def test_every_token_looks_at_its_shifted_one(rows, columns, width, heads, dim, sharpest):
    shifts = set()
    method = jax.jit(methods.impulse(rows=rows, columns=columns, kernels=("query", "key")))
    for seed in range(6):
        new = method(jax.random.key(seed), block(width, heads, dim))
        for weights in attention(new, rows, columns):
            shift, share = found_shift(weights, rows, columns)
            assert share == 1.0
            shifts.add(shift)
            assert weights.max(axis=1).mean() > sharpest
    assert len(shifts) > 3


def test_shifts_are_drawn_with_equal_chances_and_all_of_them():
    method = jax.jit(methods.impulse(rows=4, columns=4, kernels=("query", "key")))
    counts = {}
    for seed in range(30):
        for weights in attention(method(jax.random.key(seed), block(64, 12, 16)), 4, 4):
            shift, _ = found_shift(weights, 4, 4)
            counts[shift] = counts.get(shift, 0) + 1
    assert len(counts) == 9
    assert sum(counts.values()) == 360
    # Chi-squared with 8 degrees of freedom: above 40 in fewer than 1 of 100,000.
    assert sum((count - 40) ** 2 / 40 for count in counts.values()) < 40


def test_every_head_has_the_gain_as_its_norm_whatever_its_width():
    for dim in (4, 16, 40):
        new = methods.impulse(gain=5.0, rows=3, columns=3)(jax.random.key(0), block(32, 2, dim))
        for kernel in new[:2]:
            np.testing.assert_allclose(jnp.linalg.norm(kernel, axis=(0, 2)), 5.0, rtol=1e-5)
            assert (jnp.linalg.norm(kernel, axis=0) > 1e-4).all()


def test_value_and_out_are_mimetic_ones():
    old, key = block(), jax.random.key(0)
    new, other = methods.impulse(rows=2, columns=2)(key, old), methods.mimetic()(key, old)
    np.testing.assert_array_equal(new.value, other.value)
    np.testing.assert_array_equal(new.out, other.out)


def test_what_the_grid_must_be_is_said_where_the_method_is_used():
    with pytest.raises(ValueError, match="rows = None, columns = 4: impulse needs both"):
        methods.impulse(columns=4)(jax.random.key(0), block())
    with pytest.raises(ValueError, match="width 18 is no multiple of 4"):
        methods.impulse(rows=4, columns=4)(jax.random.key(0), block(18, 3, 6))
    with pytest.raises(ValueError, match=r"filter_size = 5: .* grid of 2 x 6 .* at most 3"):
        methods.impulse(5, rows=2, columns=6)(jax.random.key(0), block())
    value_alone = methods.impulse(kernels=("value", "out"))(jax.random.key(0), block())
    assert jnp.isfinite(value_alone.value).all()
