"""Extremes by products alone, against dense singular values."""

from collections.abc import Iterator

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.spectra import ConditionNumber, Head
from condinit_jax.spectra._linear_map import LinearMap, linear_map
from condinit_jax.spectra._matrix_free import matrix_free_condition_number
from condinit_jax.spectra._matrix_free_head import matrix_free_spectrum
from condinit_jax.spectra._width_reduction import reduce_width
from tests.spectra.softmax_heads import HEADS, dense_jacobian, plain, replace


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def dense_values(head: Head) -> np.ndarray:
    values = np.linalg.svd(dense_jacobian(head), compute_uv=False)
    return values[values > 1e-12 * values[0]]


def assert_agrees(record: ConditionNumber, values: np.ndarray) -> None:
    """The record holds what the non-zero singular values say, within its own error."""
    kappa = values[0] / values[-1]
    assert record.converged, record.warning
    assert record.error < 2e-6 + 1e-12 * kappa
    assert abs(record.kappa / kappa - 1) <= record.error
    assert record.rank == len(values)
    assert record.dropped == record.size - len(values)
    assert (record.method, record.dtype) == ("matrix_free", "float64")


def by_matrix(matrix: np.ndarray) -> LinearMap:
    return LinearMap(lambda x: matrix @ x, lambda x: matrix.T @ x, *matrix.shape)


KERNELS = {
    "conditioned": lambda rng, shape: np.linalg.qr(rng.standard_normal(shape))[0],
    "normal 0.02": lambda rng, shape: 0.02 * rng.standard_normal(shape),
}
BIG = {
    "plain": {},
    "causal": {"mask": np.tri(12, dtype=bool)},
    "cross": {"context": np.random.default_rng(5).standard_normal((10, 24))},
}


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize(
    "name",
    ["plain", *(pytest.param(name, marks=pytest.mark.slow) for name in BIG if name != "plain")],
)
def test_extremes_of_a_head_are_those_of_its_dense_jacobian(name: str, kernels: str) -> None:
    rng = np.random.default_rng(0)
    draw = KERNELS[kernels]
    tokens = rng.standard_normal((12, 24))
    head = Head(tokens, *(draw(rng, (24, 8)) for _ in range(3)), **BIG[name])
    assert_agrees(matrix_free_spectrum(head), dense_values(head))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({*HEADS} - {"long, rotary"}))
def test_every_kind_of_head_agrees_with_its_dense_jacobian(name: str) -> None:
    head = HEADS[name]
    assert_agrees(matrix_free_spectrum(reduce_width(head)), dense_values(head))


@pytest.mark.slow
def test_null_directions_that_nobody_knew_of_do_not_pass_for_a_condition_number() -> None:
    """Rotary maps leave null directions of the gauge: more than a block of 2 sees through."""
    head = HEADS["long, rotary"]
    values = dense_values(head)
    narrow = matrix_free_spectrum(head, block=2)
    assert not narrow.converged
    assert narrow.rank is None
    record = matrix_free_spectrum(head, iterations=2000)
    if record.converged:
        assert_agrees(record, values)
    else:
        assert record.rank is None


@pytest.mark.slow
@pytest.mark.parametrize("kernels", KERNELS)
def test_columns_are_the_side_of_many_tokens_and_few_widths(kernels: str) -> None:
    rng = np.random.default_rng(0)
    draw = KERNELS[kernels]
    head = Head(rng.standard_normal((60, 6)), *(draw(rng, (6, 4)) for _ in range(3)))
    record = matrix_free_spectrum(head, iterations=2000)
    values = dense_values(head)
    assert record.size == 72
    assert len(values) == 72 - 16
    if record.converged:
        assert_agrees(record, values)
    else:
        assert kernels == "normal 0.02"
        assert record.kappa <= values[0] / values[-1]


def test_nearly_equal_tokens_are_resolved_beyond_what_a_gram_matrix_can() -> None:
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((12, 24))
    tokens[6:] = tokens[6] + 0.1 * rng.standard_normal((6, 24))
    head = Head(tokens, *(KERNELS["conditioned"](rng, (24, 8)) for _ in range(3)))
    record, values = matrix_free_spectrum(head, iterations=1000), dense_values(head)
    assert values[0] / values[-1] > 1e5
    assert_agrees(record, values)


def test_a_run_that_is_too_short_says_so_and_gives_a_lower_bound() -> None:
    head = replace(plain(12, 24, 8), scale=2.0)
    record = matrix_free_spectrum(head, iterations=2, preconditioned=False)
    values = dense_values(head)
    assert not record.converged
    assert record.rank is None
    assert record.dropped is None
    assert record.warning.startswith("not converged after 2 iterations: kappa is a lower bound")
    assert record.kappa <= values[0] / values[-1] * (1 + 1e-9)
    assert record.error > 1e-6


@pytest.mark.slow
def test_preconditioner_saves_iterations_and_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    head = Head(rng.standard_normal((12, 24)), *0.02 * rng.standard_normal((3, 24, 8)))
    kappa = np.divide(*dense_values(head)[[0, -1]])
    record = matrix_free_spectrum(head, iterations=60)
    assert record.converged
    assert abs(record.kappa / kappa - 1) <= record.error
    assert not matrix_free_spectrum(head, iterations=60, preconditioned=False).converged


@pytest.mark.slow
def test_any_matrix_given_by_its_products_has_its_condition_number() -> None:
    rng = np.random.default_rng(0)
    matrix = rng.standard_normal((60, 150))
    for given in (matrix, matrix.T):
        values = np.linalg.svd(given, compute_uv=False)
        assert_agrees(matrix_free_condition_number(by_matrix(given)), values)


@pytest.mark.slow
def test_low_rank_is_told_and_an_approximate_inverse_is_used() -> None:
    rng = np.random.default_rng(0)
    left, _ = np.linalg.qr(rng.standard_normal((80, 60)))
    right, _ = np.linalg.qr(rng.standard_normal((60, 60)))
    values = np.concatenate([np.geomspace(1, 1e-4, 57), np.zeros(3)])
    matrix = left * values @ right.T
    inverse = np.linalg.inv(matrix.T @ matrix + 1e-10 * np.eye(60))
    record = matrix_free_condition_number(
        by_matrix(matrix), precondition=lambda x: inverse @ x, rtol=1e-12
    )
    assert_agrees(record, values[:57])
    assert (record.size, record.rank, record.dropped) == (60, 57, 3)
    record = matrix_free_condition_number(
        by_matrix(matrix), precondition=lambda x: inverse @ x, rtol=1e-12, block=3
    )
    assert not record.converged
    assert record.rank is None
    assert np.isnan(record.kappa)
    assert "all 3 vectors of the block found singular values of zero" in record.warning


@pytest.mark.parametrize("rows", [20, 60])
def test_a_zero_matrix_is_said_to_be_one(rows: int) -> None:
    record = matrix_free_condition_number(by_matrix(np.zeros((rows, 80))))
    assert (record.kappa, record.rank, record.size, record.dropped) == (np.inf, 0, rows, rows)
    assert record.warning == "every singular value is zero"


def test_jacobian_of_any_function_of_a_pytree_is_a_linear_map() -> None:
    rng = np.random.default_rng(0)
    at = {"a": rng.standard_normal((3, 4)), "b": rng.standard_normal(5)}

    def function(tree: dict) -> jax.Array:
        return jnp.tanh(jnp.outer(tree["a"].sum(0), tree["b"]))

    linear = linear_map(function, at, batch_size=2)
    blocks = jax.jacfwd(function)(at)
    dense = np.concatenate(
        [np.asarray(blocks["a"]).reshape(20, 12), np.asarray(blocks["b"]).reshape(20, 5)], axis=1
    )
    assert (linear.rows, linear.columns) == dense.shape
    np.testing.assert_allclose(linear.matvec(jnp.eye(17)), dense, atol=1e-14)
    np.testing.assert_allclose(linear.rmatvec(jnp.eye(20)), dense.T, atol=1e-14)


def test_another_start_leads_to_the_same_figure() -> None:
    head = plain(12, 24, 8)
    first = matrix_free_spectrum(head)
    second = matrix_free_spectrum(head, key=jax.random.key(7))
    assert first.kappa == pytest.approx(second.kappa, rel=first.error + second.error)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tolerance": 0.0}, "tolerance = 0.0: must be between 0 and 1"),
        ({"iterations": 0}, "iterations = 0: must be at least 1"),
        ({"block": 1}, "block = 1: must be at least 2"),
        ({"rtol": 1.0}, r"rtol = 1.0: must be in \[0, 1\)"),
    ],
)
def test_options_out_of_range_are_named(options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        matrix_free_spectrum(plain(), **options)


@pytest.mark.slow
@hypothesis.given(
    count=st.integers(1, 9), width=st.integers(1, 12), dim=st.integers(1, 5), seed=st.integers(0, 9)
)
@hypothesis.settings(max_examples=6)
def test_heads_of_any_shape_agree(count: int, width: int, dim: int, seed: int) -> None:
    head = plain(count, width, dim, seed)
    record, values = matrix_free_spectrum(reduce_width(head)), dense_values(head)
    if record.converged:
        assert_agrees(record, values)
    else:
        assert record.kappa <= values[0] / values[-1] * (1 + 1e-9)
