"""Kernels' condition numbers per head and stacked."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import initializers, methods
from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._kernel_spectra import kernel_spectra


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def kappa(matrix):
    values = np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
    return values[0] / values[-1]


def test_every_kernel_is_measured_head_by_head_and_stacked():
    kernels = AttentionKernels(
        normal(12, 4, 3), normal(10, 2, 3, seed=1), normal(10, 2, 5, seed=2), normal(4, 5, 12)
    )
    spectra = kernel_spectra(jax.tree.map(jnp.asarray, kernels))
    for role in ("query", "key", "value"):
        kernel, spectrum = getattr(kernels, role), getattr(spectra, role)
        assert len(spectrum.per_head) == kernel.shape[1]
        for head, record in enumerate(spectrum.per_head):
            np.testing.assert_allclose(record.kappa, kappa(kernel[:, head]), rtol=1e-12)
        stacked = kernel.reshape(len(kernel), -1)
        np.testing.assert_allclose(spectrum.stacked.kappa, kappa(stacked), rtol=1e-11)
        assert spectrum.stacked.dtype == "float64"
    for head, record in enumerate(spectra.out.per_head):
        np.testing.assert_allclose(record.kappa, kappa(kernels.out[head]), rtol=1e-12)
    np.testing.assert_allclose(
        spectra.out.stacked.kappa, kappa(kernels.out.reshape(20, 12)), rtol=1e-11
    )


def test_independent_semi_orthogonal_heads_are_perfect_alone_and_not_together():
    kernel = initializers.semi_orthogonal(4)(jax.random.key(0), (32, 32)).reshape(32, 4, 8)
    spectrum = kernel_spectra(AttentionKernels(kernel, kernel, kernel)).query
    assert all(abs(record.kappa - 1) < 1e-5 for record in spectrum.per_head)
    assert spectrum.stacked.kappa > 20
    assert spectrum.stacked.rank == 32


def test_the_literal_value_rule_has_the_rank_of_one_head():
    kernels = AttentionKernels(*(normal(32, 4, 8, seed=seed) for seed in range(3)))
    value = kernel_spectra(methods.conditioned()(jax.random.key(0), kernels)).value
    assert [record.kappa for record in value.per_head] == [1.0] * 4
    record = value.stacked
    assert record.kappa == pytest.approx(1.0, rel=1e-14)
    assert (record.rank, record.size, record.dropped) == (8, 32, 24)


def test_a_block_without_out_kernel_has_no_out_spectrum():
    assert kernel_spectra(AttentionKernels(*[normal(4, 1, 2)] * 3)).out is None


def test_bfloat16_kernels_are_measured_in_float64():
    kernel = jnp.asarray(normal(8, 2, 4), jnp.bfloat16)
    record = kernel_spectra(AttentionKernels(kernel, kernel, kernel)).key.stacked
    np.testing.assert_allclose(
        record.kappa, kappa(np.asarray(kernel, np.float64).reshape(8, 8)), rtol=1e-11
    )
    assert record.dtype == "float64"


def test_the_tolerance_reaches_every_record():
    kernel = np.eye(4).reshape(4, 2, 2) * np.array([1.0, 1e-4])
    spectra = kernel_spectra(AttentionKernels(kernel, kernel, kernel), rtol=1e-3)
    assert [record.rank for record in spectra.query.per_head] == [1, 1]
    assert (spectra.query.stacked.rank, spectra.query.stacked.rtol) == (2, 1e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"key": np.ones((4, 4))}, r"key: shape \(4, 4\) must be \(width, heads, dim\); give one"),
        ({"out": np.ones((2, 2, 2, 4))}, r"out: shape .* must be \(heads, dim, width\)"),
        ({"value": np.full((4, 2, 2), np.inf)}, "value: 16 of 16 numbers are not finite"),
        ({"query": None}, "query = None: must hold at least one array"),
    ],
)
def test_mistakes_name_the_kernel(change, message):
    kernels = AttentionKernels(*[np.ones((4, 2, 2))] * 3)._replace(**change)
    with pytest.raises(UserError, match=message):
        kernel_spectra(kernels)
