"""Orthonormal columns from Gaussian ones: matrix products where that is safe, QR elsewhere.

Both give a matrix that is uniform (Haar) on the Stiefel manifold, the law of U V^T for a Gaussian
R = U S V^T: the polar factor is U V^T itself, and the Q factor whose R factor has a positive
diagonal has the same law, since there is only one that no rotation changes.

The whole computation, the Gaussian included, is one `indivisible` draw: the same bits on any mesh.
"""

import math
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.initializers._indivisible import indivisible

Matrices = Float[Array, "matrices rows columns"]
Batch = Float[Array, "batch matrices rows columns"]

# A Gaussian matrix has all its singular values within sqrt(rows) +- (sqrt(columns) + t) but with
# probability 2 exp(-t^2/2) (Davidson and Szarek, 2001, theorem 2.13): below 1e-13 for t = 8.
_DEVIATION = 8.0
_LARGEST_CONDITION_NUMBER = 8.0


def singular_value_bounds(rows: int, columns: int) -> tuple[float, float]:
    """Bounds that the singular values of a Gaussian matrix break with probability below 1e-13."""
    spread = math.sqrt(columns) + _DEVIATION
    return math.sqrt(rows) - spread, math.sqrt(rows) + spread


def is_well_conditioned(rows: int, columns: int) -> bool:
    """Whether a Gaussian matrix of this shape keeps its small directions when squared."""
    low, high = singular_value_bounds(rows, columns)
    return low * _LARGEST_CONDITION_NUMBER >= high


def orthonormal_columns(gaussian: Matrices) -> Matrices:
    """Gaussian matrices, rows >= columns, turned into ones with orthonormal columns."""
    rows, columns = gaussian.shape[-2:]
    return (_polar if is_well_conditioned(rows, columns) else _positive_qr)(gaussian)


def _positive_qr(gaussian: Matrices) -> Matrices:
    def one(matrix: Float[Array, "rows columns"]) -> Float[Array, "rows columns"]:
        # Of the R factor only the diagonal is wanted; all of it would cost as much as a small Q.
        packed, tau = jnp.linalg.qr(matrix, mode="raw")
        q = jax.lax.linalg.householder_product(packed.mT, tau)
        return q * jnp.where(jnp.diagonal(packed) < 0, -1, 1).astype(q.dtype)[None]

    # One by one: on CPUs, JAX's LAPACK kernels spread a batch over the threads that also run the
    # (simulated) devices and wait for them, so that eight devices on two cores would wait forever.
    return jax.lax.map(one, gaussian)


def _polar(gaussian: Matrices) -> Matrices:
    """R (R^T R)^{-1/2} by the coupled Newton-Schulz iteration on the small Gram matrix.

    The iteration runs on columns x columns matrices only; the tall matrix is touched four times.
    """
    rows, columns = gaussian.shape[-2:]
    low, high = singular_value_bounds(rows, columns)
    scale = (low**2 + high**2) / 2
    gram = _matmul(gaussian.mT, gaussian) / scale
    steps = _newton_schulz_steps(low**2 / scale, float(jnp.finfo(gaussian.dtype).eps) ** 0.5)
    root = _inverse_square_root(gram, steps) / math.sqrt(scale)
    frame = _matmul(gaussian, root)
    # One step on the tall matrix itself takes the rounding of the Gram matrix out again.
    return _matmul(frame, _newton_schulz_factor(_matmul(frame.mT, frame)))


def _newton_schulz_steps(smallest: float, tolerance: float) -> int:
    """Steps after which an eigenvalue that starts at `smallest` (others up to 2 - it) is near 1."""
    steps = 0
    while 1 - smallest > tolerance:
        smallest *= (1.5 - 0.5 * smallest) ** 2
        steps += 1
    return steps


def _inverse_square_root(gram: Matrices, steps: int) -> Matrices:
    # The first step starts from the identity, and the last need not update the matrix itself.
    root = _newton_schulz_factor(gram)
    matrix = _matmul(_matmul(root, gram), root)
    for _ in range(steps - 2):
        factor = _newton_schulz_factor(matrix)
        matrix = _matmul(_matmul(factor, matrix), factor)
        root = _matmul(root, factor)
    return _matmul(root, _newton_schulz_factor(matrix))


def _newton_schulz_factor(gram: Matrices) -> Matrices:
    return 1.5 * jnp.eye(gram.shape[-1], dtype=gram.dtype)[None] - 0.5 * gram


def _matmul(left: Matrices, right: Matrices) -> Matrices:
    # The default precision of accelerators multiplies in bfloat16 or TF32.
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _draw(keys: Array, shape: tuple[int, int, int], dtype: Any) -> Batch:
    matrices = jax.vmap(lambda key: jax.random.normal(key, shape, dtype))(keys)
    return orthonormal_columns(matrices.reshape(-1, *shape[1:])).reshape(matrices.shape)


def orthonormal(key: Array, shape: tuple[int, int, int], dtype: Any) -> Matrices:
    """Draws matrices with orthonormal columns, uniform over all such matrices.

    Args:
        key: one key, typed or raw.
        shape: (matrices, rows, columns) with rows >= columns.
        dtype: float32 or float64.

    Returns:
        Matrices with W^T W = I to a few units of rounding; the same bits on any mesh of devices.
    """
    return indivisible(_draw, key, tuple(shape), jnp.dtype(dtype))
