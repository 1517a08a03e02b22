"""The non-zero spectrum of the softmax derivative, to full relative accuracy.

Lambda(p) = Diag(p) - p p^T has one zero eigenvalue for the vector 1 and one for every weight that
is zero. The others are the roots of sum_j p_j / (p_j - x), one between each two neighbouring
weights, so that the extremes are found by bisection, without a matrix and without a tolerance that
would have to tell small weights (1e-20 is common where attention is sharp) from zero.
"""

import numpy as np
from jaxtyping import Float

from condinit_jax.spectra._condition_number import ConditionNumber, precision_warning

_HALVINGS = 64  # of the ratio of two float64 numbers, 2^2000 at most, down to 1 + 2^-53


def softmax_derivative_spectrum(weights: Float[np.ndarray, "tokens context"]) -> ConditionNumber:
    """The condition number of the block diagonal matrix of all Lambda(p_i), over its non-zero part.

    Args:
        weights: (N, M), attention weights in float64; each row sums to 1.

    Returns:
        The record, `size` N M. `rank` is exact: the sum over rows of the non-zero weights less one.

    Example:
        >>> record = softmax_derivative_spectrum(np.array([[0.5, 0.5], [0.9, 0.1]]))
        >>> round(record.kappa, 12), record.rank, record.size
        (2.777777777778, 2, 4)
    """
    support = np.count_nonzero(weights, axis=1)
    rank = int(np.maximum(support - 1, 0).sum())
    rows = weights[support > 1]
    kappa, sigma_max, sigma_min = np.inf, 0.0, 0.0
    if rank:
        nonzero = np.where(rows > 0, rows, np.inf)
        sigma_min = float(_root(rows, *np.partition(nonzero, 1, axis=1)[:, :2].T).min())
        sigma_max = float(_root(rows, *np.partition(rows, -2, axis=1)[:, -2:].T).max())
        kappa = sigma_max / sigma_min
    return ConditionNumber(
        kappa=kappa,
        sigma_max=sigma_max,
        sigma_min=sigma_min,
        rank=rank,
        size=weights.size,
        dropped=weights.size - rank,
        rtol=0.0,
        method="secular",
        error=weights.shape[1] * float(np.finfo(np.float64).eps),
        warning=precision_warning(0.0, rank),
    )


def _root(rows: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """For each row of weights, the eigenvalue between two neighbouring ones."""
    with np.errstate(divide="ignore", invalid="ignore"):
        for _ in range(_HALVINGS):
            # Rounding may carry the mean of two numbers past either of them.
            middle = np.clip(np.sqrt(low) * np.sqrt(high), low, high)
            below = (rows / (rows - middle[:, None])).sum(axis=1) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
    return high
