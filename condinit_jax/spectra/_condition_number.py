"""The condition number of a matrix, with everything that decides what it means.

sigma_max / sigma_min says nothing until it is known which singular values counted as zero: softmax
has a null direction, scores do not change when W_Q -> W_Q G and W_K -> W_K G^-T, and normalised
tokens sum to zero. So a condition number here is the ratio over the non-zero singular values, and
comes with its rank, its tolerance, the number of values dropped, and how it was computed.
"""

import dataclasses
import math

import jax
import numpy as np
from jaxtyping import Array, Float

from condinit_jax.errors import UserError


@dataclasses.dataclass(frozen=True)
class ConditionNumber:
    """sigma_max / sigma_min over the non-zero singular values of a matrix.

    Attributes:
        kappa: sigma_max / sigma_min; infinite if every singular value is zero, NaN if the method
            could not find the smallest that is not.
        sigma_max: the largest singular value.
        sigma_min: the smallest singular value above `rtol * sigma_max`.
        rank: singular values above `rtol * sigma_max`; None where the method cannot count them.
        size: singular values in all, min(rows, columns) of the matrix.
        dropped: `size - rank`, the values taken for zero; None where `rank` is.
        rtol: relative tolerance below which a singular value counts as zero.
        method: how it was computed: "svd", or a method of `jacobian_spectrum`.
        dtype: dtype of the arithmetic.
        error: estimate of the relative error of `kappa`, from rounding and, for iterative methods,
            from the residual.
        converged: False if an iterative method ran out of iterations; `kappa` is then a lower
            bound, or NaN.
        warning: one line on why the figure should be read with care; empty if there is no reason.
        singular_values: all of them, largest first, if they were computed; those of rows or columns
            that are zero by construction may be left out.

    Example:
        >>> record = condition_number(np.array([4.0, 2.0, 0.0]))
        >>> record.kappa, record.rank, record.size, record.dropped
        (2.0, 2, 3, 1)
    """

    kappa: float
    sigma_max: float
    sigma_min: float
    rank: int | None
    size: int
    dropped: int | None
    rtol: float
    method: str = "svd"
    dtype: str = "float64"
    error: float = 0.0
    converged: bool = True
    warning: str = ""
    singular_values: np.ndarray | None = dataclasses.field(default=None, repr=False, compare=False)

    def __str__(self) -> str:
        """One line for people."""
        of = "unknown" if self.rank is None else str(self.rank)
        text = f"kappa {self.kappa:.4g} (rank {of} of {self.size}, rtol {self.rtol:.1g}, "
        text += f"{self.method}, {self.dtype})"
        return f"{text}; {self.warning}" if self.warning else text


def condition_number(
    matrix_or_values: Float[Array, "rows columns"] | Float[Array, " values"],
    rtol: float | None = None,
    *,
    size: int | None = None,
    method: str = "svd",
) -> ConditionNumber:
    """The condition number of a matrix, or of the singular values of one.

    Args:
        matrix_or_values: (rows, columns), or singular values (n,) in any order. Host arrays keep
            their precision; a JAX array has the one that JAX gave it.
        rtol: singular values up to `rtol * sigma_max` count as zero; None takes max(rows, columns)
            times the dtype's epsilon, for values their number (or `size`) times epsilon.
        size: min(rows, columns), where zero singular values are known to have been left out of the
            values given; None takes what is there.
        method: what the record says about the computation.

    Returns:
        The record, singular values included.

    Raises:
        UserError: if there are no values, complex or non-finite ones, more than `size`, or `rtol`
            is not in [0, 1).

    Example:
        >>> condition_number(np.diag([3.0, 1.0, 1e-20])).kappa
        3.0
    """
    given = np.asarray(jax.device_get(matrix_or_values))
    # kind "V" is how NumPy sees bfloat16.
    if given.dtype.kind not in "iubfV":
        raise UserError(f"condition_number: dtype {given.dtype}; give real numbers")
    if given.dtype not in (np.float32, np.float64):
        low = given.dtype.kind in "fV" and given.dtype.itemsize < 4
        given = given.astype(np.float32 if low else np.float64)
    if given.ndim not in (1, 2) or given.size == 0:
        raise UserError(
            f"condition_number: shape {given.shape} is neither a matrix nor singular values"
        )
    if not np.isfinite(given).all():
        raise UserError(
            f"condition_number: {np.count_nonzero(~np.isfinite(given))} of {given.size} numbers "
            "are not finite; give finite ones"
        )
    if given.ndim == 2:
        values = np.linalg.svd(given, compute_uv=False)
        longest = max(given.shape)
    else:
        values = np.sort(np.abs(given))[::-1]
        longest = max(size or 0, len(given))
    if size is not None and size < len(values):
        raise UserError(f"size = {size}: must be at least the {len(values)} singular values given")
    return from_values(
        values, rtol=check_rtol(rtol, longest, given.dtype), size=size, method=method
    )


def check_rtol(rtol: float | None, longest: int, dtype: np.dtype | type) -> float:
    """The tolerance, checked, or the default one of a matrix whose longer side is `longest`."""
    if rtol is None:
        return longest * float(np.finfo(dtype).eps)
    if not 0 <= rtol < 1:
        raise UserError(f"rtol = {rtol}: must be in [0, 1)")
    return float(rtol)


def from_values(
    values: np.ndarray,
    *,
    rtol: float,
    size: int | None = None,
    method: str = "svd",
    rounding: float | None = None,
) -> ConditionNumber:
    """The record of singular values sorted from the largest.

    They are taken to be those of a matrix that is known to `rounding`, relative to its norm; None
    takes the root of their number times epsilon, as of an SVD of an exact matrix.
    """
    sigma_max = float(values[0])
    rank = int(np.count_nonzero(values > rtol * sigma_max))
    sigma_min = float(values[rank - 1]) if rank else 0.0
    if rounding is None:
        rounding = math.sqrt(len(values)) * float(np.finfo(values.dtype).eps)
    record = from_extremes(
        sigma_max,
        sigma_min,
        rank=rank,
        size=max(size or 0, len(values)),
        rtol=rtol,
        method=method,
        dtype=values.dtype.name,
        rounding=rounding,
    )
    return dataclasses.replace(record, singular_values=values)


def from_extremes(
    sigma_max: float,
    sigma_min: float,
    *,
    rank: int | None,
    size: int,
    rtol: float,
    method: str,
    rounding: float,
    dtype: str = "float64",
    error: float = 0.0,
    failed: str = "",
) -> ConditionNumber:
    """The record of the two ends of a spectrum.

    A matrix that is off by `rounding`, relative to its norm, has every singular value off by that
    much of the largest at most (Weyl), the smallest by `rounding * kappa` relative to itself.

    Args:
        sigma_max: The largest singular value.
        sigma_min: The smallest that counts; NaN if it was not found.
        rank: How many count, or None.
        size: How many there are.
        rtol: What decided that.
        method: What found them.
        rounding: How well the matrix is known, relative to its norm.
        dtype: Of the arithmetic.
        error: Relative error of kappa but for rounding.
        failed: Why they are not converged; empty if they are.

    Returns:
        The record.
    """
    if sigma_max == 0:
        rank, sigma_min, failed = 0, 0.0, ""
    kappa = sigma_max / sigma_min if sigma_max else math.inf
    error += rounding * kappa
    return ConditionNumber(
        kappa=kappa,
        sigma_max=sigma_max,
        sigma_min=sigma_min,
        rank=rank,
        size=size,
        dropped=None if rank is None else size - rank,
        rtol=rtol,
        method=method,
        dtype=dtype,
        error=error,
        converged=not failed,
        warning=failed or precision_warning(error, rank),
    )


def precision_warning(error: float, rank: int | None = None) -> str:
    """What to say of a condition number with this estimated relative error."""
    if rank == 0:
        return "every singular value is zero"
    if error > 1e-3:
        return f"near the limit of the precision: kappa is known to about {error:.0e} relative"
    return ""
