"""The sizes of a head's Jacobian, and what they say about how to treat it."""

import dataclasses
import math
from typing import Literal

import numpy as np

from condinit_jax.spectra._condition_number import check_rtol
from condinit_jax.spectra._head import Head, project
from condinit_jax.spectra._null_space import NullSpace, null_space
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._tall_side import Side
from condinit_jax.spectra._width_reduction import reduce_width

SMALL = 1024
"""Up to this size of J's shorter side, every singular value costs less than finding two of them."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """Sizes that decide how a head is treated.

    Attributes:
        head: The head, its width reduced.
        rows: Of its Jacobian, N v.
        columns: Of the reduced head's, d D' + d E' + v E'.
        side: On which side of J the square matrix stands.
        null: On the column side, null directions known beforehand, or None.
        nullity: How many.
        size: min(rows, columns) of the Jacobian of the head as it was given.
        rtol: Up to how much of the largest a singular value counts as zero.
        resolution: The same by the rounding of float64 alone.
        of_weights: Rounding of the attention weights, see `weight_rounding`.
    """

    head: Head
    rows: int
    columns: int
    side: Side
    null: NullSpace | None
    nullity: int
    size: int
    rtol: float
    resolution: float
    of_weights: float

    @property
    def square(self) -> int:
        """Rows of the square matrix."""
        return self.rows if self.side == "rows" else self.columns

    @property
    def rank(self) -> int:
        """Singular values that a generic head of these sizes has."""
        return self.square - self.nullity

    @property
    def blocks(self) -> int:
        """Parts in which J is absorbed by the QR decomposition."""
        other = self.columns if self.side == "rows" else self.rows
        most = min(self.head.tokens.shape if self.side == "rows" else self.head.tokens.shape[:1])
        return max(min(math.ceil(other / self.square) if self.square > 4 * SMALL else 1, most), 1)

    def rounding(self, count: int) -> float:
        """How well J is known, relative to its norm, where `count` singular values are computed."""
        return math.sqrt(count) * float(np.finfo(np.float64).eps) + self.of_weights

    def bytes(self, method: Literal["gram", "qr", "matrix_free"]) -> float:
        """Memory at the peak, about; measured by benchmarks/jacobian_spectrum.py."""
        square = 8.0 * self.square**2
        # Filling in the null space takes the projector as a matrix.
        filled = 2.5 * square if self.null is not None else 0.0
        if method == "gram":
            return 2.2 * square + filled + 64e6
        if method == "matrix_free":
            pairs = self.head.tokens.shape[0] ** 2 * self.head.value.shape[1]
            return 8.0 * ((pairs if self.side == "rows" else 0) + 90 * (self.rows + self.columns))
        other = 8.0 * self.square * (self.columns if self.side == "rows" else self.rows)
        return 3 * (square * (self.blocks > 1) + other / self.blocks) + filled + 64e6


def plan_head(head: Head, rtol: float | None) -> Plan:
    """Reduces the width and decides on which side of J the square matrix stands."""
    full_columns = sum(kernel.size for kernel in head.kernels)
    rows = head.tokens.shape[0] * head.value.shape[1]
    reduced = reduce_width(head)
    columns = sum(kernel.size for kernel in reduced.kernels)
    # With fewer columns than rows, the null directions of J not counted, J^T J is the matrix whose
    # null space is known; else J J^T, which generically has none.
    null, nullity = null_space(reduced) or (None, 0)
    side: Side = "columns"
    if rows <= columns - nullity:
        side, null, nullity = "rows", None, 0
    return Plan(
        head=reduced,
        rows=rows,
        columns=columns,
        side=side,
        null=null,
        nullity=nullity,
        size=min(rows, full_columns),
        rtol=check_rtol(rtol, max(rows, full_columns), np.float64),
        resolution=check_rtol(None, max(rows, full_columns), np.float64),
        of_weights=weight_rounding(reduced),
    )


def weight_rounding(head: Head) -> float:
    """Relative rounding of what J is made of by that of large logits, for a head of host arrays.

    A logit l carries a rounding of eps |l| at least, which exp makes a relative one of its weight.
    Errors of the weights enter J linearly. So each row counts with the mean of |l| over its own
    weights: what attention does not see does no harm, be it a finite mask of -1e9.
    """
    with float64(), np.errstate(all="ignore"):
        parts = project(head)
        weights = np.asarray(parts.weights)
        logits = np.abs(np.asarray(parts.scale * (parts.query @ parts.key.T)))
    if head.logit_bias is not None:
        logits = logits + np.abs(head.logit_bias)
    seen = np.where(weights > 0, logits, 0.0)
    return float(np.finfo(np.float64).eps) * float((weights * seen).sum(axis=1).max())
