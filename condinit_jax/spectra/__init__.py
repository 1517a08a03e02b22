"""Spectra of attention: condition numbers, and the Jacobian of a head in its kernels.

record = spectra.jacobian_spectrum(head)  # kappa(J), with rank, tolerance and error

probe = spectra.probe_model(model, variables, images)  # over layers and heads
"""

import importlib
from typing import TYPE_CHECKING, Any

from condinit_jax.spectra._attention_spectrum import attention_spectrum
from condinit_jax.spectra._bound import Bound, bound
from condinit_jax.spectra._capture import assemble, capture
from condinit_jax.spectra._captured_block import CapturedBlock
from condinit_jax.spectra._condition_number import ConditionNumber, condition_number
from condinit_jax.spectra._dense import attention_jacobian, block_output
from condinit_jax.spectra._head import Head, attention_heads, head_output
from condinit_jax.spectra._jacobian_spectrum import jacobian_spectra, jacobian_spectrum
from condinit_jax.spectra._kernel_spectra import KernelSpectra, KernelSpectrum, kernel_spectra
from condinit_jax.spectra._linear_map import LinearMap, linear_map
from condinit_jax.spectra._matrix_free import matrix_free_condition_number
from condinit_jax.spectra._probe_model import probe_blocks, probe_model
from condinit_jax.spectra._probe_table import Place, Probe
from condinit_jax.spectra._record import Recording, record

if TYPE_CHECKING:
    from condinit_jax.spectra._figures import save_figure
    from condinit_jax.spectra._plot_spectra import plot_spectra
    from condinit_jax.spectra._plots import plot_depth, plot_steps

__all__ = [
    "Bound",
    "CapturedBlock",
    "ConditionNumber",
    "Head",
    "KernelSpectra",
    "KernelSpectrum",
    "LinearMap",
    "Place",
    "Probe",
    "Recording",
    "assemble",
    "attention_heads",
    "attention_jacobian",
    "attention_spectrum",
    "block_output",
    "bound",
    "capture",
    "condition_number",
    "head_output",
    "jacobian_spectra",
    "jacobian_spectrum",
    "kernel_spectra",
    "linear_map",
    "matrix_free_condition_number",
    "plot_depth",
    "plot_spectra",
    "plot_steps",
    "probe_blocks",
    "probe_model",
    "record",
    "save_figure",
]

_FIGURES = {
    "plot_depth": "_plots",
    "plot_spectra": "_plot_spectra",
    "plot_steps": "_plots",
    "save_figure": "_figures",
}
"""What draws, and the module that it is in: matplotlib is imported when first asked for."""


def __getattr__(name: str) -> Any:
    if name not in _FIGURES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_FIGURES[name]}"), name)
