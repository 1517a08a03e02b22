"""The smallest singular value of a tall linear map by LOBPCG that never squares the map.

LOBPCG is that of Knyazev (2001) with the orthonormal bases of Hetmaniuk and Lehoucq (2006), but
Rayleigh-Ritz takes singular values of the map's image of the basis, not eigenvalues of a Gram
matrix: rounding enters with eps * kappa where squaring gives eps * kappa**2. Unlike the Davidson
iteration of `_davidson` it keeps three blocks of vectors however long it runs.

No library does it: `jax.experimental.sparse.linalg.lobpcg_standard` knows no preconditioner and no
smallest values, `scipy.sparse.linalg` squares and iterates on the host, and matfree's
bidiagonalisation runs a fixed number of steps without looking at a residual.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from condinit_jax.spectra._linear_map import BlockMap


def identity(columns: Float[Array, "n block"]) -> Float[Array, "n block"]:
    """What stands for a preconditioner or a projector where there is none."""
    return columns


class TallMap(NamedTuple):
    """A linear map B from n dimensions to p >= n, and what is known about it.

    Attributes:
        forward: (n, k) -> (p, k).
        adjoint: (p, k) -> (n, k).
        precondition: (n, k) -> (n, k), symmetric positive definite, near (B^T B)^-1 up to a factor;
            or None.
        project: (n, k) -> (n, k), the orthogonal projector that removes null vectors known
            beforehand.
        nullity: how many dimensions `project` removes.
    """

    forward: BlockMap
    adjoint: BlockMap
    precondition: BlockMap | None = None
    project: BlockMap = identity
    nullity: int = 0


class Smallest(NamedTuple):
    """The smallest singular value that does not count as zero, with what vouches for it.

    Attributes:
        sigma: a Rayleigh-Ritz value, hence an upper bound of the smallest value above the floor.
        zeros: Ritz values up to the floor; there are at least as many singular values, besides the
            `nullity` that was projected out.
        exhausted: whether the whole block went to such values; `sigma` is then one of them.
        residual: norm of (B u - sigma v, B^T v - sigma u) over sigma and the norm of (u, v).
        error: estimated relative error of `sigma`.
        steps: iterations.
    """

    sigma: Float[Array, ""]
    zeros: Int[Array, ""]
    exhausted: Bool[Array, ""]
    residual: Float[Array, ""]
    error: Float[Array, ""]
    steps: Int[Array, ""]


class _Basis(NamedTuple):
    """Orthonormal vectors and their images."""

    vectors: Array
    images: Array


class _State(NamedTuple):
    step: Array
    ritz: _Basis
    previous: _Basis
    values: Array
    residuals: Array
    error: Array


def smallest_singular_value(
    tall: TallMap,
    start: Float[Array, "n block"],
    floor: Float[Array, ""],
    *,
    tolerance: float,
    iterations: int,
) -> Smallest:
    """The smallest singular value above `floor`; runs inside `jit`.

    Args:
        tall: The map. One of fewer dimensions than five blocks is decomposed whole.
        start: Random columns, at least 2. With k of them, clusters of up to k - 1 values do no
            harm, and up to k - 1 unknown zeros are told from the smallest value above `floor`.
        floor: What counts as zero.
        tolerance: On the estimated relative error.
        iterations: At most.

    Returns:
        The value; not converged if `error` exceeds the tolerance.
    """
    dim, block = start.shape
    if dim - tall.nullity < 5 * block:
        return _by_svd(tall, dim, floor)
    state = _iterate(tall, start, floor, tolerance, iterations)
    wanted = _wanted(state.values, floor)
    # A step costs one vector, an iteration a block. Nothing is gained where the value is not found.
    steps = jnp.where(state.error <= tolerance, 2 * iterations, block)
    residual = _certified_residual(tall, state, wanted, tolerance, steps)
    zeros = jnp.sum(state.values <= floor)
    return Smallest(
        sigma=state.values[wanted],
        zeros=zeros,
        exhausted=zeros == block,
        residual=residual / jnp.sqrt(2.0),
        error=_error(residual, state.values, wanted),
        steps=state.step,
    )


def _by_svd(tall: TallMap, dim: int, floor: Array) -> Smallest:
    """The same for a map so small that a few blocks of vectors span it."""
    images = tall.forward(tall.project(jnp.eye(dim, dtype=floor.dtype)))
    values = jnp.linalg.svd(images, compute_uv=False)[: dim - tall.nullity]
    zeros = jnp.sum(values <= floor)
    sigma = values[jnp.maximum(len(values) - 1 - zeros, 0)]
    none = jnp.zeros_like(sigma)
    return Smallest(sigma, zeros, zeros == len(values), none, none, jnp.zeros_like(zeros))


def _iterate(
    tall: TallMap, start: Array, floor: Array, tolerance: float, iterations: int
) -> _State:
    """LOBPCG until the estimated error of the wanted value is below the tolerance."""
    block = start.shape[1]
    noise = _normalised(tall.project(start))
    precondition = tall.precondition or identity

    def assess(step: Array, ritz: _Basis, previous: _Basis, values: Array) -> _State:
        residuals = tall.project(tall.adjoint(ritz.images)) - ritz.vectors * values**2
        wanted = _wanted(values, floor)
        residual, vector = (jnp.take(a, wanted, axis=1) for a in (residuals, ritz.vectors))
        sigma = values[wanted]
        if tall.precondition is None:
            relative = jnp.linalg.norm(residual) / sigma**2
        else:
            # In the norm of (B^T B)^-1, where rounding is eps * kappa and not its square. The
            # preconditioner stands for the inverse, scaled by what it makes of the Ritz vector.
            pair = precondition(jnp.stack([residual, vector], axis=1))
            scale = 1 / (sigma**2 * (vector @ pair[:, 1]))
            relative = jnp.sqrt(jnp.abs(scale * (residual @ pair[:, 0]))) / sigma
        return _State(step, ritz, previous, values, residuals, _error(relative, values, wanted))

    def step(state: _State) -> _State:
        directions = _normalised(tall.project(precondition(state.residuals)))
        # Residuals that have vanished leave room for something new instead of a null column.
        held = jnp.concatenate([state.ritz.vectors, state.previous.vectors], axis=1)
        directions = _orthonormal(directions + 1e-10 * noise, held)
        fresh = _Basis(directions, tall.forward(directions))
        parts = zip(state.ritz, state.previous, fresh, strict=True)
        basis = _Basis(*(jnp.concatenate(part, axis=1) for part in parts))
        values, coefficients = _rayleigh_ritz(basis.images)
        # Directions orthogonal to the new vectors that, with them, span the old ones.
        mixing, _ = jnp.linalg.qr(coefficients[:block, block:].T)
        others = coefficients[:, block:] @ mixing
        ritz = _Basis(*(part @ coefficients[:, :block] for part in basis))
        previous = _Basis(*(part @ others for part in basis))
        return assess(state.step + 1, ritz, previous, values[:block])

    def unfinished(state: _State) -> Array:
        # The estimate is not the measured residual, by which success is judged in the end.
        return (state.step < iterations) & (state.error > tolerance / 4)

    vectors = _orthonormal(noise)
    images = tall.forward(vectors)
    values, coefficients = _rayleigh_ritz(images)
    others = _orthonormal(tall.project(jnp.roll(noise, 1, axis=0)), vectors)
    return jax.lax.while_loop(
        unfinished,
        step,
        assess(
            jnp.zeros((), int),
            _Basis(vectors @ coefficients, images @ coefficients),
            _Basis(others, tall.forward(others)),
            values,
        ),
    )


def _rayleigh_ritz(images: Array) -> tuple[Array, Array]:
    """Singular values on an orthonormal basis, smallest first, and their vectors' coefficients."""
    _, values, right = jnp.linalg.svd(jnp.linalg.qr(images, mode="r"))
    return values[::-1], right[::-1].T


def _wanted(values: Array, floor: Array) -> Array:
    """Index of the first value that does not count as zero; the last if there is none."""
    return jnp.minimum(jnp.sum(values <= floor), len(values) - 1)


def _error(relative: Array, values: Array, wanted: Array) -> Array:
    """Relative error of a value with this relative residual of (B^T B)^-1.

    It is at most half the residual, and half its square over the gap to the next value, for which
    the next Ritz value stands. No value is within the tolerance of zero.
    """
    following = values[jnp.minimum(wanted + 1, len(values) - 1)]
    gap = jnp.maximum(1 - (values[wanted] / following) ** 2, jnp.finfo(values.dtype).tiny)
    error = jnp.minimum(relative, relative**2 / gap) / 2
    return jnp.where(jnp.isfinite(error), error, jnp.inf)


class _Search(NamedTuple):
    """Conjugate gradients on B^T B y = residual, kept as v = (B u - B y) / sigma."""

    step: Array
    v: Array
    rest: Array
    direction: Array
    energy: Array
    best: Array


def _certified_residual(
    tall: TallMap, state: _State, wanted: Array, tolerance: float, steps: Array
) -> Array:
    """Measured residual of the wanted triplet over sigma, times sqrt(2).

    With v = B u / sigma all of it is B^T v - sigma u, whose rounding grows with kappa**2. Conjugate
    gradients move it into B u - sigma v, where it does not. What counts is measured on the final u
    and v, whatever the preconditioner did.
    """
    precondition = tall.precondition or identity
    sigma = state.values[wanted]
    u = jnp.take(state.ritz.vectors, wanted, axis=1)[:, None]
    image = tall.forward(u)

    def off(v: Array) -> Array:
        return tall.project(tall.adjoint(v)) - sigma * u

    def measured(v: Array, rest: Array) -> Array:
        squares = jnp.sum((image - sigma * v) ** 2) + jnp.sum(rest**2)
        return jnp.sqrt(2 * squares / (1 + jnp.sum(v**2))) / sigma

    def step(search: _Search) -> _Search:
        moved = tall.forward(search.direction)
        v = search.v - search.energy / jnp.sum(moved**2) * moved
        rest = off(v)
        turned = tall.project(precondition(rest))
        energy = jnp.sum(rest * turned)
        direction = turned + energy / search.energy * search.direction
        best = jnp.minimum(search.best, measured(v, rest))
        return _Search(search.step + 1, v, rest, direction, energy, best)

    def unfinished(search: _Search) -> Array:
        wrong = _error(search.best, state.values, wanted) > tolerance / 10
        return (search.step < steps) & wrong & (search.energy > 0)

    v = image / sigma
    rest = off(v)
    direction = tall.project(precondition(rest))
    energy = jnp.sum(rest * direction)
    first = _Search(jnp.zeros((), int), v, rest, direction, energy, measured(v, rest))
    return jax.lax.while_loop(unfinished, step, first).best


def _normalised(columns: Array) -> Array:
    lengths = jnp.linalg.norm(columns, axis=0)
    return columns / jnp.where(lengths > 0, lengths, 1)


def _orthonormal(columns: Array, against: Array | None = None) -> Array:
    """An orthonormal basis of the columns' part orthogonal to the orthonormal `against`."""
    for _ in range(2):
        if against is not None:
            for _ in range(2):
                columns = columns - against @ (against.T @ columns)
        columns, _ = jnp.linalg.qr(_normalised(columns))
    return columns
