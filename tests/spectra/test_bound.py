"""Theorem 3.1's bound: its factors, where it fails, and the bound that has a proof."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._bound import bound
from condinit_jax.spectra._condition_number import condition_number
from condinit_jax.spectra._dense import attention_jacobian
from condinit_jax.spectra._head import Head, attention_heads, head_output


def draw(count, width, dim, seed=0, scale=1.0):
    generator = np.random.default_rng(seed)
    kernels = scale / np.sqrt(width) * generator.standard_normal((3, width, dim))
    return Head(generator.standard_normal((count, width)), *kernels)


def jacobian(head):
    """J in float64, by the package's dense oracle."""
    with jax.enable_x64(True):
        fixed = jax.tree_util.Partial(output, head)
        return np.asarray(attention_jacobian(fixed, head.kernels, head.tokens))


def output(head, kernels, tokens):
    return head_output(dataclasses.replace(head, tokens=tokens), kernels)


def test_every_factor_is_that_of_the_theorem():
    head = draw(4, 6, 3)
    result = bound(head, jacobian=condition_number(jacobian(head)))
    logits = head.tokens @ head.query @ head.key.T @ head.tokens.T / np.sqrt(3)
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    derivative = np.zeros((16, 16))
    for i, row in enumerate(weights):
        derivative[4 * i : 4 * i + 4, 4 * i : 4 * i + 4] = np.diag(row) - np.outer(row, row)
    by_hand = {
        "tokens": head.tokens, "softmax_derivative": derivative, "weights": weights,
        "query": head.query, "key": head.key, "value": head.value, "mixed": weights @ head.tokens,
    }  # fmt: skip
    kappas = {name: condition_number(matrix).kappa for name, matrix in by_hand.items()}
    for name, kappa in kappas.items():
        assert getattr(result, name).kappa == pytest.approx(kappa, rel=1e-9), name
    limit = kappas["tokens"] ** 3 * kappas["softmax_derivative"] * kappas["value"]
    limit *= kappas["query"] + kappas["key"]
    limit += kappas["tokens"] * kappas["weights"]
    assert result.limit == pytest.approx(limit, rel=1e-8)
    assert result.holds is True
    assert result.slack == pytest.approx(limit / result.measured.kappa, rel=1e-8)
    assert result.note == ""


def counterexample(gauge):
    """Two one-hot tokens, kernels of one column: every kappa but P's is 1."""
    up, down = np.array([[1.0], [-1.0]]), np.array([[1.0], [0.0]])
    return Head(np.eye(2), gauge * up, down / gauge, down)


@pytest.mark.parametrize("gauge", [1.0, 10.0, 1e3])
def test_the_bound_is_violated_by_an_explicit_head_of_full_rank(gauge):
    head = counterexample(gauge)
    p = 1 / (1 + np.exp(-1))
    s = p * (1 - p)
    # J J^T has the eigenvectors (1, -1) and (1, 1).
    squares = s**2 * (gauge**-2 + 4 * gauge**2) + (2 * p - 1) ** 2, s**2 * gauge**-2 + 1
    exact = np.sqrt(max(squares) / min(squares))
    measured = condition_number(jacobian(head))
    assert measured.kappa == pytest.approx(exact, rel=1e-10)
    assert (measured.rank, measured.size) == (2, 2)
    result = bound(head, jacobian=measured)
    for name in ("tokens", "softmax_derivative", "query", "key", "value"):
        assert getattr(result, name).kappa == pytest.approx(1, rel=1e-12)
    assert result.limit == pytest.approx(2 + 1 / (2 * p - 1), rel=1e-12)
    assert result.holds is (gauge < 10.6)
    assert ("violated" in result.note) is (gauge > 10.6)
    assert result.proven_limit >= measured.kappa


def test_no_head_is_safe_because_the_bound_does_not_see_what_kappa_does():
    head = draw(4, 6, 3)
    record = condition_number(jacobian(head))
    limit = bound(head).limit
    scale = 10 * limit
    rescaled = dataclasses.replace(head, query=scale * head.query, key=head.key / scale)
    result = bound(rescaled, jacobian=condition_number(jacobian(rescaled)))
    assert result.limit == pytest.approx(limit, rel=1e-9)
    assert result.measured.rank == record.rank == 12
    assert result.holds is False
    by_key = jacobian(head)[:, 18:36]
    assert np.linalg.matrix_rank(by_key) == 3 * (4 - 1)


@given(
    st.sampled_from([(1, 1, 2), (2, 2, 2), (3, 5, 1), (5, 6, 4)]),
    st.floats(0.01, 10),
    st.integers(0, 99),
)
def test_the_proven_bound_holds(sizes, scale, seed):
    count, width, dim = sizes
    head = draw(count, width, dim, seed, scale)
    head = dataclasses.replace(
        head,
        query_bias=np.linspace(-1, 1, dim),
        key_bias=np.linspace(3, 1, dim),
        value_bias=np.linspace(-5, 2, dim),
        mask=np.tri(count, dtype=bool),
        scale=0.7,
    )
    measured = condition_number(jacobian(head))
    assert measured.kappa <= bound(head).proven_limit * (1 + 1e-9 + measured.error)


def test_the_proven_bound_needs_full_row_rank():
    assert bound(draw(7, 6, 3)).proven_limit == np.inf
    assert np.isfinite(bound(draw(6, 6, 3)).proven_limit)


def layer_normalised(count, width):
    head = draw(count, width, 2)
    return dataclasses.replace(head, tokens=head.tokens - head.tokens.mean(axis=1, keepdims=True))


@pytest.mark.parametrize(
    ("head", "parts"),
    [
        (layer_normalised(6, 6), ["kappa(X) as written is infinite: rank 5 of 6"]),
        (draw(7, 4, 2), ["X has more tokens (7) than width (4)"]),
        (draw(12, 4, 2), ["J cannot have full rank: 24 rows, rank at most 20"]),
        (
            dataclasses.replace(draw(4, 6, 2), mask=np.tri(4, dtype=bool)),
            ["6 attention weights are zero"],
        ),
        (dataclasses.replace(draw(4, 6, 2), value=np.eye(6, 2) * [1, 0]),
            ["kappa(W_V) as written is infinite: rank 1 of 2"]),
        (dataclasses.replace(draw(4, 6, 2), query=np.zeros((6, 2))),
            ["vacuous", "kappa(W_Q) as written", "kappa(P) as written is infinite: rank 1 of 4"]),
        (draw(1, 6, 2), ["vacuous"]),
        (dataclasses.replace(draw(4, 6, 2), query_bias=np.ones(2)), ["no factor for the query bi"]),
        (
            jax.tree.map(np.float32, layer_normalised(6, 6)),
            ["kappa(X) may be that of the rounding of X to float32"],
        ),
    ],
)  # fmt: skip
def test_the_note_says_where_the_theorem_is_silent(head, parts):
    note = bound(head).note
    for part in parts:
        assert part in note
    assert "\n" not in note


def test_a_jacobian_of_deficient_rank_is_noted():
    head = dataclasses.replace(draw(4, 6, 3), query=np.zeros((6, 3)), value=np.zeros((6, 3)))
    record = condition_number(jacobian(head))
    assert record.rank == 3
    assert (
        "J has rank 3 of 12, and the theorem supposes full rank"
        in bound(head, jacobian=record).note
    )


def test_a_kappa_known_only_from_below_proves_violations_alone():
    head, record = counterexample(1.0), condition_number(np.array([2.0, 1.0]))
    unsure = dataclasses.replace(record, converged=False)
    assert bound(head, jacobian=record).holds is True
    assert bound(head, jacobian=unsure).holds is None
    assert bound(head, jacobian=dataclasses.replace(unsure, kappa=1e3)).holds is False
    assert bound(head).holds is bound(head).slack is None


def test_neither_is_claimed_within_the_error_of_kappa():
    head, record = counterexample(1.0), condition_number(np.array([5.0, 1.0]))
    assert bound(head, jacobian=record).holds is False
    assert bound(head, jacobian=dataclasses.replace(record, error=0.2)).holds is None
    below = dataclasses.replace(condition_number(np.array([4.0, 1.0])), error=0.2)
    assert bound(head, jacobian=below).holds is None


@pytest.mark.parametrize(("count", "width", "dim"), [(9, 4, 3), (9, 2, 5), (20, 3, 2)])
def test_the_rank_that_j_cannot_pass_is_reached(count, width, dim):
    head = draw(count, width, dim)
    rank = np.linalg.matrix_rank(jacobian(head))
    note = bound(head).note
    assert rank == count * dim or f"{count * dim} rows, rank at most {rank}" in note


def test_float32_heads_are_bounded_in_float64():
    head = draw(4, 6, 3)
    result = bound(jax.tree.map(jnp.float32, head))
    assert result.query.dtype == result.weights.dtype == "float64"
    assert result.limit == pytest.approx(bound(head).limit, rel=1e-4)


def test_the_tolerance_reaches_the_factors():
    head = dataclasses.replace(draw(4, 6, 2), value=np.eye(6, 2) * [1, 1e-4])
    assert bound(head).value.kappa == pytest.approx(1e4)
    assert bound(head, rtol=1e-3).value.kappa == 1


def test_a_sentence_names_every_factor():
    text = str(bound(counterexample(100.0), jacobian=condition_number(np.array([50.0, 1.0]))))
    assert text.startswith(
        "B(J) 4.164 from kappas of X 1, Lambda(P) 1, W_Q 1, W_K 1, W_V 1, P 2.16"
    )
    assert "violated: kappa(J) = 50 is above B(J)" in text


STACK = attention_heads(AttentionKernels(*[np.ones((6, 2, 3))] * 3), np.ones((4, 6)))


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (STACK, r"head: is a stack of 2; give one, jax.tree.map"),
        (dataclasses.replace(draw(4, 6, 2), context=np.ones((3, 6))), "context: .* self-attention"),
        (
            dataclasses.replace(draw(4, 6, 2), key_map=jax.tree_util.Partial(jnp.tanh)),
            "key_map: Theorem 3.1 has no factor",
        ),
        (dataclasses.replace(draw(4, 6, 2), key=np.ones((5, 2))), "key: kernel .* reads width 5"),
        (dataclasses.replace(draw(4, 6, 2), tokens=np.full((4, 6), np.nan)), "tokens: 24 of 24"),
        (
            dataclasses.replace(draw(4, 6, 2), value_bias=np.array([1, np.inf])),
            "value_bias: 1 of 2",
        ),
        (
            dataclasses.replace(
                draw(3, 6, 2), mask=np.array([[1, 1, 1], [0, 0, 0], [1, 0, 0]]) > 0
            ),
            "mask: query 1 sees no key",
        ),
    ],
)
def test_what_the_theorem_is_not_about_is_refused(head, message):
    with pytest.raises(UserError, match=message) as caught:
        bound(head)
    assert "\n" not in str(caught.value)


def test_a_bare_number_is_no_measurement():
    with pytest.raises(UserError, match="jacobian: float; must be a ConditionNumber"):
        bound(draw(4, 6, 2), jacobian=3.0)
