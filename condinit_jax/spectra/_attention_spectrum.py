"""The condition number of any attention function's Jacobian, whatever its formula.

Where `jacobian_spectrum` knows softmax heads and the structure of their Jacobian, this knows only a
function of (kernels, tokens): windows with relative bias, cross-covariance, Nystrom, linear
attention, a whole block with its out projection, or the derivative in the tokens.
"""

import dataclasses
import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._condition_number import ConditionNumber, check_rtol, from_values
from condinit_jax.spectra._dense import (
    AttentionFunction,
    Wrt,
    as_pytree,
    as_vector_function,
    attention_jacobian,
    check_inputs,
)
from condinit_jax.spectra._linear_map import linear_map
from condinit_jax.spectra._matrix_free import matrix_free_condition_number
from condinit_jax.spectra._options import GIB, check_choice, check_memory
from condinit_jax.spectra._precision import float64, on_host
from condinit_jax.spectra._width_reduction import shorten

DENSE_LIMIT = 4096
"""Shorter side of a Jacobian above which a dense SVD takes minutes on a CPU."""


def attention_spectrum(
    attention_fn: AttentionFunction,
    kernels: Any,
    tokens: Any,
    *,
    wrt: Wrt = "kernels",
    method: Literal["auto", "qr", "matrix_free"] = "auto",
    reduce_width: bool = False,
    memory: float = 4 * GIB,
    rtol: float | None = None,
    accuracy: float = 1e-6,
    device: jax.Device | None = None,
) -> ConditionNumber:
    """The condition number of the Jacobian of an attention function, in float64.

    Args:
        attention_fn: `attention_fn(kernels, tokens)` gives one array; see `attention_jacobian`.
        kernels: any pytree of arrays; with `reduce_width`, `AttentionKernels`.
        tokens: an array, or a pytree such as (tokens, context).
        wrt: what J differentiates by; see `attention_jacobian`. For a block with its out
            projection, pass `block_output`; for the Jacobian in the tokens, "tokens".
        method: "qr", an SVD of the dense Jacobian after a QR decomposition, with every singular
            value in the record; "matrix_free", extremes from products alone and without a
            preconditioner; "auto", dense where it fits into `memory` and its shorter side is at
            most 4096.
        reduce_width: whether `attention_fn` sees tokens (N, D) only through products with the
            query, key and value kernel. Then D is reduced to the rank of the tokens, which changes
            no singular value.
        memory: bytes that this call may use.
        rtol: singular values up to `rtol * sigma_max` count as zero; None takes the longer side of
            J times the epsilon of float64.
        accuracy: relative accuracy at which iterations stop.
        device: where to compute; None chooses, see `spectrum_device`.

    Returns:
        The record.

    Raises:
        UserError: if kernels or tokens are not finite floats, an option is unknown, or the dense
            Jacobian does not fit.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> from condinit_jax.spectra import attention_spectrum, block_output
        >>> rng = np.random.default_rng(0)
        >>> kernels = AttentionKernels(*rng.normal(size=(3, 8, 2, 4)), rng.normal(size=(2, 4, 8)))
        >>> tokens = rng.normal(size=(5, 8))
        >>> attention_spectrum(block_output, kernels, tokens).rank
        40
        >>> attention_spectrum(block_output, kernels, tokens, wrt="tokens").size
        40
    """
    check_choice("method", method, ("auto", "qr", "matrix_free"))
    check_memory(memory)
    check_inputs(kernels, tokens, wrt)
    kernels, tokens = on_host(kernels), on_host(tokens)
    full = _vector_sizes(attention_fn, kernels, tokens, wrt, device)
    if reduce_width:
        kernels, tokens = _reduced(kernels, tokens, wrt)
    with float64(device):
        rows, columns = _vector_sizes(attention_fn, kernels, tokens, wrt, device)
        rtol = check_rtol(rtol, max(full), np.float64)
        needed = 8.0 * rows * columns * 3
        if method == "qr" and needed > memory:
            raise UserError(
                f"memory = {memory / GIB:.2f} GiB: the dense Jacobian of {rows} x {columns} needs "
                f"about {needed / GIB:.2f} GiB; allow more, or use method='matrix_free'"
            )
        dense = needed <= memory and min(rows, columns) <= DENSE_LIMIT
        if method == "qr" or (method == "auto" and dense):
            jacobian = attention_jacobian(attention_fn, kernels, tokens, wrt=wrt)
            values = np.asarray(_singular_values(jacobian))
            return from_values(values, rtol=rtol, size=min(full), method="qr")
        function, at = as_vector_function(
            as_pytree(attention_fn), kernels, jax.tree.map(jnp.asarray, tokens), wrt
        )
        record = matrix_free_condition_number(
            linear_map(function, at), tolerance=accuracy, rtol=rtol
        )
    dropped = None if record.rank is None else min(full) - record.rank
    return dataclasses.replace(record, size=min(full), dropped=dropped)


def _vector_sizes(
    attention_fn: AttentionFunction,
    kernels: Any,
    tokens: Any,
    wrt: Wrt,
    device: jax.Device | None,
) -> tuple[int, int]:
    """Rows and columns of the Jacobian, without computing anything."""
    with float64(device):
        function, at = as_vector_function(
            attention_fn, jax.tree.map(jnp.asarray, kernels), jax.tree.map(jnp.asarray, tokens), wrt
        )
        return math.prod(jax.eval_shape(function, at).shape), at.size


def _reduced(kernels: Any, tokens: Any, wrt: Wrt) -> tuple[AttentionKernels, np.ndarray]:
    if not isinstance(kernels, AttentionKernels) or not isinstance(tokens, np.ndarray):
        raise UserError("reduce_width: needs AttentionKernels and one array of tokens (N, D)")
    if wrt == "tokens":
        raise UserError("reduce_width: leaves no tokens to differentiate by; use wrt='kernels'")
    short, basis = shorten(tokens)
    short_kernels: list[Any] = [np.tensordot(basis.T, kernel, axes=1) for kernel in kernels[:3]]
    return kernels._replace(
        **dict(zip(("query", "key", "value"), short_kernels, strict=True))
    ), short


@jax.jit
def _singular_values(matrix: jax.Array) -> jax.Array:
    tall = matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T
    return jnp.linalg.svd(jnp.linalg.qr(tall, mode="r"), compute_uv=False)
