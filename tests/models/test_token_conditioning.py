"""Token conditioning: what each does to the condition number of an example's tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.fft

from condinit_jax.models.token_conditioning import (
    TOKEN_CONDITIONING,
    embedded,
    gray_dct,
    gray_svd,
)

SHAPES = [(6, 4), (4, 6), (5, 5)]


def draw(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def in_float64(function, *args):
    """What a function gives in float64, compiled, on the host."""
    with jax.enable_x64(True):
        return np.asarray(jax.jit(lambda X: function(X, *args[1:]))(args[0]))


def kappa(matrix):
    values = np.linalg.svd(matrix, compute_uv=False)
    return values[0] / values[-1]


def two_equal_tokens(shape):
    tokens = draw(shape)
    tokens[1] = tokens[0]
    return tokens


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("exponent", [0.95, 0.7])
def test_graying_by_svd_multiplies_log_kappa_by_the_exponent(shape, exponent):
    tokens = draw(shape)
    grayed = in_float64(gray_svd, tokens, exponent)
    np.testing.assert_allclose(np.log(kappa(grayed)), exponent * np.log(kappa(tokens)), rtol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(grayed, 2), 1, rtol=1e-12)


def test_graying_by_svd_keeps_singular_vectors_and_rank():
    tokens = two_equal_tokens((4, 6))
    grayed = in_float64(gray_svd, tokens, 0.7)
    left, values, right = np.linalg.svd(tokens, full_matrices=False)
    expected = left[:, :3] * (values[:3] / values[0]) ** 0.7 @ right[:3]
    np.testing.assert_allclose(grayed, expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(grayed[1], grayed[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_graying_by_dct_is_scipys_transform_with_a_power(shape):
    tokens = draw(shape)
    grayed = in_float64(gray_dct, tokens, 0.7)
    spectrum = scipy.fft.dctn(tokens, norm="ortho")
    powers = np.sign(spectrum) * np.abs(spectrum / np.abs(spectrum).max()) ** 0.7
    np.testing.assert_allclose(grayed, scipy.fft.idctn(powers, norm="ortho"), rtol=0, atol=1e-12)


def test_an_exponent_of_one_only_divides_by_the_largest():
    tokens = draw((4, 6))
    largest = np.abs(scipy.fft.dctn(tokens, norm="ortho")).max()
    by_svd, by_dct = (in_float64(gray, tokens, 1.0) for gray in (gray_svd, gray_dct))
    np.testing.assert_allclose(by_svd, tokens / np.linalg.norm(tokens, 2), rtol=0, atol=1e-12)
    np.testing.assert_allclose(by_dct, tokens / largest, rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [draw, two_equal_tokens])
def test_embedded_tokens_have_a_condition_number_of_at_most_two(shape, make):
    tokens = make(shape)
    conditioned = in_float64(embedded, tokens)
    found, given = (np.linalg.svd(array, compute_uv=False) for array in (conditioned, tokens))
    np.testing.assert_allclose(found, given + given[0], rtol=1e-10)
    assert kappa(conditioned) <= 2 + 1e-10


def test_the_correction_of_embedded_tokens_is_a_constant_to_the_gradient():
    cotangent = draw((2, 4, 6), seed=1).astype(np.float32)
    _, back = jax.vjp(embedded, jnp.asarray(draw((2, 4, 6)), jnp.float32))
    np.testing.assert_array_equal(back(cotangent)[0], cotangent)


@pytest.mark.parametrize("gray", [gray_svd, gray_dct])
def test_gradients_of_graying_are_those_of_finite_differences(gray):
    tokens, cotangent, direction = (draw((4, 6), seed) for seed in range(3))
    gradient = in_float64(jax.grad(lambda X: jnp.sum(gray(X, 0.7) * cotangent)), tokens)
    step = 1e-6 * direction
    above, below = (in_float64(gray, place, 0.7) for place in (tokens + step, tokens - step))
    difference = np.sum(cotangent * (above - below)) / 2e-6
    np.testing.assert_allclose(np.sum(gradient * direction), difference, rtol=1e-6)


@pytest.mark.parametrize("kind", TOKEN_CONDITIONING)
@pytest.mark.parametrize("tokens", [jnp.zeros((4, 6)), jnp.ones((4, 6)), two_equal_tokens((6, 4))])
def test_tokens_without_full_rank_have_finite_values_and_gradients(kind, tokens):
    def run(X):
        value, back = jax.vjp(lambda X: TOKEN_CONDITIONING[kind](X, 0.7), X)
        return value, back(jnp.ones_like(value))[0]

    value, gradient = jax.jit(run)(jnp.asarray(tokens, jnp.float32))
    assert np.isfinite(value).all()
    assert np.isfinite(gradient).all()


@pytest.mark.parametrize("kind", TOKEN_CONDITIONING)
def test_examples_are_conditioned_one_by_one_and_keep_shape_and_dtype(kind):
    tokens = jnp.asarray(draw((3, 4, 6)), jnp.bfloat16)
    run = jax.jit(lambda X: TOKEN_CONDITIONING[kind](X, 0.7))
    together = run(tokens)
    assert (together.shape, together.dtype) == (tokens.shape, tokens.dtype)
    for example, alone in zip(together, tokens, strict=True):
        np.testing.assert_array_equal(
            np.asarray(example, np.float32), np.asarray(run(alone[None])[0], np.float32)
        )
