import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax import AttentionKernels
from condinit_jax.errors import UserError
from condinit_jax.spectra import (
    attention_heads,
    attention_spectrum,
    block_output,
    jacobian_spectra,
)
from tests.spectra.attention_variants import VARIANTS


def exact(function, argument, rtol):
    """Kappa, rank and size by jacfwd and NumPy's SVD in float64."""
    with jax.enable_x64(True):
        argument = jax.tree.map(jnp.asarray, argument)
        parts = jax.tree.leaves(jax.jacfwd(function)(argument))
        rows = jax.eval_shape(function, argument).size
        matrix = np.concatenate([np.asarray(part).reshape(rows, -1) for part in parts], axis=1)
    values = np.linalg.svd(matrix, compute_uv=False)
    kept = values[values > rtol * values[0]]
    return kept[0] / kept[-1], len(kept), len(values)


@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
def test_kappa_of_any_attention_is_that_of_the_dense_svd(name):
    attention = VARIANTS[name].attention
    kernels, tokens = VARIANTS[name].draw()
    record = attention_spectrum(attention, kernels, tokens)
    kappa, rank, size = exact(lambda kernels: attention(kernels, tokens), kernels, record.rtol)
    assert (record.rank, record.size, record.dropped) == (rank, size, size - rank)
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


@pytest.mark.parametrize("name", ["softmax", "causal"])
def test_the_jacobian_in_the_tokens(name):
    attention = VARIANTS[name].attention
    kernels, tokens = VARIANTS[name].draw()
    record = attention_spectrum(attention, kernels, tokens, wrt="tokens")
    kappa, rank, size = exact(lambda tokens: attention(kernels, tokens), tokens, record.rtol)
    assert (record.rank, record.size) == (rank, size)
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


def block(tokens=5, width=12, heads=2, dim=3):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(3, width, heads, dim)) / width**0.5
    out = rng.normal(size=(heads, dim, width)) / (heads * dim) ** 0.5
    return AttentionKernels(*inputs, out), rng.normal(size=(tokens, width))


def test_a_block_with_its_out_projection():
    kernels, tokens = block()
    record = attention_spectrum(block_output, kernels, tokens)

    def output(inputs):
        return block_output(AttentionKernels(*inputs, kernels.out), tokens)

    kappa, rank, size = exact(output, tuple(kernels[:3]), record.rtol)
    # The out kernel has rank 6: 5 tokens see no more than that of their 12 outputs each.
    assert (record.rank, record.size) == (rank, size)
    assert rank == 30 < size
    assert record.kappa == pytest.approx(kappa, rel=1e-6)


def test_without_an_out_projection_the_block_is_as_bad_as_its_heads_together():
    kernels, tokens = block()
    kernels = kernels._replace(out=None)
    whole = attention_spectrum(block_output, kernels, tokens)
    heads = jacobian_spectra(attention_heads(kernels, tokens))
    # Heads share no parameter, so J of the block is block-diagonal.
    largest = max(record.sigma_max for record in heads)
    smallest = min(record.sigma_min for record in heads)
    assert whole.kappa == pytest.approx(largest / smallest, rel=1e-9)
    assert whole.rank == sum(record.rank for record in heads)


def test_a_smaller_width_changes_nothing():
    kernels, tokens = block(tokens=4, width=20)
    whole = attention_spectrum(block_output, kernels, tokens)
    short = attention_spectrum(block_output, kernels, tokens, reduce_width=True)
    assert (short.rank, short.size, short.dropped) == (whole.rank, whole.size, whole.dropped)
    assert short.kappa == pytest.approx(whole.kappa, rel=1e-10)


def test_products_alone_lead_to_the_same_kappa():
    kernels, tokens = block(tokens=4, width=20, heads=3, dim=2)
    kernels = kernels._replace(out=None)
    dense = attention_spectrum(block_output, kernels, tokens)
    free = attention_spectrum(block_output, kernels, tokens, method="matrix_free")
    assert free.method == "matrix_free"
    assert free.converged
    assert free.size == dense.size
    assert free.kappa == pytest.approx(dense.kappa, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "gram"}, r"method = 'gram': must be one of auto, qr, matrix_free"),
        ({"method": "qr", "memory": 10.0}, r"dense Jacobian of 60 x 216 needs about"),
        ({"reduce_width": True, "wrt": "tokens"}, r"reduce_width: leaves no tokens"),
        ({"wrt": "inputs"}, r"inputs"),
        ({"memory": -1}, r"memory = -1"),
    ],
)
def test_bad_options_are_refused_in_one_line(options, message):
    kernels, tokens = block()
    with pytest.raises(UserError, match=message) as error:
        attention_spectrum(block_output, kernels, tokens, **options)
    assert "\n" not in str(error.value)


def test_what_is_not_finite_is_refused():
    kernels, tokens = block()
    tokens[1, 2] = np.inf
    with pytest.raises(UserError, match=r"tokens: 1 of 60 numbers are not finite"):
        attention_spectrum(block_output, kernels, tokens)
