"""The dense Jacobian against jacfwd, finite differences and closed forms."""

import math

import jax
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._dense import attention_jacobian, block_output
from condinit_jax.spectra._head import Head, head_output
from tests.spectra.attention_variants import VARIANTS, Variant, grouped, softmax


@pytest.fixture(autouse=True)
def _float64():
    with jax.enable_x64(True):
        yield


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def unflat(vector, like):
    leaves, structure = jax.tree.flatten(like)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
    parts = np.split(vector, ends)
    return jax.tree.unflatten(
        structure, [p.reshape(leaf.shape) for p, leaf in zip(parts, leaves, strict=True)]
    )


def finite_differences(attention, kernels, tokens, wrt):
    """Central differences, a column at a time."""
    changed = kernels if wrt == "kernels" else tokens
    at, step = flat(changed), 1e-5

    def output(vector):
        new = unflat(vector, changed)
        pair = (new, tokens) if wrt == "kernels" else (kernels, new)
        return np.asarray(attention(*pair)).ravel()

    columns = [output(at + row) - output(at - row) for row in step * np.eye(at.size)]
    return np.stack(columns, axis=1) / (2 * step)


@pytest.mark.parametrize("name", VARIANTS)
def test_it_is_the_jacobian_of_every_variant(name):
    kernels, tokens = VARIANTS[name].draw()
    attention = VARIANTS[name].attention
    compiled = jax.jit(attention)
    # What enters makes no difference to most variants, and every case is a compilation.
    for wrt in ("kernels", "tokens") if name in ("softmax", "cross", "nystrom") else ("kernels",):
        jacobian = attention_jacobian(attention, kernels, tokens, wrt=wrt, batch_size=13)
        assert jacobian.dtype == np.float64
        differences = finite_differences(compiled, kernels, tokens, wrt)
        assert np.abs(differences).max() > 1e-3
        np.testing.assert_allclose(jacobian, differences, atol=1e-8 * np.abs(differences).max())
        if wrt == "kernels":
            rows = jacobian.shape[0]
            tree = jax.jit(jax.jacfwd(attention))(kernels, tokens)
            whole = np.concatenate([np.reshape(leaf, (rows, -1)) for leaf in tree], axis=1)
            np.testing.assert_allclose(jacobian, whole, atol=1e-13)


def test_it_has_the_closed_forms_of_the_paper():
    (query, key, value), tokens = VARIANTS["softmax"].draw(3)
    count, width, dim = len(tokens), *query.shape
    logits = tokens @ query @ key.T @ tokens.T / math.sqrt(dim)
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    by_query, by_key, by_value = (
        np.zeros((count, dim, width, dim)) for _ in range(3)
    )  # fmt: skip
    for i in range(count):
        softmax_derivative = np.diag(weights[i]) - np.outer(weights[i], weights[i])
        mixed = (tokens @ value).T @ softmax_derivative / math.sqrt(dim)  # V^T Lambda_i
        by_query[i] = np.einsum("w,ab->awb", tokens[i], mixed @ tokens @ key)
        by_key[i] = np.einsum("aw,b->awb", mixed @ tokens, tokens[i] @ query)
        by_value[i] = np.einsum("w,ab->awb", weights[i] @ tokens, np.eye(dim))
    expected = np.concatenate(
        [part.reshape(count * dim, width * dim) for part in (by_query, by_key, by_value)], axis=1
    )
    jacobian = attention_jacobian(softmax, (query, key, value), tokens)
    np.testing.assert_allclose(jacobian, expected, atol=1e-13)
    # The value part is PX (x) I, in the order in which rows and columns are raveled here.
    np.testing.assert_allclose(
        jacobian[:, -width * dim :], np.kron(weights @ tokens, np.eye(dim)), atol=1e-14
    )


@pytest.mark.parametrize("batch_size", [1, 10, 1000])
def test_the_batch_size_changes_nothing(batch_size):
    kernels, tokens = VARIANTS["softmax"].draw()
    whole = attention_jacobian(softmax, kernels, tokens)
    assert whole.shape == (27, 63)
    np.testing.assert_allclose(
        attention_jacobian(softmax, kernels, tokens, batch_size=batch_size), whole, atol=1e-15
    )


@pytest.mark.parametrize(
    "as_tree", [list, lambda k: AttentionKernels(*k), lambda k: dict(enumerate(k))]
)
def test_any_pytree_of_kernels_gives_its_columns_in_order(as_tree):
    kernels, tokens = VARIANTS["softmax"].draw()
    jacobian = attention_jacobian(
        lambda tree, tokens: softmax([tree[i] for i in range(3)], tokens), as_tree(kernels), tokens
    )
    np.testing.assert_array_equal(jacobian, attention_jacobian(softmax, kernels, tokens))


def test_float32_stays_float32():
    kernels, tokens = jax.tree.map(np.float32, VARIANTS["softmax"].draw())
    assert attention_jacobian(softmax, kernels, tokens).dtype == np.float32


def test_it_compiles_once_for_a_function_and_for_a_partial():
    kernels, tokens = VARIANTS["softmax"].draw(5)
    traces = []

    def attention(gain, kernels, tokens):
        traces.append(gain)
        return gain * softmax(kernels, tokens)

    one = attention_jacobian(jax.tree_util.Partial(attention, 1.0), kernels, tokens)
    traced = len(traces)
    two = attention_jacobian(jax.tree_util.Partial(attention, 2.0), kernels, tokens)
    assert len(traces) == traced
    np.testing.assert_allclose(two, 2 * one, atol=1e-15)


def test_an_object_that_can_change_is_differentiated_as_it_is_now():
    class Scaled:
        __hash__ = None
        gain = 1.0

        def __call__(self, kernels, tokens):
            return self.gain * softmax(kernels, tokens)

    kernels, tokens = VARIANTS["softmax"].draw()
    attention = Scaled()
    one = attention_jacobian(attention, kernels, tokens)
    attention.gain = 2.0
    np.testing.assert_allclose(attention_jacobian(attention, kernels, tokens), 2 * one, atol=1e-15)


def test_it_can_be_traced():
    kernels, tokens = VARIANTS["softmax"].draw()
    traced = jax.jit(lambda k, t: attention_jacobian(softmax, k, t))(kernels, tokens)
    np.testing.assert_allclose(traced, attention_jacobian(softmax, kernels, tokens), atol=1e-15)


def test_a_block_is_all_its_heads_through_the_out_projection():
    kernels, tokens = VARIANTS["grouped"].draw()
    np.testing.assert_allclose(
        block_output(AttentionKernels(*kernels), tokens), grouped(kernels, tokens), atol=1e-14
    )


def test_the_out_kernel_is_differentiated_on_request_alone():
    kernels, tokens = VARIANTS["grouped"].draw()
    block = AttentionKernels(*kernels)
    expected = attention_jacobian(grouped, kernels, tokens)
    own = sum(kernel.size for kernel in kernels[:3])
    np.testing.assert_allclose(
        attention_jacobian(block_output, block, tokens), expected[:, :own], atol=1e-14
    )
    np.testing.assert_allclose(
        attention_jacobian(block_output, block, tokens, wrt="kernels_and_out"), expected, atol=1e-14
    )


def test_a_block_without_out_kernel_puts_heads_side_by_side():
    kernels, tokens = VARIANTS["grouped"].draw()
    block = AttentionKernels(*kernels[:3])
    identity = np.eye(12).reshape(4, 3, 12)
    np.testing.assert_allclose(
        block_output(block, tokens), grouped((*kernels[:3], identity), tokens), atol=1e-14
    )


def test_a_block_takes_the_options_of_attention_heads():
    kernels, tokens = VARIANTS["causal"].draw()
    block = AttentionKernels(*(kernel[:, None] for kernel in kernels))
    masked = jax.tree_util.Partial(block_output, mask=np.tri(len(tokens), dtype=bool))
    np.testing.assert_allclose(
        attention_jacobian(masked, block, tokens),
        attention_jacobian(VARIANTS["causal"].attention, kernels, tokens),
        atol=1e-14,
    )


def test_head_output_is_the_same_attention():
    kernels, tokens = VARIANTS["softmax"].draw()
    np.testing.assert_allclose(
        head_output(Head(tokens, *kernels)), softmax(kernels, tokens), atol=1e-15
    )


KERNELS, INPUT = Variant(softmax).draw()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernels": (KERNELS[0], np.full((7, 3), np.nan), KERNELS[2])}, r"kernels\[1\]: 21 of 21"),
        ({"tokens": np.where(INPUT > 2, np.inf, INPUT)}, r"tokens: 1 of 63 numbers are not finite"),
        ({"kernels": {"query": np.ones((7, 3), int)}}, r"kernels\['query'\]: int64; must be an ar"),
        ({"kernels": (1.0,)}, r"kernels\[0\]: float; must be an array"),
        ({"kernels": ()}, r"kernels = \(\): must hold at least one array"),
        ({"wrt": "weights"}, "wrt = 'weights': must be one of kernels, kernels_and_out, tokens"),
        ({"batch_size": 0}, "batch_size = 0: must be a whole number, at least 1"),
        ({"attention_fn": 3}, r"attention_fn = 3: must be a function of \(kernels, tokens\)"),
        ({"attention_fn": lambda k, t: (t, t)}, "attention_fn: returned tuple; it must return one"),
        ({"attention_fn": lambda k, t: t > 0}, "attention_fn: returned bool; it must return one"),
        (
            {"attention_fn": lambda k, t: mask_everything(k, t)},
            "attention_fn: its Jacobian is not finite .*; a query that sees no key",
        ),
    ],
)
def test_mistakes_are_told_in_one_line(change, message):
    arguments = {"attention_fn": softmax, "kernels": KERNELS, "tokens": INPUT} | change
    with pytest.raises(UserError, match=message) as caught:
        attention_jacobian(**arguments)
    assert "\n" not in str(caught.value)


def mask_everything(kernels, tokens):
    nothing = np.zeros((len(tokens), len(tokens)), bool)
    return head_output(Head(tokens, *kernels, mask=nothing))


def test_an_out_kernel_that_does_not_fit_is_refused():
    kernels, tokens = VARIANTS["grouped"].draw()
    block = AttentionKernels(*kernels[:3], out=np.ones((3, 3, 7)))
    with pytest.raises(UserError, match=r"out: shape \(3, 3, 7\) must be .* = \(4, 3, width\)"):
        block_output(block, tokens)
