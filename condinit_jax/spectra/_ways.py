"""Three ways to the spectrum of a head's Jacobian, and which of them is taken.

- "gram": a Cholesky factor of J J^T (or J^T J) preconditions an iteration on J itself;
- "qr": an orthogonal reduction of J in blocks, then an SVD of its triangular factor;
- "matrix_free": products with J and J^T alone, for when no square matrix fits.
"""

import dataclasses
import math

import jax
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra import _cholesky as cholesky
from condinit_jax.spectra import _plan as planning
from condinit_jax.spectra import _tall_side as tall
from condinit_jax.spectra import _triangle as triangles
from condinit_jax.spectra._condition_number import (
    ConditionNumber,
    from_extremes,
    from_values,
    precision_warning,
)
from condinit_jax.spectra._davidson import Extreme
from condinit_jax.spectra._matrix_free_head import matrix_free_spectrum
from condinit_jax.spectra._null_space import NullSpace
from condinit_jax.spectra._options import GIB, Method, Values
from condinit_jax.spectra._plan import Plan
from condinit_jax.spectra._score_columns import has_score_columns

SHIFT = {"float64": 1e-14, "float32": 3e-6}
"""Relative to sigma_max^2; somewhat above the rounding of a Cholesky decomposition of 1e4 rows."""

GRAM_LIMIT = 1e7
"""Condition numbers above it leave no digit to a float64 Gram matrix."""


def planned_spectrum(
    plan: Plan, values: Values, method: Method, memory: float, accuracy: float
) -> ConditionNumber:
    """The spectrum of a head by the way that the options ask for, or the best that fits.

    Args:
        plan: The head, reduced.
        values: See `jacobian_spectrum`, as for what follows.
        method: See there.
        memory: See there.
        accuracy: See there.

    Returns:
        The record.

    Raises:
        UserError: If no way fits the memory.
    """
    fits = {"gram": plan.bytes("gram") <= memory, "qr": plan.bytes("qr") <= memory}
    if method in ("gram", "qr") and not fits[method]:
        raise UserError(
            f"memory = {memory / GIB:.2f} GiB: method {method!r} needs about "
            f"{plan.bytes(method) / GIB:.2f} GiB for a head of {plan.rows} x {plan.columns}; "
            "allow more, or use method='matrix_free'"
        )
    if method == "gram":
        return _by_gram(plan, accuracy) if values == "extremes" else _all_by_gram(plan)
    if method == "qr" or (
        method == "auto" and fits["qr"] and (plan.square <= planning.SMALL or values == "all")
    ):
        return _by_qr(plan, values, accuracy)
    if values == "all":
        raise UserError(
            f"memory = {memory / GIB:.2f} GiB: every singular value of a head of {plan.rows} x "
            f"{plan.columns} needs about {plan.bytes('qr') / GIB:.2f} GiB; allow more, or ask for "
            "values='extremes'"
        )
    if method == "auto" and fits["gram"]:
        record = _by_gram(plan, accuracy)
        if record.converged:
            return record
        if fits["qr"]:
            return _by_qr(plan, values, accuracy)
        needed = math.ceil(plan.bytes("qr") / GIB)
        told = f"{record.warning}; method='qr' would tell, with memory={needed} * 2**30"
        return dataclasses.replace(record, warning=told)
    if plan.bytes("matrix_free") > memory:
        raise UserError(
            f"memory = {memory / GIB:.2f} GiB: products with a Jacobian of {plan.rows} x "
            f"{plan.columns} alone need about {plan.bytes('matrix_free') / GIB:.2f} GiB; allow more"
        )
    return matrix_free_spectrum(
        plan.head, tolerance=accuracy, rtol=plan.rtol, size=plan.size, rounding=plan.of_weights
    )


def _by_gram(plan: Plan, accuracy: float) -> ConditionNumber:
    """Extremes by Cholesky, in float32 first where that is faster and has a chance."""
    # The change from one step to the next is somewhat less than the error.
    tolerance = accuracy / 10
    survey = jax.device_get(tall.survey(plan.head, tolerance))
    kappa_at_least = survey.largest.sigma / max(survey.smallest_at_most, np.finfo(float).tiny)
    # kappa may be some times the bound; far beyond it a float32 factor would be made in vain.
    easy = plan.square > 2 * planning.SMALL and (2 * kappa_at_least) ** 2 < 1 / SHIFT["float32"]
    smallest: Extreme | None = None
    for factor_dtype in ("float32", "float64") if easy else ("float64",):
        smallest = jax.device_get(
            cholesky.gram_smallest(
                plan.head,
                plan.null,
                survey.largest.sigma,
                SHIFT[factor_dtype],
                tolerance,
                side=plan.side,
                factor_dtype=factor_dtype,
                key_slices=8 if plan.head.key_map is not None else 1,
            )
        )
        # What the shift hides from the factor may seem to converge.
        seen = smallest.sigma**2 >= SHIFT[factor_dtype] * survey.largest.sigma**2
        if smallest.converged and seen:
            break
    assert smallest is not None
    return _extremes_record(plan, survey.largest, smallest, "gram", GRAM_LIMIT)


def _all_by_gram(plan: Plan) -> ConditionNumber:
    found = np.asarray(
        cholesky.gram_values(
            plan.head, side=plan.side, key_slices=8 if plan.head.key_map is not None else 1
        )
    )
    # Eigenvalues are known to eps * sigma_max^2, singular values to the root of that.
    limit = math.sqrt(plan.resolution)
    record = _record(dataclasses.replace(plan, rtol=max(plan.rtol, limit)), found, "gram")
    error = record.error + len(found) ** 0.5 * float(np.finfo(np.float64).eps) * record.kappa**2
    warning = precision_warning(error, record.rank)
    if limit > plan.rtol and record.dropped and np.any(found > plan.rtol * found[0]):
        warning = warning or (
            f"a Gram matrix shows nothing below {limit:.0e} of the largest; method='qr' does"
        )
    return dataclasses.replace(record, error=error, warning=warning)


def _by_qr(plan: Plan, values: Values, accuracy: float) -> ConditionNumber:
    """Every singular value, or the extremes where those are much cheaper."""
    if plan.square <= planning.SMALL:
        return _record(plan, triangles.small_values(plan.head), "qr")
    if values == "extremes":
        scale = 1.0
        if plan.null is not None:
            scale = float(tall.survey(plan.head, 1e-3).largest.sigma)
        upper = _triangle(plan, plan.null, scale)
        if upper.shape[0] < upper.shape[1]:
            # Fewer columns than rows are left where query and key kernels lack rank together.
            return _record(plan, np.asarray(triangles.triangle_values(upper)), "qr")
        found = jax.device_get(
            triangles.triangle_extremes(
                plan.head, plan.null, upper, scale, accuracy / 10, side=plan.side
            )
        )
        record = _extremes_record(plan, found.largest, found.smallest, "qr")
        if record.converged:
            return record
    upper = _triangle(plan, None, 0.0)
    return _record(plan, np.asarray(triangles.triangle_values(upper)), "qr")


def _triangle(plan: Plan, null: NullSpace | None, scale: float) -> jax.Array:
    return triangles.triangle(
        plan.head,
        null,
        scale,
        side=plan.side,
        by_scores=plan.side == "rows" and has_score_columns(plan.head),
        blocks=plan.blocks,
    )


def _record(plan: Plan, found: np.ndarray, method: str) -> ConditionNumber:
    return from_values(
        found[: plan.size],
        rtol=plan.rtol,
        size=plan.size,
        method=method,
        rounding=plan.rounding(len(found)),
    )


def _extremes_record(
    plan: Plan, largest: Extreme, smallest: Extreme, method: str, limit: float = math.inf
) -> ConditionNumber:
    """The record of two extremes; condition numbers above `limit` are no more than lower bounds."""
    sigma_max, sigma_min = float(largest.sigma), float(smallest.sigma)
    failed = ""
    if not plan.rtol * sigma_max < sigma_min <= sigma_max:
        sigma_min = math.nan
        failed = "not converged: J lacks rank, and its least non-zero value was not found"
    elif not (smallest.converged and largest.converged and sigma_max <= limit * sigma_min):
        failed = "not converged: kappa is a lower bound"
    return from_extremes(
        sigma_max,
        sigma_min,
        rank=None if failed else plan.rank,
        size=plan.size,
        rtol=plan.rtol,
        method=method,
        rounding=plan.rounding(plan.square),
        error=float(largest.change + smallest.change),
        failed=failed,
    )
