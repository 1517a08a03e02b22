import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.spectra import linear_map
from condinit_jax.spectra._linear_map import LinearMap

MATRIX = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_products_are_those_of_the_matrix_of_a_linear_function(batch_size):
    found = linear_map(lambda x: MATRIX @ x, jnp.zeros(7), batch_size=batch_size)
    assert (found.rows, found.columns) == (5, 7)
    np.testing.assert_allclose(found.matvec(jnp.eye(7)), MATRIX, atol=1e-6)
    np.testing.assert_allclose(found.rmatvec(jnp.eye(5)), MATRIX.T, atol=1e-6)


def test_trees_are_raveled_in_their_order():
    at = {"a": jnp.array([2.0, 3.0]), "b": jnp.array(5.0)}
    found = linear_map(lambda tree: (tree["b"] * tree["a"], tree["b"] ** 2), at)
    # d(b a1, b a2, b^2) by (a1, a2, b).
    jacobian = np.array([[5.0, 0.0, 2.0], [0.0, 5.0, 3.0], [0.0, 0.0, 10.0]])
    np.testing.assert_allclose(found.matvec(jnp.eye(3)), jacobian, atol=1e-6)
    np.testing.assert_allclose(found.rmatvec(jnp.eye(3)), jacobian.T, atol=1e-6)


def test_the_transposed_map_changes_sides():
    found = LinearMap(lambda x: MATRIX @ x, lambda x: MATRIX.T @ x, 5, 7).transposed()
    assert (found.rows, found.columns) == (7, 5)
    np.testing.assert_array_equal(found.matvec(np.eye(5, dtype=np.float32)), MATRIX.T)
    assert found.transposed().columns == 7
