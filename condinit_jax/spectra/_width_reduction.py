"""Shortening tokens without changing a singular value of the Jacobian.

Attention sees tokens X only through X W. With X = Y Z^T, Z of orthonormal columns, Y and Z^T W have
the same product, and J' = J (Z (x) I) has the singular values of J, less some that are zero. So the
width D falls to the rank of X, at most min(N, D), before anything large is built.
"""

import dataclasses
from typing import Any

import numpy as np

from condinit_jax.spectra._head import Head


def reduce_width(head: Head) -> Head:
    """The same head over tokens of the smallest width.

    Args:
        head: Host arrays, float64. Tokens and context are reduced each by their own rank.

    Returns:
        A head whose tokens are (N, rank of X), with as many rows in its query kernel, and likewise
        for the context and its kernels, always given; every other field is the same.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> wide = Head(rng.normal(size=(3, 50)), *rng.normal(size=(3, 50, 4)))
        >>> reduce_width(wide).query.shape
        (3, 4)
    """
    tokens, basis = shorten(head.tokens)
    seen = _seen(head)
    if head.context is None and seen.all():
        context, context_basis = tokens, basis
    else:
        # What no query sees may be anything, and must not drown the rest; a copy of what is seen
        # leaves every map defined.
        context = np.where(seen[:, None], head.keys_from, head.keys_from[np.argmax(seen)])
        context, context_basis = shorten(context)
    return dataclasses.replace(
        head,
        tokens=tokens,
        context=context,
        query=basis.T @ head.query,
        key=context_basis.T @ head.key,
        value=context_basis.T @ head.value,
    )


def _seen(head: Head) -> Any:
    """Which context tokens some query may attend to."""
    seen = np.ones((len(head.tokens), len(head.keys_from)), bool)
    if head.mask is not None:
        seen = seen & np.asarray(head.mask)
    if head.logit_bias is not None:
        seen = seen & (np.asarray(head.logit_bias) > -np.inf)
    return np.any(seen, axis=0)


def shorten(tokens: Any) -> tuple[Any, Any]:
    """Y (N, r) and Z (D, r), host arrays, with tokens = Y Z^T, Z^T Z = I and r the rank."""
    left, values, right = np.linalg.svd(tokens, full_matrices=False)
    # What is cut is no larger than the rounding that an SVD of J would commit itself.
    limit = max(tokens.shape) ** 0.5 * np.finfo(values.dtype).eps * values[0]
    rank = max(int(np.count_nonzero(values > limit)), 1)
    return left[:, :rank] * values[:rank], right[:rank].T
