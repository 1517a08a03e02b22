"""Mimetic initialization against its targets and the SVD of NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from condinit_jax import methods
from condinit_jax.methods import _factors
from tests.methods.block_methods import block


def products(new):
    """W_Q W_K^T of every head, and W_V W_O, in float64."""
    query, key, value, out = (np.asarray(kernel, np.float64) for kernel in new)
    width = value.shape[0]
    return (
        np.einsum("ihd,jhd->hij", query, key),
        value.reshape(width, -1) @ out.reshape(-1, width),
    )


def best(matrix, rank):
    u, s, vt = np.linalg.svd(np.asarray(matrix, np.float64))
    return (u[:, :rank] * s[:rank]) @ vt[:rank]


def targets(key, width, noise, identity, heads):
    """The matrices that a block draws: one for each head, and one for value and out."""
    own = [jax.random.fold_in(jax.random.fold_in(key, 0), head) for head in range(heads)]
    query_key, value_out = (noise[0], identity[0]), (noise[1], -identity[1])
    drawn = [
        _factors.noisy_identity(jax.random.split(one)[0], width, *target, jnp.float32)
        for one, target in [
            *((head, query_key) for head in own),
            (jax.random.fold_in(key, 2), value_out),
        ]
    ]
    return [np.asarray(matrix, np.float64) for matrix in drawn]


@pytest.mark.parametrize("columns", [1, 5, 8, 16])
@pytest.mark.parametrize("width", [16, 17])
def test_factors_are_the_best_approximation_of_their_rank(width, columns):
    matrix = _factors.noisy_identity(jax.random.key(columns), width, 0.7, 0.7, jnp.float32)
    left, right = _factors.factors(jax.random.key(0), matrix, columns)
    expected = best(matrix, columns)
    np.testing.assert_allclose(np.asarray(left) @ np.asarray(right).T, expected, atol=1e-5)
    for side in (left, right):  # S^1/2 of orthogonal columns: balanced, and both diagonal
        gram = np.asarray(side.T @ side)
        s = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)[:columns]
        np.testing.assert_allclose(gram, np.diag(s), atol=1e-5)


@settings(max_examples=6)
@given(
    width=st.integers(1, 12),
    columns=st.integers(1, 20),
    noise=st.sampled_from([0.0, 0.01, 0.7, 3.0]),
    identity=st.sampled_from([0.0, 0.01, 0.7, -3.0]),
)
def test_factors_of_any_size_give_the_nearest_product(width, columns, noise, identity):
    matrix = _factors.noisy_identity(jax.random.key(1), width, noise, identity, jnp.float32)
    split = jax.jit(_factors.factors, static_argnames="columns")
    left, right = split(jax.random.key(0), matrix, columns=columns)
    assert left.shape == right.shape == (width, columns)
    error = np.linalg.norm(np.asarray(left, np.float64) @ np.asarray(right).T - matrix)
    smallest = np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)[columns:]
    scale = np.linalg.norm(matrix)
    assert error <= np.linalg.norm(smallest) + 1e-5 * scale


def test_more_columns_than_the_matrix_has_are_none_of_them_zero():
    matrix = _factors.noisy_identity(jax.random.key(0), 6, 0.7, 0.7, jnp.float32)
    left, right = _factors.factors(jax.random.key(0), matrix, 10)
    np.testing.assert_allclose(left @ right.T, matrix, atol=1e-5)
    assert min(jnp.linalg.norm(left, axis=0).min(), jnp.linalg.norm(right, axis=0).min()) > 0.01


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products_of_a_block_are_their_targets(dtype):
    width, heads, dim = 48, 3, 16
    with jax.enable_x64(dtype == "float64"):
        new = methods.mimetic()(jax.random.key(5), block(width, heads, dim, dtype=dtype))
        query_key, value_out = products(new)
        target = -0.4 * np.eye(width) - value_out
    # What is left of the target is 0.4 Z with Z_ij ~ N(0, 1/D).
    assert abs(target.std() * width**0.5 / 0.4 - 1) < 0.1
    assert abs(target.mean()) < 5 * 0.4 / width**1.5
    for head in query_key:
        assert np.linalg.matrix_rank(head, tol=1e-3) == dim


def test_every_product_is_the_best_approximation_of_a_fresh_target():
    width, heads, dim = 40, 3, 8
    drawn = methods.mimetic(0.5, 0.6, 0.3, 0.2)(jax.random.key(1), block(width, heads, dim))
    query_key, value_out = products(drawn)
    *per_head, joint = targets(jax.random.key(1), width, (0.5, 0.3), (0.6, 0.2), heads)
    for target, product in zip(per_head, query_key, strict=True):
        np.testing.assert_allclose(product, best(target, dim), atol=1e-5)
        noise = (target - 0.6 * np.eye(width)) / 0.5
        assert abs(noise.std() * width**0.5 - 1) < 0.1
    np.testing.assert_allclose(value_out, best(joint, heads * dim), atol=1e-5)
    assert abs(np.diag(joint).mean() + 0.2) < 0.05
    assert np.unique([matrix[0, 1] for matrix in (*per_head, joint)]).size == heads + 1


def test_at_vit_tiny_the_diagonals_are_the_known_ones():
    query_key, value_out = products(methods.mimetic()(jax.random.key(0), block(192, 3, 64)))
    for head in query_key:
        assert abs(np.diag(head).mean() - 0.40) < 0.02
    assert abs(np.diag(value_out).mean() + 0.4) < 0.02


def test_cross_attention_of_another_width_is_refused():
    old = block()
    other = old._replace(key=jnp.zeros((16, 3, 8)), value=jnp.zeros((16, 3, 8)))
    with pytest.raises(ValueError, match="mimetic: query reads width 24 and key 16"):
        methods.mimetic(kernels=("query",))(jax.random.key(0), other)
    with pytest.raises(ValueError, match="mimetic: value reads width 16 and out gives 24"):
        methods.mimetic(kernels=("value",))(jax.random.key(0), other)
