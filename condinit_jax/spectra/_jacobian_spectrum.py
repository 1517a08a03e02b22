r"""The condition number of one softmax head's Jacobian, exact, at real sizes.

Three ways lead to it, none of which builds J where J is large (see `_ways`). The width of the
tokens is reduced first, which is exact. All in float64. Which way is taken follows from the memory
allowed and an estimate of kappa, and is said in the record.
"""

import dataclasses
from typing import Any, Unpack

import jax
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra._check_head import check_fields, check_head
from condinit_jax.spectra._condition_number import ConditionNumber
from condinit_jax.spectra._head import Head
from condinit_jax.spectra._options import GIB, Method, SpectrumOptions, Values, check_options
from condinit_jax.spectra._plan import plan_head
from condinit_jax.spectra._precision import float64, on_host
from condinit_jax.spectra._ways import planned_spectrum


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
        method: "gram", "qr", "matrix_free" (see `_ways`), or "auto": every singular value by QR
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
    check_options(values, method, memory, accuracy)
    check_fields(head)
    head = on_host(head)
    check_head(head)
    plan = plan_head(head, rtol)
    with float64(device):
        return planned_spectrum(plan, values, method, memory, accuracy)


def jacobian_spectra(heads: Head, **options: Unpack[SpectrumOptions]) -> list[ConditionNumber]:
    """`jacobian_spectrum` of each head of a stack, such as `attention_heads` makes.

    In turn and by the same compiled functions: `memory` is that of one head, and each may need
    another method. One program over all heads was slower: every value of 4
    heads (17 tokens, D 64, d 16) took 0.13 s in turn, 0.29 s by `jax.vmap` and 1.2 s by
    `jax.lax.map`, 3.6 and 8.8 s at first (busy CPU of 2 cores, `python benchmarks/heads.py`).

    Args:
        heads: Heads along the leading axis of every array.
        **options: Of `jacobian_spectrum`.

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
    return [jacobian_spectrum(head, **options) for head in singles]
