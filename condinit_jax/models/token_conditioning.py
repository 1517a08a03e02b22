"""Tokens made better conditioned before the first block: token graying, conditioned embeddings.

All take the token matrix X of each example, tokens by width, by itself; the condition number is
that of X. They have no parameters.

A summary of the paper on token graying has it before the patch embedding; here all of them stand
after the positions are added, where attention's tokens begin.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.models.spectral_map import Gain, spectral_map, svd

Tokens = Float[Array, "*batch length width"]


def gray_svd(tokens: Tokens, exponent: float) -> Tokens:
    """Raises the singular values, relative to the largest, to a power: token graying by SVD.

    X = U S V^T becomes U (S / max S)^e V^T, so that log kappa is multiplied by e and the largest
    singular value becomes 1 (Ji et al., Always Skip Attention, https://arxiv.org/abs/2505.01996).
    Gradients go through all of it, max S included.

    x^e has an infinite slope at 0. Therefore ratios below max(length, width) times the dtype's
    epsilon, which are rounding errors or zero, are multiplied by a constant instead, the one that
    continues the power: a rank-deficient X keeps its rank, and its gradient is finite.

    The formula, and e = 0.95 for the DCT, 0.6 to 0.7 the best of 0.5 to 0.9 for the SVD, were
    read in a summary; whether the paper's gradients pass through max S, not confirmed.

    Args:
        tokens: X (..., length, width).
        exponent: e, in (0, 1]; 1 only divides by max S.

    Returns:
        Tokens of the same shape and dtype, computed in float32 at least.

    Example:
        >>> tokens = jnp.diag(jnp.array([8.0, 2.0]))
        >>> print(gray_svd(tokens, 0.5))
        [[1.  0. ]
         [0.  0.5]]
    """
    wide = _wide(tokens)
    return spectral_map(wide, _power(exponent, wide)).astype(tokens.dtype)


def gray_dct(tokens: Tokens, exponent: float) -> Tokens:
    """Raises the cosine coefficients, relative to the largest, to a power: token graying by DCT.

    With C the orthonormal DCT-II of X over tokens and over width, every coefficient c becomes
    sign(c) |c / max |C||^e, and the inverse transform follows. The paper gives this in place of the
    SVD, which it approximates at a small cost (Ji et al., https://arxiv.org/abs/2505.01996). Here
    the largest is over all coefficients of an example, and gradients pass through it. Coefficients
    near 0 are treated as singular values are in `gray_svd`.

    That the transform is D X D^T, over both axes, was read in a summary; the DCT's normalisation,
    and the largest per example rather than per frequency, are not confirmed.

    Args:
        tokens: X (..., length, width).
        exponent: e, in (0, 1]; the paper's is 0.95.

    Returns:
        Tokens of the same shape and dtype, computed in float32 at least.

    Example:
        >>> print(gray_dct(jnp.ones((2, 2)), 0.5).round(3))
        [[0.5 0.5]
         [0.5 0.5]]
    """
    wide = _wide(tokens)
    axes = (-2, -1)
    spectrum = jax.scipy.fft.dctn(wide, axes=axes, norm="ortho")
    largest = jnp.max(jnp.abs(spectrum), axis=axes, keepdims=True)
    ratios = spectrum / jnp.where(largest > 0, largest, 1.0)
    grayed = ratios * _power(exponent, wide)(jnp.abs(ratios))
    return jax.scipy.fft.idctn(grayed, axes=axes, norm="ortho").astype(tokens.dtype)


def embedded(tokens: Tokens) -> Tokens:
    """Adds the correction that brings kappa to 2 or less: conditioned embedded tokens.

    X = U S V^T becomes X + C with C = max(S) U V^T: the singular values are s + max S, their ratio
    at most 2 (Saratchandran and Lucey, https://arxiv.org/abs/2505.12789, Theorem 4.4). If X lacks
    rank, C depends on the singular vectors that the SVD happens to give for the zeros.

    C is a constant to the gradient, which is therefore that of X alone. The paper's summary calls C
    a correction computed by SVD in every forward pass, without parameters; whether its gradient is
    taken is not confirmed. Its derivative grows as kappa(X) and does not exist where X lacks rank.

    Args:
        tokens: X (..., length, width).

    Returns:
        Tokens of the same shape and dtype, computed in float32 at least.

    Example:
        >>> print(embedded(jnp.diag(jnp.array([3.0, 1.0]))))
        [[6. 0.]
         [0. 4.]]
    """
    wide = _wide(tokens)
    left, values, right = svd(jax.lax.stop_gradient(wide))
    scaled = left * values[..., None, :1]
    correction = jnp.matmul(scaled, right, precision=jax.lax.Precision.HIGHEST)
    return (wide + correction).astype(tokens.dtype)


TOKEN_CONDITIONING: Mapping[str, Callable[[Tokens, float], Tokens]] = MappingProxyType(
    {
        "none": lambda tokens, exponent: tokens,
        "gray_svd": gray_svd,
        "gray_dct": gray_dct,
        "embedded": lambda tokens, exponent: embedded(tokens),
    }
)
"""By the name that a model's `token_conditioning` gives: (tokens, exponent) to tokens."""


def _wide(tokens: Tokens) -> Tokens:
    """In float32 at least: bfloat16 has neither an SVD nor a Fourier transform."""
    return tokens.astype(jnp.promote_types(tokens.dtype, jnp.float32))


def _power(exponent: float, tokens: Tokens) -> Gain:
    """x^(exponent - 1), constant below the rounding errors of these tokens' spectrum."""
    floor = max(tokens.shape[-2:]) * float(jnp.finfo(tokens.dtype).eps)
    return lambda ratios: jnp.maximum(ratios, floor) ** (exponent - 1)
