"""Spectra of attention: condition numbers, and the Jacobian of a head in its kernels."""

from condinit_jax.spectra._attention_spectrum import attention_spectrum
from condinit_jax.spectra._bound import Bound, bound
from condinit_jax.spectra._condition_number import ConditionNumber, condition_number
from condinit_jax.spectra._dense import attention_jacobian, block_output
from condinit_jax.spectra._head import Head, attention_heads, head_output
from condinit_jax.spectra._jacobian_spectrum import jacobian_spectra, jacobian_spectrum
from condinit_jax.spectra._kernel_spectra import KernelSpectra, kernel_spectra

__all__ = [
    "Bound",
    "ConditionNumber",
    "Head",
    "KernelSpectra",
    "attention_heads",
    "attention_jacobian",
    "attention_spectrum",
    "block_output",
    "bound",
    "condition_number",
    "head_output",
    "jacobian_spectra",
    "jacobian_spectrum",
    "kernel_spectra",
]
