r"""The condition number of one softmax head's Jacobian, exact, at real sizes.

Three ways lead to it, none of which builds J where J is large:

- "gram": a Cholesky factor of J J^T (or J^T J) preconditions an iteration on J itself;
- "qr": an orthogonal reduction of J in blocks, then an SVD of its triangular factor;
- "matrix_free": products with J and J^T alone, for when no square matrix fits.

The width of the tokens is reduced first, which is exact. All in float64. Which way is taken follows
from the memory allowed and an estimate of kappa, and is said in the record.
"""

import dataclasses
import math
from typing import Any, Literal

import jax
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra import _factorised as factorised
from condinit_jax.spectra import _plan as planning
from condinit_jax.spectra._check_head import check_fields, check_head
from condinit_jax.spectra._condition_number import (
    ConditionNumber,
    from_values,
    precision_warning,
)
from condinit_jax.spectra._davidson import Extreme
from condinit_jax.spectra._head import Head
from condinit_jax.spectra._matrix_free import matrix_free_spectrum
from condinit_jax.spectra._null_space import NullSpace
from condinit_jax.spectra._plan import Plan, plan_head
from condinit_jax.spectra._precision import float64, on_host
from condinit_jax.spectra._score_columns import has_score_columns

Method = Literal["auto", "gram", "qr", "matrix_free"]
Values = Literal["extremes", "all"]

GIB = 2**30
SHIFT = {"float64": 1e-14, "float32": 3e-6}
"""Relative to sigma_max^2; somewhat above the rounding of a Cholesky decomposition of 1e4 rows."""

GRAM_LIMIT = 1e7
"""Condition numbers above it leave no digit to a float64 Gram matrix."""


def jacobian_spectrum(
    head: Head,
    *,
    values: Values = "extremes",
    method: Method = "auto",
    memory: float = 4 * GIB,
    rtol: float | None = None,
    accuracy: float = 1e-6,
    device: jax.Device | None = None,
) -> ConditionNumber:
    r"""The condition number of J = [dA/dW_Q, dA/dW_K, dA/dW_V], A the output of one head.

    J has N v rows (N tokens, v the width of values) and d D + d E + v E columns, for query kernels
    (D, d), key kernels (E, d) and value kernels (E, v). Biases, masks and the parameters of maps
    are constants.

    Args:
        head: One head, not a stack; arrays of any floating dtype, on any device.
        values: "all" keeps every singular value in the record; "extremes" only where they come for
            free.
        method: "gram", "qr", "matrix_free" (see the module), or "auto": every singular value by QR
            up to a shorter side of 1024, then the Gram matrix, or QR where kappa is beyond 1e7 or
            the Gram matrix fails, then matrix-free, each if it fits.
        memory: bytes that this call may use.
        rtol: singular values up to `rtol * sigma_max` count as zero; None takes the longer side of
            J times the epsilon of float64.
        accuracy: relative accuracy of kappa at which iterations stop.
        device: where to compute; None chooses, see `spectrum_device`.

    Returns:
        The record. `size` is min(rows, columns) of J; `dropped` counts singular values that are
        zero, those by construction included (on the column side, d^2 gauge directions and more). An
        iterative method that did not converge says so.

    Raises:
        UserError: for arrays that are not finite or do not fit each other, a query whose every key
            is masked, or too little memory for the method.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> head = Head(rng.normal(size=(6, 20)), *rng.normal(size=(3, 20, 4)) / 20**0.5)
        >>> record = jacobian_spectrum(head)
        >>> record.rank, record.size, record.method, record.dtype
        (24, 24, 'qr', 'float64')

    References:
        Saratchandran and Lucey, Conditioned Initialization for Attention, ICLR 2026, Section 3.
    """
    _check_options(values, method, memory, accuracy)
    check_fields(head)
    head = on_host(head)
    check_head(head)
    plan = plan_head(head, rtol)
    with float64(device):
        return _spectrum(plan, values, method, memory, accuracy)


def jacobian_spectra(
    heads: Head,
    *,
    values: Values = "extremes",
    method: Method = "auto",
    memory: float = 4 * GIB,
    rtol: float | None = None,
    accuracy: float = 1e-6,
    device: jax.Device | None = None,
) -> list[ConditionNumber]:
    """`jacobian_spectrum` of each head of a stack, such as `attention_heads` makes.

    In turn and by the same compiled functions: one head keeps every core busy, `memory` is that of
    one head, and each may need another method.

    Args:
        heads: Heads along the leading axis of every array.
        values: See `jacobian_spectrum`, as for all that follows.
        method: See there.
        memory: See there.
        rtol: See there.
        accuracy: See there.
        device: See there.

    Returns:
        One record per head.

    Raises:
        UserError: As `jacobian_spectrum`; the message names the head.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> from condinit_jax.spectra import attention_heads
        >>> rng = np.random.default_rng(0)
        >>> kernels = AttentionKernels(*rng.normal(size=(3, 12, 2, 6)))
        >>> len(jacobian_spectra(attention_heads(kernels, rng.normal(size=(5, 12)))))
        2
    """
    _check_options(values, method, memory, accuracy)
    check_fields(heads)
    heads = on_host(heads)
    if np.ndim(heads.query) != 3:
        raise UserError(
            f"query: shape {np.shape(heads.query)} must be (heads, width, dim); for one head use "
            "jacobian_spectrum"
        )
    count = len(heads.query)
    scale: Any = heads.scale
    if scale is not None and np.ndim(scale) == 0:
        scale = np.full(count, scale)
        heads = dataclasses.replace(heads, scale=scale)
    for name, array in vars(heads).items():
        if isinstance(array, np.ndarray) and (array.ndim == 0 or len(array) != count):
            raise UserError(f"{name}: shape {array.shape} must begin with the {count} heads")
    singles = [jax.tree.map(lambda a, i=index: a[i], heads) for index in range(count)]
    for index, head in enumerate(singles):
        try:
            check_head(head)
        except UserError as error:
            raise UserError(f"head {index}: {error}") from error
    with float64(device):
        return [
            _spectrum(plan_head(head, rtol), values, method, memory, accuracy) for head in singles
        ]


def _check_options(values: str, method: str, memory: float, accuracy: float) -> None:
    for name, value, known in (
        ("values", values, ("extremes", "all")),
        ("method", method, ("auto", "gram", "qr", "matrix_free")),
    ):
        if value not in known:
            raise UserError(f"{name} = {value!r}: must be one of {', '.join(known)}")
    if not isinstance(memory, int | float) or not memory > 0:
        raise UserError(f"memory = {memory!r}: must be a positive number of bytes")
    if not 0 < accuracy < 1:
        raise UserError(f"accuracy = {accuracy}: must be between 0 and 1")
    if values == "all" and method == "matrix_free":
        raise UserError("method = 'matrix_free': gives no more than the extremes; use 'qr'")


def _spectrum(
    plan: Plan, values: Values, method: Method, memory: float, accuracy: float
) -> ConditionNumber:
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
    return matrix_free_spectrum(plan.head, tolerance=accuracy, rtol=plan.rtol, size=plan.size)


def _by_gram(plan: Plan, accuracy: float) -> ConditionNumber:
    """Extremes by Cholesky, in float32 first where that is faster and has a chance."""
    # The change from one step to the next is somewhat less than the error.
    tolerance = accuracy / 10
    survey = jax.device_get(factorised.survey(plan.head, tolerance))
    kappa_at_least = survey.largest.sigma / max(survey.smallest_at_most, np.finfo(float).tiny)
    easy = plan.square > 2 * planning.SMALL and kappa_at_least**2 < 0.01 / SHIFT["float32"]
    smallest: Extreme | None = None
    for factor_dtype in ("float32", "float64") if easy else ("float64",):
        smallest = jax.device_get(
            factorised.gram_smallest(
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
        factorised.gram_values(
            plan.head, side=plan.side, key_slices=8 if plan.head.key_map is not None else 1
        )
    )
    # Eigenvalues are known to eps * sigma_max^2, singular values to the root of that.
    limit = math.sqrt(plan.resolution)
    record = _record(dataclasses.replace(plan, rtol=max(plan.rtol, limit)), found, "gram")
    error = len(found) ** 0.5 * float(np.finfo(np.float64).eps) * record.kappa**2
    warning = precision_warning(error, record.rank)
    if limit > plan.rtol and record.dropped and np.any(found > plan.rtol * found[0]):
        warning = warning or (
            f"a Gram matrix shows nothing below {limit:.0e} of the largest; method='qr' does"
        )
    return dataclasses.replace(record, error=error, warning=warning)


def _by_qr(plan: Plan, values: Values, accuracy: float) -> ConditionNumber:
    """Every singular value, or the extremes where those are much cheaper."""
    if plan.square <= planning.SMALL:
        return _record(plan, factorised.small_values(plan.head), "qr")
    if values == "extremes":
        scale = 1.0
        if plan.null is not None:
            scale = float(factorised.survey(plan.head, 1e-3).largest.sigma)
        upper = _triangle(plan, plan.null, scale)
        if upper.shape[0] < upper.shape[1]:
            # Fewer columns than rows are left where query and key kernels lack rank together.
            return _record(plan, np.asarray(factorised.triangle_values(upper)), "qr")
        found = jax.device_get(
            factorised.triangle_extremes(
                plan.head, plan.null, upper, scale, accuracy / 10, side=plan.side
            )
        )
        record = _extremes_record(plan, found.largest, found.smallest, "qr")
        if record.converged:
            return record
    upper = _triangle(plan, None, 0.0)
    return _record(plan, np.asarray(factorised.triangle_values(upper)), "qr")


def _triangle(plan: Plan, null: NullSpace | None, scale: float) -> jax.Array:
    return factorised.triangle(
        plan.head,
        null,
        scale,
        side=plan.side,
        by_scores=plan.side == "rows" and has_score_columns(plan.head),
        blocks=plan.blocks,
    )


def _record(plan: Plan, found: np.ndarray, method: str) -> ConditionNumber:
    return from_values(found[: plan.size], rtol=plan.rtol, size=plan.size, method=method)


def _extremes_record(
    plan: Plan, largest: Extreme, smallest: Extreme, method: str, limit: float = math.inf
) -> ConditionNumber:
    """The record of two extremes; condition numbers above `limit` are no more than lower bounds."""
    sigma_max, sigma_min = float(largest.sigma), float(smallest.sigma)
    if sigma_max == 0:
        return from_values(np.zeros(1), rtol=plan.rtol, size=plan.size, method=method)
    if not plan.rtol * sigma_max < sigma_min <= sigma_max:
        kappa = sigma_min = math.nan
        warning = "not converged: J lacks rank, and its least non-zero value was not found"
    else:
        kappa = sigma_max / sigma_min
        warning = "not converged: kappa is a lower bound"
    converged = bool(smallest.converged and largest.converged and kappa <= limit)
    error = float(largest.change + smallest.change)
    error += plan.square**0.5 * float(np.finfo(np.float64).eps) * kappa
    return ConditionNumber(
        kappa=kappa,
        sigma_max=sigma_max,
        sigma_min=sigma_min,
        rank=plan.rank if converged else None,
        size=plan.size,
        dropped=plan.size - plan.rank if converged else None,
        rtol=plan.rtol,
        method=method,
        error=error,
        converged=converged,
        warning=precision_warning(error) if converged else warning,
    )
