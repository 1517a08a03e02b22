"""Condition numbers of a block's kernels, head by head and of the whole matrix.

The two answer different questions, and a figure is worth nothing without saying which it is: a
Gaussian 768 x 64 kernel of one head has kappa 1.8, the 768 x 768 kernel of its 12 heads 1e3.
"""

import dataclasses
from typing import Any

import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels, Role, flat_shape
from condinit_jax.spectra._condition_number import ConditionNumber, condition_number
from condinit_jax.spectra._dense import check_arrays
from condinit_jax.spectra._precision import on_host


@dataclasses.dataclass(frozen=True)
class KernelSpectrum:
    """The condition numbers of one kernel of a block.

    Attributes:
        per_head: one record for each head: of (D, d), for out of (d, D).
        stacked: of the matrix that all heads form, (D, H*d), for out (H*d, D).
    """

    per_head: tuple[ConditionNumber, ...]
    stacked: ConditionNumber


@dataclasses.dataclass(frozen=True)
class KernelSpectra:
    """The condition numbers of a block's kernels.

    Attributes:
        query: kappa(W_Q), per head and stacked.
        key: kappa(W_K); with grouped queries there are fewer heads.
        value: kappa(W_V).
        out: kappa(W_O), or None where the block has no out kernel.
    """

    query: KernelSpectrum
    key: KernelSpectrum
    value: KernelSpectrum
    out: KernelSpectrum | None = None


def kernel_spectra(kernels: AttentionKernels, *, rtol: float | None = None) -> KernelSpectra:
    """kappa(W_Q), kappa(W_K), kappa(W_V) and kappa(W_O) of one block, per head and stacked.

    Computed in float64 on the host. Kernels that lack rank are not hidden: where every head's value
    kernel is the same rectangular identity, as the paper's rule says literally, each head has kappa
    1 and so has the stacked kernel over its non-zero values, but its `rank` is d of H*d.

    Args:
        kernels: query (D, H, d), key (E, H_kv, d), value (E, H_kv, v), out (H, v, O) or None. One
            block; for kernels with a leading layer axis, see the example.
        rtol: singular values up to `rtol * sigma_max` count as zero; None takes max(rows, columns)
            times the epsilon of float64, so that entries are taken as exact: a product of thin
            float32 matrices has full rank through its rounding, and needs an `rtol` of 1e-6 or so.

    Returns:
        The records.

    Raises:
        UserError: if a kernel has not three axes, or a number is not finite.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> from condinit_jax.spectra import kernel_spectra
        >>> alike = jnp.broadcast_to(jnp.eye(8, 4)[:, None], (8, 2, 4))
        >>> spectra = kernel_spectra(AttentionKernels(alike, alike, alike))
        >>> spectra.value.per_head[0].kappa, spectra.value.stacked.rank, spectra.value.stacked.size
        (1.0, 4, 8)

        Kernels of several layers, stacked along a leading axis, are mapped over:

        >>> layers = jax.tree.map(lambda kernel: jnp.stack([kernel] * 3), (alike, alike, alike))
        >>> [
        ...     kernel_spectra(AttentionKernels(*kernels)).query.stacked.dropped
        ...     for kernels in zip(*layers, strict=True)
        ... ]
        [4, 4, 4]
    """
    spectra = {}
    for role in ROLES:
        kernel = getattr(kernels, role)
        if kernel is None and role == "out":
            continue
        check_arrays(role, kernel)
        if kernel.ndim != 3:
            form = "(heads, dim, width)" if role == "out" else "(width, heads, dim)"
            raise UserError(f"{role}: shape {kernel.shape} must be {form}; give one block")
        spectra[role] = _spectrum(on_host(kernel), role, rtol)
    return KernelSpectra(**spectra)


def _spectrum(kernel: Any, role: Role, rtol: float | None) -> KernelSpectrum:
    per_head = np.moveaxis(kernel, 0 if role == "out" else 1, 0)
    return KernelSpectrum(
        tuple(condition_number(matrix, rtol) for matrix in per_head),
        condition_number(kernel.reshape(flat_shape(kernel.shape, role)), rtol),
    )
