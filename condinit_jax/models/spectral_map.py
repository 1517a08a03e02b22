"""A function of a matrix's singular values, with a derivative that equal and zero ones do not harm.

Automatic differentiation of an SVD divides by differences of singular values, although the maps of
interest have derivatives where these are equal. With X = U S V^T and Y = U f(S) V^T, f(0) = 0, and
G = U^T dX V, the derivative (Daleckii and Krein's, of the symmetric matrix [[0, X], [X^T, 0]]) is

    dY = U (D1 * sym(G) + D2 * skew(G)) V^T
         + (I - U U^T) dX V Q V^T + U Q U^T dX (I - V V^T),

    D1_ij = (f_i - f_j) / (s_i - s_j), its limit f'(s_i) where s_i = s_j,
    D2_ij = (f_i + f_j) / (s_i + s_j),      Q = diag(f_i / s_i),

where * is the product of entries. It is self-adjoint, so that a cotangent is pulled back alike.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

Gain = Callable[[Float[Array, "..."]], Float[Array, "..."]]
"""A function of numbers in [0, 1], applied to each alone; it and its slope are finite, at 0 too."""

_matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


def svd(
    matrices: Float[Array, "*batch rows columns"],
) -> tuple[
    Float[Array, "*batch rows rank"],
    Float[Array, "*batch rank"],
    Float[Array, "*batch rank columns"],
]:
    """Takes thin SVDs, on CPUs one after the other.

    Batched LAPACK calls can wait for each other forever on simulated CPU devices, so that CPUs loop
    over the batch; other platforms take it at once. No gradient is meant to go through this.

    Args:
        matrices: (..., rows, columns), float32 or float64.

    Returns:
        U, the singular values in falling order, and V^T, with rank = min(rows, columns).

    Example:
        >>> _, values, _ = svd(jnp.diag(jnp.array([1.0, 3.0]))[None])
        >>> print(values)
        [[3. 1.]]
    """
    thin = functools.partial(jnp.linalg.svd, full_matrices=False)
    batch, shape = matrices.shape[:-2], matrices.shape[-2:]
    parts = jax.lax.platform_dependent(
        matrices.reshape(-1, *shape), cpu=lambda flat: jax.lax.map(thin, flat), default=thin
    )
    left, values, right = (part.reshape(*batch, *part.shape[1:]) for part in parts)
    return left, values, right


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def spectral_map(
    matrices: Float[Array, "*batch rows columns"], gain: Gain
) -> Float[Array, "*batch rows columns"]:
    """Multiplies every singular value, relative to the largest, by a gain that depends on it.

    With X = U S V^T and r_i = s_i / max S, gives Y = U diag(r_i gain(r_i)) V^T. Every f with
    f(0) = 0 and a finite slope there is such a product, and then Y does not depend on which
    singular vectors are taken where singular values are equal or zero. Gradients (reverse mode)
    include that of max S; where several singular values are the largest, the mean of theirs. Both
    are finite for every X, also for X = 0, where Y = 0. Singular values that differ by less than a
    cube root of the dtype's epsilon, relatively, count as equal: there the slope is more exact than
    the quotient of differences. Second derivatives, which GradInit and NIO take, go through JAX's
    rule for the SVD: they need singular values that differ.

    Args:
        matrices: X (..., rows, columns), float32 or float64.
        gain: see `Gain`.

    Returns:
        Y, of the shape and dtype of X.

    Example:
        >>> root = lambda ratios: jnp.maximum(ratios, 1e-6) ** -0.5
        >>> print(spectral_map(jnp.diag(jnp.array([4.0, 1.0])), root).round(4))
        [[1.  0. ]
         [0.  0.5]]
    """
    return _forward(matrices, gain)[0]


def _forward(matrices: Array, gain: Gain) -> tuple[Array, tuple[Array, Array, Array]]:
    left, values, right = svd(matrices)
    ratios, _ = _ratios(values)
    return _matmul(left * (ratios * gain(ratios))[..., None, :], right), (left, values, right)


def _ratios(values: Array) -> tuple[Array, Array]:
    """Singular values over their largest, and that; all 0 over 1 where the matrix is zero."""
    largest = values[..., :1]
    largest = jnp.where(largest > 0, largest, 1.0)
    return values / largest, largest


def _backward(
    gain: Gain, kept: tuple[Array, Array, Array], cotangent: Array
) -> tuple[Float[Array, "*batch rows columns"]]:
    left, values, right = kept
    ratios, largest = _ratios(values)
    left_t, right_t = jnp.swapaxes(left, -1, -2), jnp.swapaxes(right, -1, -2)
    gains = gain(ratios)
    _, slopes = jax.jvp(lambda r: r * gain(r), (ratios,), (jnp.ones_like(ratios),))
    symmetric, skew = _quotients(ratios, gains, gain)

    on_right = _matmul(cotangent, right_t)
    inner = _matmul(left_t, on_right)
    inner_t = jnp.swapaxes(inner, -1, -2)
    core = (symmetric * (inner + inner_t) + skew * (inner - inner_t)) / 2
    core = core / largest[..., None]

    # X enters through max S too: d ratios = -ratios d(max S) / max S.
    diagonal = jnp.diagonal(inner, axis1=-2, axis2=-1)
    pull = -jnp.sum(diagonal * ratios * slopes, axis=-1, keepdims=True) / largest
    rounding = max(cotangent.shape[-2:]) * jnp.finfo(values.dtype).eps
    tied = (ratios >= 1 - rounding).astype(values.dtype)
    tied = tied / jnp.maximum(tied.sum(axis=-1, keepdims=True), 1)
    core = core + (pull * tied)[..., None] * jnp.eye(values.shape[-1], dtype=values.dtype)
    pulled = _matmul(_matmul(left, core), right)

    weights = gains / largest
    if left.shape[-2] > left.shape[-1]:
        outside = on_right - _matmul(left, inner)
        pulled = pulled + _matmul(outside * weights[..., None, :], right)
    if right.shape[-1] > right.shape[-2]:
        outside = _matmul(left_t, cotangent) - _matmul(inner, right)
        pulled = pulled + _matmul(left, outside * weights[..., :, None])
    return (pulled,)


def _quotients(ratios: Array, gains: Array, gain: Gain) -> tuple[Array, Array]:
    """D1 and D2 of all pairs, of f(r) = r gain(r)."""
    column, row = ratios[..., :, None], ratios[..., None, :]
    total = column + row
    mean_gain = (gains[..., :, None] + gains[..., None, :]) / 2
    products = ratios * gains
    skew = (products[..., :, None] + products[..., None, :]) / jnp.where(total > 0, total, 1.0)
    skew = jnp.where(total > 0, skew, mean_gain)

    middle = total / 2
    _, slope = jax.jvp(lambda r: r * gain(r), (middle,), (jnp.ones_like(middle),))
    difference = column - row
    equal = jnp.abs(difference) <= jnp.finfo(ratios.dtype).eps ** (1 / 3) * middle
    symmetric = (products[..., :, None] - products[..., None, :]) / jnp.where(
        equal, 1.0, difference
    )
    return jnp.where(equal, slope, symmetric), skew


spectral_map.defvjp(_forward, _backward)
