"""Singular values of J with the help of its Gram matrix: cheap, and of half the digits.

Its Cholesky factor only preconditions the Davidson iteration on J itself, which has all of them.
"""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.spectra._davidson import Extreme
from condinit_jax.spectra._factors import factors
from condinit_jax.spectra._gram import column_gram, row_gram
from condinit_jax.spectra._head import Head
from condinit_jax.spectra._null_space import NullSpace
from condinit_jax.spectra._tall_side import Side, null_part, smallest_value, tall_side


@functools.partial(jax.jit, static_argnames=("side", "factor_dtype", "key_slices"))
def gram_smallest(
    head: Head,
    null: NullSpace | None,
    sigma_max: float,
    shift: float,
    tolerance: float,
    *,
    side: Side,
    factor_dtype: str = "float64",
    key_slices: int = 1,
) -> Extreme:
    """The smallest singular value of J by a Cholesky factor of its Gram matrix.

    Args:
        head: A head of reduced width, float64.
        null: On the column side, what J is known not to see, or None.
        sigma_max: The largest singular value.
        shift: Added to the diagonal, relative to sigma_max^2, so that the factor exists.
        tolerance: On the relative change.
        side: Which Gram matrix.
        factor_dtype: dtype of the Gram matrix and its factor; that of J and of the answer is
            float64 whatever it is.
        key_slices: See `row_gram`.

    Returns:
        The value; NaN where the shifted Gram matrix is not positive definite in `factor_dtype`.
    """
    parts = jax.tree.map(lambda part: part.astype(factor_dtype), factors(head))
    gram = row_gram(parts, key_slices) if side == "rows" else column_gram(parts)
    if null is not None:
        eye = jnp.eye(len(gram), dtype=head.tokens.dtype)
        gram = gram + (sigma_max**2 * null_part(head, null, eye)).astype(gram.dtype)
    diagonal = jnp.arange(len(gram))
    gram = gram.at[diagonal, diagonal].add(jnp.asarray(shift * sigma_max**2, gram.dtype))
    lower = jax.lax.linalg.cholesky(gram, symmetrize_input=False)

    def solve(columns: Array) -> Array:
        # Their length is of no interest, and float32 would not hold a small one's square.
        columns = columns / jnp.max(jnp.abs(columns), axis=0)
        half = jax.lax.linalg.triangular_solve(
            lower, columns.astype(lower.dtype), left_side=True, lower=True
        )
        return jax.lax.linalg.triangular_solve(
            lower, half, left_side=True, lower=True, transpose_a=True
        ).astype(columns.dtype)

    return smallest_value(
        tall_side(head, side, null, sigma_max), solve, head.tokens.dtype, tolerance
    )


@functools.partial(jax.jit, static_argnames=("side", "key_slices"))
def gram_values(head: Head, *, side: Side, key_slices: int = 1) -> Float[Array, " values"]:
    """Every singular value of J as the root of an eigenvalue of its Gram matrix, largest first.

    Those below 1e-8 of the largest are noise.
    """
    parts = factors(head)
    gram = row_gram(parts, key_slices) if side == "rows" else column_gram(parts)
    values = jax.lax.linalg.eigh(gram, symmetrize_input=False)[1]
    return jnp.sqrt(jnp.maximum(values, 0.0))[::-1]
