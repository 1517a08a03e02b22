"""Extreme singular values of a linear map by a block Davidson method that never squares.

The subspace grows by preconditioned residuals, as in Davidson's method for eigenvalues of T^T T,
but its best approximations are singular values of T times the basis, so that rounding enters with
eps * kappa(T), not its square. A preconditioner such as a Cholesky factor of a Gram matrix, good to
half the digits, thus leads to full ones. With the identity it is a block Lanczos iteration.

`scipy.sparse.linalg.lobpcg`, `jax.experimental.sparse.linalg.lobpcg_standard` and matfree's Lanczos
methods work on T^T T, or take no preconditioner, or do not run inside `jit`.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from condinit_jax.spectra._linear_map import BlockMap

SPANNED = 64
"""Up to this dimension the basis may grow to the whole space, a column at a time."""


class Extreme(NamedTuple):
    """An extreme singular value.

    Attributes:
        sigma: The value; of a smallest one an upper bound, of a largest one a lower bound.
        residual: |T^T w - sigma u|, w = T u / sigma: a singular value lies within it of `sigma`.
            For small ones rounding alone makes it eps * kappa * sigma_max.
        change: Relative change of `sigma` over the last two steps, which sees further down.
        vector: u, (n,).
        steps: Steps taken.
        converged: Whether the residual, relative to `sigma`, or the change fell to the tolerance.
    """

    sigma: Float[Array, ""]
    residual: Float[Array, ""]
    change: Float[Array, ""]
    vector: Float[Array, " n"]
    steps: Int[Array, ""]
    converged: Bool[Array, ""]


class _State(NamedTuple):
    basis: Array
    images: Array
    used: Array
    best: Extreme
    before: Array
    residuals: Array


def extreme_singular_value(
    forward: BlockMap,
    adjoint: BlockMap,
    start: Float[Array, "n block"],
    *,
    largest: bool,
    precondition: BlockMap | None = None,
    steps: int = 12,
    tolerance: float = 1e-7,
) -> Extreme:
    """The largest or smallest singular value of T, an (m, n) map with m >= n.

    Args:
        forward: (n, k) -> (m, k), T applied to columns.
        adjoint: (m, k) -> (n, k), T^T.
        start: First basis, (n, block); random columns do.
        largest: Which end.
        precondition: (n, k) -> (n, k), close to the inverse of T^T T up to a factor; None for I.
        steps: Most steps; the basis holds (steps + 1) * block columns, at most n.
        tolerance: On the relative residual or change, whichever is less.

    Returns:
        The extreme value. Runs inside `jit`.
    """
    size = start.shape[0]
    if size <= SPANNED:
        start, steps = start[:, :1], size - 1
    block = start.shape[1]
    steps = min(steps, size // block - 1)
    zero = jnp.zeros((), jnp.int32)
    columns = block * (steps + 1)

    def best_of(basis: Array, images: Array, used: Array, before: Array) -> tuple[Extreme, Array]:
        if largest:
            # The large end loses nothing by squaring, and this is much cheaper than a QR.
            squares, columns_of = jnp.linalg.eigh(images.T @ images)
            values, rotations = jnp.sqrt(jnp.maximum(squares, 0.0)), columns_of.T
            order = columns - 1 - jnp.arange(block)
        else:
            triangle = jnp.linalg.qr(images, mode="r")
            # Columns not yet in use have zero images; they must not pass for small values.
            unused = jnp.arange(columns) >= used
            scale = jnp.max(jnp.abs(triangle)) * columns
            _, values, rotations = jnp.linalg.svd(
                triangle[:columns] + jnp.diag(jnp.where(unused, scale, 0.0))
            )
            order = columns - 1 - jnp.arange(block)
        coefficients, sigma = rotations[order].T, values[order]
        vectors, images_of = basis @ coefficients, images @ coefficients
        residuals = adjoint(images_of) - sigma**2 * vectors
        tiny = jnp.finfo(sigma.dtype).tiny
        residual = jnp.linalg.norm(residuals[:, 0]) / jnp.maximum(sigma[0], tiny)
        change = jnp.max(jnp.abs(before - sigma[0])) / jnp.maximum(sigma[0], tiny)
        # A basis of the whole space leaves nothing to change.
        change = jnp.where(used >= size, 0.0, change)
        best = Extreme(
            sigma[0],
            residual,
            change,
            vectors[:, 0],
            used // block,
            jnp.minimum(residual / jnp.maximum(sigma[0], tiny), change) <= tolerance,
        )
        return best, residuals

    def add(basis: Array, images: Array, used: Array, columns_: Array) -> tuple[Array, Array]:
        columns_ = columns_ / jnp.maximum(
            jnp.linalg.norm(columns_, axis=0), jnp.finfo(columns_.dtype).tiny
        )
        for _ in range(2):
            columns_ = columns_ - basis @ (basis.T @ columns_)
            columns_, _ = jnp.linalg.qr(columns_)
        put = jax.lax.dynamic_update_slice
        return put(basis, columns_, (zero, used)), put(images, forward(columns_), (zero, used))

    def step(state: _State) -> _State:
        directions = state.residuals if precondition is None else precondition(state.residuals)
        basis, images = add(state.basis, state.images, state.used, directions)
        used = state.used + block
        best, residuals = best_of(basis, images, used, state.before)
        before = jnp.stack([best.sigma, state.before[0]])
        return _State(basis, images, used, best, before, residuals)

    def unfinished(state: _State) -> Array:
        return (state.used < columns) & ~state.best.converged

    # The first step takes the start for residuals, so that the loop's body is compiled only once.
    infinite = jnp.asarray(jnp.inf, start.dtype)
    images = jax.eval_shape(forward, start).shape[0]
    state = _State(
        basis=jnp.zeros((size, columns), start.dtype),
        images=jnp.zeros((images, columns), start.dtype),
        used=zero,
        best=Extreme(infinite, infinite, infinite, start[:, 0], zero, jnp.asarray(False)),
        before=jnp.stack([infinite, infinite]),
        residuals=start,
    )
    return jax.lax.while_loop(unfinished, step, state).best
