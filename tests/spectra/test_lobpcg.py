"""The smallest singular value of matrices whose singular values are prescribed."""

from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.spectra._lobpcg import Smallest, TallMap, smallest_singular_value


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def matrix_of(values: np.ndarray, rows: int, seed: int = 0) -> np.ndarray:
    """(rows, len(values)) with these singular values."""
    rng = np.random.default_rng(seed)
    left, _ = np.linalg.qr(rng.standard_normal((rows, len(values))))
    right, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    return left * values @ right.T


@jax.jit(static_argnames=("block", "preconditioned"))
def smallest_of(
    matrix: jax.Array,
    inverse: jax.Array,
    floor: float,
    *,
    iterations: int = 400,
    block: int = 4,
    preconditioned: bool = True,
) -> Smallest:
    tall = TallMap(
        lambda x: matrix @ x,
        lambda x: matrix.T @ x,
        (lambda x: inverse @ x) if preconditioned else None,
    )
    start = jax.random.normal(jax.random.key(1), (matrix.shape[1], block), matrix.dtype)
    return smallest_singular_value(tall, start, floor, tolerance=1e-7, iterations=iterations)


def rough_inverse(matrix: np.ndarray, spread: float = 10.0, seed: int = 2) -> np.ndarray:
    """(matrix^T matrix)^-1, off by factors of up to `spread` in random directions."""
    rng = np.random.default_rng(seed)
    _, values, right = np.linalg.svd(matrix, full_matrices=False)
    mixing, _ = np.linalg.qr(rng.standard_normal((len(values), len(values))))
    half = right.T / values
    between = mixing * spread ** rng.uniform(-1, 0, len(values)) @ mixing.T
    return half @ between @ half.T


SPECTRA = {
    "well separated": np.geomspace(1.0, 1e-3, 60),
    "clustered": np.concatenate([np.linspace(1, 2, 57), [1e-2, 1e-2 * (1 + 1e-9), 1e-2]]),
    "kappa of 1e5": np.geomspace(1.0, 1e-5, 60),
    "kappa of 1e7": np.geomspace(1.0, 1e-7, 60),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_prescribed_value_is_found_to_the_error_that_is_reported(name: str) -> None:
    values = SPECTRA[name]
    matrix = matrix_of(values, 80)
    found = smallest_of(matrix, rough_inverse(matrix), 1e-13)
    kappa = values.max() / values.min()
    assert found.error <= 1e-7
    assert abs(found.sigma / values.min() - 1) <= found.error + 60 * np.finfo(float).eps * kappa


def test_squaring_would_not_have_resolved_the_same_value() -> None:
    """At kappa 1e9 a Gram matrix has no digit of the value left; the iteration has several."""
    values = np.geomspace(1.0, 1e-9, 60)
    matrix = matrix_of(values, 80)
    found = smallest_of(matrix, rough_inverse(matrix, spread=2.0), 1e-13)
    gram = np.linalg.eigvalsh(matrix.T @ matrix)[0]
    assert abs(np.sqrt(abs(gram)) / 1e-9 - 1) > 0.5
    assert abs(found.sigma / 1e-9 - 1) < 1e-4


def test_without_preconditioner_an_easy_value_is_found_and_a_hard_one_is_not_claimed() -> None:
    easy = matrix_of(np.linspace(1, 3, 60), 80)
    found = smallest_of(easy, easy, 0.0, preconditioned=False)
    assert found.error <= 1e-7
    assert abs(found.sigma - 1) < 1e-6
    hard = matrix_of(np.geomspace(1.0, 1e-7, 60), 80)
    found = smallest_of(hard, hard, 0.0, preconditioned=False, iterations=20)
    assert found.steps == 20
    assert found.error > 1e-7
    assert found.sigma >= 1e-7 * (1 - 1e-6)


def test_unknown_zeros_are_counted_and_seen_through() -> None:
    values = np.concatenate([np.geomspace(1.0, 1e-3, 57), np.zeros(3)])
    matrix = matrix_of(values, 80)
    shifted = np.linalg.inv(matrix.T @ matrix + 1e-9 * np.eye(60))
    found = smallest_of(matrix, shifted, 1e-12, block=6)
    assert int(found.zeros) == 3
    assert not found.exhausted
    assert abs(found.sigma / 1e-3 - 1) < 1e-6


def test_more_zeros_than_the_block_holds_are_said_to_be() -> None:
    matrix = matrix_of(np.concatenate([np.linspace(1, 2, 50), np.zeros(10)]), 80)
    shifted = np.linalg.inv(matrix.T @ matrix + 1e-9 * np.eye(60))
    found = smallest_of(matrix, shifted, 1e-12, block=4, iterations=60)
    assert found.exhausted
    assert int(found.zeros) == 4


def test_residual_bounds_the_distance_to_a_singular_value() -> None:
    values = np.geomspace(1.0, 1e-4, 60)
    matrix = matrix_of(values, 80)
    for iterations in (0, 1, 3, 6, 12):
        found = smallest_of(matrix, rough_inverse(matrix), 0.0, iterations=iterations)
        distance = np.min(np.abs(values - float(found.sigma)))
        # The residual is over the norm of (u, v), which is sqrt(2) at convergence.
        assert distance <= float(found.residual * found.sigma) * np.sqrt(2) * (1 + 1e-6) + 1e-12


def test_projected_null_vectors_do_not_count() -> None:
    matrix = matrix_of(np.concatenate([np.linspace(1.0, 3.0, 50), np.zeros(10)]), 80)
    _, _, right = np.linalg.svd(matrix)
    kept = jnp.asarray(right[:50].T @ right[:50])
    tall = TallMap(
        lambda x: matrix @ x, lambda x: matrix.T @ x, None, lambda x: kept @ x, nullity=10
    )
    start = jax.random.normal(jax.random.key(0), (60, 4))
    found = jax.jit(
        lambda start: smallest_singular_value(tall, start, 1e-12, tolerance=1e-8, iterations=400)
    )(start)
    assert int(found.zeros) == 0
    assert abs(found.sigma - 1) < 1e-7


@pytest.mark.slow
@hypothesis.given(
    size=st.integers(2, 40), extra=st.integers(0, 15), power=st.integers(0, 6), seed=st.integers(0)
)
@hypothesis.settings(max_examples=5)
def test_any_shape_gives_the_smallest_value(size: int, extra: int, power: int, seed: int) -> None:
    values = np.geomspace(1.0, 10.0**-power, size)
    matrix = matrix_of(values, size + extra, seed % 1000)
    found = smallest_of(matrix, rough_inverse(matrix), 1e-13)
    assert abs(found.sigma / values[-1] - 1) < 1e-6
