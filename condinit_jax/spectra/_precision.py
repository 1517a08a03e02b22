"""Where spectra are computed: in float64, on a device that is fast at it.

kappa(J) of real tokens passes 1e7, beyond what float32 can tell. CPUs and the GPUs of data centres
compute in float64; TPUs emulate it slowly, and the host's CPU, which every JAX process has, is
taken instead, also when training itself runs on the accelerator.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from condinit_jax.errors import UserError

FAST_FLOAT64 = re.compile(r"\b(P100|V100|A100|A30|H100|H200|H800|GH200|B200|GB200)\b")
"""GPUs that do float64 at half the rate of float32; others take 1/32."""


def spectrum_device(device: jax.Device | None = None) -> jax.Device:
    """The device on which spectra are computed.

    Args:
        device: The caller's choice, or None.

    Returns:
        The given device; else this process's accelerator if it has fast float64; else its CPU.

    Raises:
        UserError: If the CPU is needed and JAX_PLATFORMS leaves it out.

    Example:
        >>> spectrum_device(jax.devices("cpu")[0]).platform
        'cpu'
    """
    if device is not None:
        return device
    default = jax.local_devices()[0]
    if default.platform == "cpu" or FAST_FLOAT64.search(default.device_kind):
        return default
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError as error:
        raise UserError(
            f"JAX_PLATFORMS: leaves out the CPU, on which spectra are computed where the "
            f"accelerator ({default.device_kind}) has no fast float64; write "
            f"JAX_PLATFORMS={default.platform},cpu"
        ) from error


@contextlib.contextmanager
def float64(device: jax.Device | None = None) -> Iterator[jax.Device]:
    """Computes in float64 on the device of `spectrum_device`, whatever the process does elsewhere.

    Args:
        device: The caller's choice, or None.

    Yields:
        The device.

    Example:
        >>> import jax.numpy as jnp
        >>> with float64():
        ...     print(jnp.ones(3).dtype)
        float64
    """
    chosen = spectrum_device(device)
    # A user's stricter promotion is meant for the user's own code.
    with jax.enable_x64(True), jax.default_device(chosen), jax.numpy_rank_promotion("allow"):
        yield chosen


def on_host(tree: Any) -> Any:
    """The arrays of a tree as NumPy arrays, those of floating point as float64."""

    def convert(leaf: Any) -> Any:
        array = np.asarray(jax.device_get(leaf))
        # kind "V" is how NumPy sees bfloat16.
        return array.astype(np.float64) if array.dtype.kind in "fV" else array

    return jax.tree.map(convert, tree)
