import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.spectra import _precision as precision


def device(platform, kind):
    return types.SimpleNamespace(platform=platform, device_kind=kind)


@pytest.mark.parametrize(
    ("default", "stays"),
    [
        (device("cpu", "cpu"), True),
        (device("gpu", "NVIDIA H200"), True),
        (device("gpu", "NVIDIA A100-SXM4-40GB"), True),
        (device("gpu", "Tesla V100-SXM2-16GB"), True),
        (device("gpu", "NVIDIA GeForce RTX 4090"), False),
        (device("gpu", "NVIDIA RTX A3000"), False),
        (device("tpu", "TPU v5 lite"), False),
    ],
)
def test_an_accelerator_without_fast_float64_leaves_the_work_to_the_host(
    monkeypatch, default, stays
):
    host = jax.devices("cpu")[0]
    monkeypatch.setattr(
        jax, "local_devices", lambda backend=None: [host if backend == "cpu" else default]
    )
    assert precision.spectrum_device() is (default if stays else host)
    assert precision.spectrum_device(host) is host


def test_a_process_without_cpu_is_told_what_to_set(monkeypatch):
    def local_devices(backend=None):
        if backend == "cpu":
            raise RuntimeError("Unknown backend cpu")
        return [device("tpu", "TPU v5 lite")]

    monkeypatch.setattr(jax, "local_devices", local_devices)
    with pytest.raises(UserError, match=r"JAX_PLATFORMS=tpu,cpu"):
        precision.spectrum_device()


def test_float64_holds_inside_and_only_there():
    second = jax.devices("cpu")[1]
    with precision.float64(second) as chosen:
        inside = jnp.asarray(np.ones(3)) / 3
        assert chosen is second
        assert inside.devices() == {second}
    assert inside.dtype == jnp.float64
    assert jnp.asarray(np.ones(3)).dtype == jnp.float32


def test_host_arrays_are_float64_and_others_as_they_were():
    tree = {"a": jnp.ones(2, jnp.bfloat16), "b": np.float32(0.5), "mask": np.ones(2, bool)}
    found = precision.on_host(tree)
    assert found["a"].dtype == found["b"].dtype == np.float64
    assert found["mask"].dtype == bool
