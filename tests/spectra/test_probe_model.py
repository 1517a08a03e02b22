"""A probe's rows are the condition numbers of the model's own Jacobians."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.errors import UserError
from condinit_jax.spectra import _probe_model
from condinit_jax.spectra._capture import capture
from condinit_jax.spectra._probe_model import probe_blocks, probe_model
from condinit_jax.spectra._probe_table import COLUMNS, Place

B, N, D, H, L = 3, 5, 8, 2, 3
TOKENS = np.random.default_rng(0).normal(size=(B, N, D)).astype(np.float32)
DIM = D // H


class Layer(nn.Module):
    @nn.compact
    def __call__(self, tokens, _):
        mixed = nn.MultiHeadDotProductAttention(num_heads=H, name="attention")(tokens)
        return tokens + mixed, None


class Stack(nn.Module):
    @nn.compact
    def __call__(self, tokens, *, train=True):
        if train:
            raise AssertionError("the keyword did not arrive")
        axes = {"params": 0, "intermediates": 0}
        scan = nn.scan(Layer, variable_axes=axes, split_rngs={"params": True}, length=L)
        return scan(name="layers")(tokens, None)[0]


@functools.cache
def variables():
    rng = np.random.default_rng(1)
    shapes = jax.eval_shape(functools.partial(Stack().init, train=False), jax.random.key(0), TOKENS)
    return jax.tree.map(lambda leaf: rng.normal(0, 0.5, leaf.shape).astype("float32"), shapes)


@functools.cache
def blocks():
    return capture(Stack(), variables(), TOKENS, train=False)


@jax.jit
def jacobian_by_hand(params, tokens, head):
    """J by reverse mode through Flax's own module, with an out projection that picks one head."""
    attention = nn.MultiHeadDotProductAttention(num_heads=H)
    out = {
        "kernel": jnp.zeros((H, DIM, D)).at[head, :, :DIM].set(jnp.eye(DIM)),
        "bias": jnp.zeros(D),
    }
    roles = ("query", "key", "value")

    def output(kernels):
        own = {"out": out}
        for role, kernel in zip(roles, kernels, strict=True):
            whole = params[role]["kernel"].at[:, head].set(kernel)
            own[role] = {"kernel": whole, "bias": params[role]["bias"]}
        return attention.apply({"params": own}, tokens)[:, :DIM]

    parts = jax.jacrev(output)([params[role]["kernel"][:, head] for role in roles])
    return jnp.concatenate([part.reshape(N, DIM, -1) for part in parts], axis=-1)


def kappa_by_hand(layer, head, example, queries=slice(None)):
    params = jax.tree.map(lambda leaf: leaf[layer], variables()["params"]["layers"]["attention"])
    tokens = blocks()[layer].tokens[example]
    with jax.enable_x64(True):
        params, tokens = jax.tree.map(lambda leaf: leaf.astype("float64"), (params, tokens))
        matrix = np.asarray(jacobian_by_hand(params, tokens, head))[queries]
    values = np.linalg.svd(matrix.reshape(-1, matrix.shape[-1]), compute_uv=False)
    return values[0] / values[-1], values


def test_rows_are_the_condition_numbers_of_the_models_jacobians():
    probe = probe_model(
        Stack(),
        variables()["params"],
        TOKENS,
        kwargs={"train": False},
        examples=(2, 0),
        layers=(0, -1),
        values="all",
        run="a run",
        step=7,
    )
    expected = [(0, 2), (0, 0), (2, 2), (2, 0)]
    places = [(layer, example, head) for layer, example in expected for head in range(H)]
    assert [(row["layer"], row["example"], row["head"]) for row in probe.rows] == places
    for row in probe.rows:
        kappa, values = kappa_by_hand(row["layer"], row["head"], row["example"])
        assert row["kappa"] == pytest.approx(kappa, rel=1e-6)
        assert row["rank"] == row["size"] == len(values) == N * DIM
        place = Place("a run", 7, row["layer"], row["head"], row["example"])
        np.testing.assert_allclose(probe.spectra[place], values, rtol=1e-6)
        assert list(row) == list(COLUMNS)
        assert (row["run"], row["step"], row["path"]) == ("a run", 7, "layers/attention")
        assert row["warning"] == ""
        assert row["tokens"] == N
    assert len(probe.spectra) == len(probe.rows)


def test_some_tokens_are_rows_of_the_same_jacobian():
    probe = probe_blocks(blocks()[:1], heads=1, tokens=3)
    expected, _ = kappa_by_hand(0, 1, 0, np.array([0, 2, 4]))
    assert probe.rows[0]["kappa"] == pytest.approx(expected, rel=1e-6)
    assert probe.rows[0]["tokens"] == 3
    assert probe.rows[0]["size"] == 3 * DIM
    assert probe.rows[0]["kappa"] < kappa_by_hand(0, 1, 0)[0]


def test_kernels_are_measured_head_by_head():
    (row,) = probe_blocks(blocks(), layers=1, heads=1, quantities=("kernels",)).rows[:1]
    kernel = variables()["params"]["layers"]["attention"]["key"]["kernel"][1, :, 1]
    values = np.linalg.svd(kernel, compute_uv=False)
    assert row["kappa_key"] == pytest.approx(values[0] / values[-1], rel=1e-4)
    assert row["kappa"] is None
    assert row["bound"] is None


def test_the_bound_is_that_of_all_tokens():
    few, every = (
        probe_blocks(blocks()[:1], heads=0, quantities=("bound",), tokens=tokens).rows[0]
        for tokens in (2, None)
    )
    assert few["bound"] == every["bound"] > 1
    assert isinstance(few["bound_note"], str)


def test_the_bound_is_held_against_kappa_of_the_same_rows():
    # With kernels this far apart in scale B(J) is violated, see `bound`.
    block = blocks()[0]
    query, key, value, out = block.kernels
    scaled = type(block.kernels)(1e6 * query, 1e-6 * key, value, out)
    biases = (None, None, None)
    block = dataclasses.replace(block, kernels=scaled, biases=biases, output=None)
    quantities = ("jacobian", "bound")
    every, some = (
        probe_blocks([block], heads=0, tokens=tokens, quantities=quantities).rows[0]
        for tokens in (None, 3)
    )
    assert every["kappa"] > every["bound"]
    assert every["bound_note"].startswith("violated: kappa(J) = ")
    assert "violated" not in some["bound_note"]


def test_a_layer_that_the_bound_is_not_about_says_so():
    model = nn.MultiHeadDotProductAttention(num_heads=H)
    context = TOKENS[:, :4] + 1
    params = model.init(jax.random.key(0), TOKENS, context)
    quantities = ("jacobian", "bound")
    (row,) = probe_model(model, params, TOKENS, context, heads=0, quantities=quantities).rows
    assert row["kappa"] > 1
    assert row["bound"] is None
    assert row["bound_note"] == "context: Theorem 3.1 is about self-attention"


def test_another_attention_is_differentiated_as_it_is():
    def without_softmax(head):
        query, key, value = (
            head.tokens @ head.query,
            head.tokens @ head.key,
            head.tokens @ head.value,
        )
        return query @ key.T @ value / N

    class Linear(nn.Module):
        @nn.compact
        def __call__(self, tokens):
            parts = (
                nn.DenseGeneral((H, DIM), use_bias=False, name=name)(tokens)
                for name in ("query", "key", "value")
            )
            mixed = jnp.einsum("bnhd,bmhd,bmhv->bnhv", *parts) / N
            return nn.DenseGeneral(D, axis=(-2, -1), name="out")(mixed)

    params = Linear().init(jax.random.key(0), TOKENS)
    with pytest.raises(UserError, match=r"layer 0 .*or attention="):
        probe_model(Linear(), params, TOKENS)
    probe = probe_model(Linear(), params, TOKENS, attention=without_softmax, heads=0)
    assert probe.rows[0]["method"] == "dense"
    assert probe.rows[0]["size"] == N * DIM
    assert np.isfinite(probe.rows[0]["kappa"])


def test_spectra_hold_the_zeros_too():
    # With 12 tokens of width 2, J has fewer columns than rows, and some of them are dependent.
    model = nn.MultiHeadDotProductAttention(num_heads=1)
    tokens = np.random.default_rng(5).normal(size=(1, 12, 2)).astype(np.float32)
    variables = model.init(jax.random.key(0), tokens)
    probe = probe_model(model, variables, tokens, values="all")
    (row,), (values,) = probe.rows, probe.spectra.values()
    assert len(values) == row["size"] == 12
    assert row["dropped"] >= 4
    assert np.count_nonzero(values > row["rtol"] * values[0]) == row["rank"]


def test_a_callable_is_told_of_every_jacobian():
    heard = []
    probe_blocks(blocks()[:1], quantities=("kernels",), progress=lambda *words: heard.append(words))
    assert [(done, total) for done, total, _ in heard] == [(n, B * H) for n in range(B * H + 1)]
    assert heard[0][2] == "layer 0 (layers/attention), head 0"


def test_without_a_terminal_a_bar_says_nothing(capsys):
    probe_blocks(blocks()[:1], quantities=("kernels",), progress=True)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("error", [UserError("no"), RuntimeError("out of memory")])
def test_a_failure_names_layer_and_head(monkeypatch, error):
    def fail(head, **options):
        raise error

    monkeypatch.setattr(_probe_model, "jacobian_spectrum", fail)
    with pytest.raises(type(error)) as caught:
        probe_blocks(blocks(), layers=1, heads=1)
    told = str(caught.value) + "".join(getattr(caught.value, "__notes__", ()))
    assert "layer 1 (layers/attention), head 1" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 3}, "layers = 3: there are 3, counted from 0"),
        ({"heads": (0, -3)}, "heads = -3: there are 2"),
        ({"layers": "0"}, "layers = '0': must be an integer"),
        ({"tokens": 0}, "tokens = 0: must be at least 1"),
        ({"quantities": ("jacobians",)}, "quantities: 'jacobians' is not among 'jacobian'"),
        ({"quantities": "jacobian"}, "give a tuple"),
        ({"values": "some"}, "values: 'some'"),
        ({"mask": np.ones((4, 4), bool)}, r"layer 0 \(layers/attention\): mask: shape \(4, 4\)"),
    ],
)
def test_a_wrong_option_is_one_error(options, message):
    with pytest.raises(UserError, match=message):
        probe_blocks(blocks(), **options)


@pytest.mark.parametrize(
    ("examples", "message"),
    [(0, "examples = 0: must be at least 1"), ((), "examples: is empty; give at least one")],
)
def test_a_wrong_count_of_examples_is_one_error(examples, message):
    with pytest.raises(UserError, match=message):
        probe_model(Stack(), variables(), TOKENS, kwargs={"train": False}, examples=examples)


@pytest.mark.parametrize("quantities", [("jacobian",), ("kernels",), ("bound",)])
def test_a_misspelt_option_is_an_error_whatever_is_measured(quantities):
    message = r"^memori: unknown option; did you mean memory\? There are values, method, memory"
    with pytest.raises(UserError, match=message):
        probe_blocks(blocks()[:1], quantities=quantities, memori=1)
    with pytest.raises(UserError, match=r"^qqq: unknown option; there are values"):
        probe_blocks(blocks()[:1], quantities=quantities, qqq=1)
