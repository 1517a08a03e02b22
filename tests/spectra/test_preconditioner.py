"""How near the preconditioners come to the inverse of the Gram matrix, and that they are valid."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.spectra import Head
from condinit_jax.spectra._null_space import null_space, project_out
from condinit_jax.spectra._preconditioner import (
    column_preconditioner,
    join_kernels,
    row_preconditioner,
    split_kernels,
)
from tests.spectra.softmax_heads import dense_jacobian, rms_norm, rotary


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def random_head(count: int, width: int, dim: int, scale: float, **fields: object) -> Head:
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((count, width))
    return Head(tokens, *scale * rng.standard_normal((3, width, dim)), **fields)


@jax.jit
def applied_by_rows(head: Head, columns: jax.Array) -> jax.Array:
    return row_preconditioner(head)(columns)


@jax.jit
def applied_by_columns(head: Head, columns: jax.Array) -> jax.Array:
    return column_preconditioner(head)(columns)


def spread(preconditioner: np.ndarray, gram: np.ndarray) -> float:
    """Condition number of the preconditioned Gram matrix, over its non-zero part."""
    values, vectors = np.linalg.eigh(preconditioner)
    root = vectors * np.sqrt(np.maximum(values, 0))
    found = np.linalg.eigvalsh(root.T @ gram @ root)
    found = found[found > 1e-10 * found[-1]]
    return found[-1] / found[0]


MAPS = {
    "plain": {},
    "causal": {"mask": np.tri(8, dtype=bool)},
    "query and key norms": {
        "query_map": jax.tree_util.Partial(rms_norm, 1.0),
        "key_map": jax.tree_util.Partial(rms_norm, 1.0),
    },
    "rotary": {
        "query_map": jax.tree_util.Partial(rotary), "key_map": jax.tree_util.Partial(rotary),
    },
    "cross": {"context": np.random.default_rng(1).standard_normal((11, 16))},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("side", ["rows", "columns"])
@pytest.mark.parametrize("name", MAPS)
def test_preconditioners_are_symmetric_positive_definite(name: str, side: str) -> None:
    head = random_head(8, 16, 4, 0.25, **MAPS[name])
    dense = dense_jacobian(head)
    applied: Callable = applied_by_rows if side == "rows" else applied_by_columns
    size = dense.shape[0] if side == "rows" else dense.shape[1]
    matrix = np.asarray(applied(head, jnp.eye(size)))
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-9 * np.abs(matrix).max())
    assert np.linalg.eigvalsh(matrix)[0] > 0


@pytest.mark.parametrize("scale", [0.02, 0.25])
@pytest.mark.parametrize("name", MAPS)
def test_row_preconditioner_flattens_the_gram_matrix(name: str, scale: float) -> None:
    head = random_head(8, 16, 4, scale, **MAPS[name])
    dense = dense_jacobian(head)
    gram = dense @ dense.T
    before = spread(np.eye(len(gram)), gram)
    after = spread(np.asarray(applied_by_rows(head, jnp.eye(len(gram)))), gram)
    # Small kernels attend uniformly, and what is neglected is then small beside what is not.
    uniform = scale == 0.02 and name in ("plain", "causal", "cross")
    assert after < (5 if uniform else before / 3)


def test_row_preconditioner_is_exact_for_one_value_coordinate() -> None:
    rng = np.random.default_rng(0)
    kernels = (rng.standard_normal((16, 4)), rng.standard_normal((16, 4)))
    head = Head(rng.standard_normal((8, 16)), *kernels, rng.standard_normal((16, 1)))
    dense = dense_jacobian(head)
    product = np.asarray(applied_by_rows(head, jnp.asarray(dense @ dense.T)))
    np.testing.assert_allclose(product, np.eye(8), atol=1e-4)


def test_column_preconditioner_inverts_the_value_kernels_block() -> None:
    head = random_head(40, 6, 3, 0.4)
    dense = dense_jacobian(head)[:, 36:]
    columns = np.concatenate([np.zeros((36, 18)), dense.T @ dense])
    product = np.asarray(applied_by_columns(head, jnp.asarray(columns)))
    np.testing.assert_allclose(product[36:], np.eye(18), atol=1e-9)
    assert not product[:36].any()


def test_column_preconditioner_flattens_the_gram_matrix_beside_the_null_space() -> None:
    head = random_head(40, 6, 3, 0.1)
    dense = dense_jacobian(head)
    null, nullity = null_space(head)
    shapes = [kernel.shape for kernel in head.kernels]
    eye = jnp.eye(dense.shape[1])

    def project(columns: jax.Array) -> jax.Array:
        return join_kernels(project_out(null, split_kernels(columns, shapes)))

    inverse = np.asarray(project(applied_by_columns(head, project(eye))))
    gram = dense.T @ dense
    assert np.linalg.matrix_rank(inverse) == dense.shape[1] - nullity
    assert spread(inverse, gram) < spread(np.eye(len(gram)), gram) / 30


def test_kernels_are_split_and_joined_in_order() -> None:
    columns = jnp.arange(36.0).reshape(18, 2)
    blocks = split_kernels(columns, [(3, 2), (2, 2), (4, 2)])
    assert [block.shape for block in blocks] == [(2, 3, 2), (2, 2, 2), (2, 4, 2)]
    np.testing.assert_array_equal(join_kernels(blocks), columns)
