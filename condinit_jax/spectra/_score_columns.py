r"""The query and key columns of J in fewer, by way of the score matrix.

Without query and key maps and query bias, W_Q and W_K reach the output only through B = W_Q W_K^T,
of which token i's output has the derivative x_i^T (x) N_i. The map T from (dW_Q, dW_K) to dB obeys
T T^T = W_Q W_Q^T (x) I + I (x) W_K W_K^T, so that with W_Q = U S ..., W_K = U' S' ... the columns

    (s_a^2 + s'_b^2)^(1/2) (U^T x_i)_a (N_i U')_b,  one for each pair (a, b),

have the same Gram matrix J_Q J_Q^T + J_K J_K^T. There are at most D E of them, none where both s_a
and s'_b are zero: d (D + E) less the gauge directions. Nothing is squared: roots of sums of squares
of singular values.
"""

from typing import Any

import numpy as np
from jaxtyping import Array, Float

from condinit_jax.spectra._factors import Factors, slices, value_columns
from condinit_jax.spectra._head import Head, namespace


def has_score_columns(head: Head) -> bool:
    """Whether a head of host arrays reads its query and key kernels through their product alone."""
    biased = head.query_bias is not None and bool(np.any(head.query_bias))
    return head.query_map is None and head.key_map is None and not biased


def score_columns(
    head: Head, parts: Factors, blocks: int = 1
) -> list[Float[Array, "rows some_columns"]]:
    """Columns with the singular values of J, in some blocks.

    Args:
        head: A head with `has_score_columns`.
        parts: Its factors.
        blocks: In about how many blocks; more of them take less memory one at a time.

    Returns:
        Matrices of N v rows; side by side they have the singular values of J, but for zeros.
    """
    xp = namespace(parts)
    assert parts.key_side is not None
    rows = parts.tokens.shape[0] * head.value.shape[1]
    query_basis, query_values = _left(xp, head.query)
    key_basis, key_values = _left(xp, head.key)
    weights = xp.hypot(query_values[:, None], key_values[None])
    tokens, key_side = parts.tokens @ query_basis, parts.key_side @ key_basis

    pieces = []
    used, key_used = min(head.query.shape), min(head.key.shape)
    for first, last, stop in ((0, used, len(key_basis)), (used, len(query_basis), key_used)):
        for part in _parts(last - first, blocks):
            chosen = slice(first + part.start, first + part.stop)
            scaled = tokens[:, chosen, None] * weights[None, chosen, :stop]
            piece = xp.einsum("iab,ivb->ivab", scaled, key_side[:, :, :stop])
            pieces.append(piece.reshape(rows, -1))
    for part in _parts(parts.context.shape[1], blocks):
        pieces.append(value_columns(parts, part))
    return pieces


def _left(xp: Any, kernel: Array) -> tuple[Array, Array]:
    """All left singular vectors of a kernel, and as many singular values, zeros among them."""
    left, values, _ = xp.linalg.svd(kernel, full_matrices=True)
    return left, xp.concatenate([values, xp.zeros(len(left) - len(values), values.dtype)])


def _parts(count: int, blocks: int) -> list[slice]:
    return [part for part in slices(count, blocks) if part.stop > part.start]
