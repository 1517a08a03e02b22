import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.spectra._davidson import extreme_singular_value


def matrix_with(values, rows, seed=0):
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.normal(size=(rows, len(values))))
    right, _ = np.linalg.qr(rng.normal(size=(len(values), len(values))))
    return (left * values) @ right.T


def extreme(matrix, *, largest, precondition=None, steps=20, block=2, tolerance=1e-10):
    with jax.enable_x64(True):
        start = jax.random.normal(jax.random.key(0), (matrix.shape[1], block), jnp.float64)
        return jax.device_get(
            jax.jit(
                lambda start: extreme_singular_value(
                    lambda columns: matrix @ columns,
                    lambda columns: matrix.T @ columns,
                    start,
                    largest=largest,
                    precondition=precondition,
                    steps=steps,
                    tolerance=tolerance,
                )
            )(start)
        )


def cholesky_solve(matrix, shift):
    gram = matrix.T @ matrix
    factor = np.linalg.cholesky(gram + shift * np.linalg.norm(gram, 2) * np.eye(len(gram)))
    return lambda columns: jax.scipy.linalg.cho_solve((jnp.asarray(factor), True), columns)


@pytest.mark.parametrize("kappa", [1.0, 10.0, 1e4, 1e6])
def test_both_ends_of_a_prescribed_spectrum_are_found(kappa):
    matrix = matrix_with(np.geomspace(3.0 * kappa, 3.0, 60), 90)
    largest = extreme(matrix, largest=True)
    with jax.enable_x64(True):
        smallest = extreme(matrix, largest=False, precondition=cholesky_solve(matrix, 1e-14))
    assert largest.converged
    assert smallest.converged
    assert abs(largest.sigma / (3.0 * kappa) - 1) < 1e-8
    assert abs(smallest.sigma / 3.0 - 1) < 1e-8


def test_a_factor_of_half_the_digits_leads_to_a_value_that_its_square_would_drown():
    # 1e9 squared is beyond float64: the eigenvalues of the Gram matrix have no digit of it.
    values = np.append(np.geomspace(1.0, 1e-5, 59), 1e-9)
    matrix = matrix_with(values, 90)
    gram_value = np.sqrt(abs(np.linalg.eigvalsh(matrix.T @ matrix)[0]))
    assert abs(gram_value / 1e-9 - 1) > 0.5
    with jax.enable_x64(True):
        found = extreme(matrix, largest=False, precondition=cholesky_solve(matrix, 1e-14))
    assert found.converged
    assert abs(found.sigma / 1e-9 - 1) < 1e-6


def test_equal_values_are_found():
    matrix = matrix_with(np.array([5.0, 5.0, 5.0, 4.0, 2.0, 1.0, 1.0, 1.0]), 8)
    assert abs(extreme(matrix, largest=True).sigma - 5) < 1e-9
    assert abs(extreme(matrix, largest=False).sigma - 1) < 1e-9


def test_without_enough_steps_it_says_so_and_bounds_from_the_right_side():
    matrix = matrix_with(np.geomspace(1.0, 1e-3, 200), 200)
    found = extreme(matrix, largest=False, steps=3)
    assert not found.converged
    assert found.sigma > 1e-3
    found = extreme(matrix, largest=True, steps=1)
    assert not found.converged
    assert found.sigma < 1.0


def test_the_residual_is_that_of_the_triplet():
    matrix = matrix_with(np.linspace(1.0, 2.0, 40), 50)
    found = extreme(matrix, largest=True, steps=4)
    left = matrix @ found.vector / found.sigma
    residual = np.linalg.norm(matrix.T @ left - found.sigma * found.vector)
    assert abs(found.residual / residual - 1) < 1e-8
    values = np.linalg.svd(matrix, compute_uv=False)
    assert np.abs(values - found.sigma).min() <= residual


@pytest.mark.parametrize("size", [1, 2, 3, 5, 64])
def test_small_maps_are_spanned(size):
    matrix = matrix_with(np.arange(1.0, size + 1), size + 2)
    assert abs(extreme(matrix, largest=True).sigma - size) < 1e-9 * size
    assert abs(extreme(matrix, largest=False).sigma - 1) < 1e-9
