"""J as a tall map from its shorter side, for iterations towards either end of its spectrum."""

import functools
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.spectra._davidson import Extreme, extreme_singular_value
from condinit_jax.spectra._head import Head, head_output, project
from condinit_jax.spectra._linear_map import BlockMap, LinearMap, linear_map
from condinit_jax.spectra._null_space import NullSpace, project_out
from condinit_jax.spectra._preconditioner import join_kernels, split_kernels

Side = Literal["rows", "columns"]
"""On which side of J the square matrix stands: J J^T or J^T J."""

BLOCK = 2
"""Columns per step of the iterations: pairs of equal values do no harm."""

LARGEST_STEPS = 30
SMALLEST_STEPS = 24


class Survey(NamedTuple):
    """What is known of a spectrum before anything is factorised.

    Attributes:
        largest: The largest singular value.
        smallest_at_most: An upper bound of the smallest one on the row side.
    """

    largest: Extreme
    smallest_at_most: Float[Array, ""]


def tall_side(
    head: Head, side: Side, null: NullSpace | None = None, scale: Array | float = 1
) -> LinearMap:
    """T with T^T T = the Gram matrix of the side: J^T, or J with its null space filled in.

    Args:
        head: A head of reduced width, float64.
        side: Which of the two.
        null: On the column side, known null directions of J, or None.
        scale: The singular value that they are given. It should lie between the extremes, so that
            these stay what they are.

    Returns:
        The products; J's by differentiating the head.
    """
    jacobian = linear_map(
        functools.partial(head_output, head),
        head.kernels,
        batch_size=max(BLOCK, head.value.shape[1]),
    )
    if side == "rows":
        return jacobian.transposed()
    if null is None:
        return jacobian
    rows, columns = jacobian.rows, jacobian.columns

    def filled(vectors: Array) -> Array:
        return jnp.concatenate([jacobian.matvec(vectors), scale * null_part(head, null, vectors)])

    def filled_adjoint(vectors: Array) -> Array:
        return jacobian.rmatvec(vectors[:rows]) + scale * null_part(head, null, vectors[rows:])

    return LinearMap(filled, filled_adjoint, rows + columns, columns)


def null_part(
    head: Head, null: NullSpace, columns: Float[Array, "columns block"]
) -> Float[Array, "columns block"]:
    """The part of parameter vectors that J is known not to see; an orthogonal projection."""
    shapes = [kernel.shape for kernel in head.kernels]
    return columns - join_kernels(project_out(null, split_kernels(columns, shapes)))


def largest_value(tall: LinearMap, dtype: jnp.dtype, tolerance: float) -> Extreme:
    """The largest singular value of a tall map."""
    return extreme_singular_value(
        tall.matvec,
        tall.rmatvec,
        _start(tall.columns, dtype),
        largest=True,
        steps=LARGEST_STEPS,
        tolerance=tolerance,
    )


def smallest_value(tall: LinearMap, solve: BlockMap, dtype: jnp.dtype, tolerance: float) -> Extreme:
    """The smallest singular value of a tall map T; `solve` is near the inverse of T^T T."""
    return extreme_singular_value(
        tall.matvec,
        tall.rmatvec,
        _start(tall.columns, dtype),
        largest=False,
        precondition=solve,
        steps=SMALLEST_STEPS,
        tolerance=tolerance,
    )


def _start(size: int, dtype: jnp.dtype) -> Array:
    # The answer does not depend on where the iteration starts, so that a fixed start is no loss.
    return jax.random.normal(jax.random.key(0), (size, BLOCK), dtype)


@jax.jit
def survey(head: Head, tolerance: float) -> Survey:
    """The largest singular value of J, and a bound of the smallest that says what to expect.

    Where tokens are nearly equal, or every query attends to the same mixture of them, the mixed
    tokens P Y are nearly dependent, and J is small along their least left singular vector: its
    rows there bound the smallest singular value from above.

    Args:
        head: A head of reduced width, float64.
        tolerance: On the largest value.

    Returns:
        The survey.
    """
    tall = tall_side(head, "rows")
    parts = project(head)
    left, _, _ = jnp.linalg.svd(parts.weights @ head.keys_from, full_matrices=True)
    eye = jnp.eye(head.value.shape[1], dtype=left.dtype)
    rows = tall.matvec(jnp.kron(left[:, -1:], eye))
    values = jnp.linalg.svd(jnp.linalg.qr(rows, mode="r"), compute_uv=False)
    return Survey(largest_value(tall, left.dtype, tolerance), values[-1])
