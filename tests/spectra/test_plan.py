"""Sides and sizes against their formulas, and how well J is known."""

import math

import numpy as np
import pytest

from condinit_jax.spectra import jacobian_spectrum
from condinit_jax.spectra._plan import plan_head, weight_rounding
from tests.spectra.softmax_heads import HEADS, dense_jacobian, plain, replace

EPS = np.finfo(float).eps


@pytest.mark.parametrize(
    ("tokens", "width", "dim", "side", "nullity"),
    [
        (7, 9, 4, "rows", 0),  # 28 rows, 3 * 4 * 7 = 84 columns
        (5, 30, 3, "rows", 0),
        (40, 6, 3, "columns", 9),  # 120 rows, 54 columns, gauge 3 x 3
        (18, 6, 3, "columns", 9),  # 54 rows and 54 columns, 45 without the gauge
        (15, 6, 3, "rows", 0),  # 45 rows, as many as columns without the gauge
    ],
)
def test_the_square_matrix_stands_on_the_shorter_side(tokens, width, dim, side, nullity):
    plan = plan_head(plain(tokens, width, dim), None)
    short = min(tokens, width)
    assert (plan.rows, plan.columns) == (tokens * dim, 3 * dim * short)
    assert (plan.side, plan.nullity) == (side, nullity)
    assert plan.square == (plan.rows if side == "rows" else plan.columns)
    assert plan.rank == np.linalg.matrix_rank(dense_jacobian(plain(tokens, width, dim)))
    assert plan.size == min(tokens * dim, 3 * dim * width)
    assert plan.rtol == plan.resolution == max(tokens * dim, 3 * dim * width) * EPS


def test_a_tolerance_of_the_callers_is_kept():
    plan = plan_head(plain(), 1e-3)
    assert plan.rtol == 1e-3
    assert plan.resolution < 1e-12


def test_large_heads_are_absorbed_in_blocks_that_take_less_memory():
    head = plain(70, 80, 64)
    plan = plan_head(head, None)
    assert plan.square == 70 * 64 > 4096
    assert plan.blocks == math.ceil(3 * 64 * 70 / (70 * 64)) == 3
    whole = 3 * 8 * plan.rows * plan.columns
    assert plan.bytes("qr") < whole
    assert plan.bytes("matrix_free") < plan.bytes("gram") < plan.bytes("qr")
    assert plan_head(plain(), None).blocks == 1


@pytest.mark.parametrize("name", ["plain", "rotary", "qk-norm", "causal"])
def test_the_rounding_of_weights_is_that_of_the_largest_logits(name):
    rounding = weight_rounding(HEADS[name])
    assert 0 < rounding < 20 * EPS
    hot = replace(HEADS["plain"], scale=np.float64(100.0))
    cold = replace(HEADS["plain"], scale=np.float64(1.0))
    assert weight_rounding(hot) > 30 * weight_rounding(cold)


def test_what_attention_does_not_see_is_not_rounded():
    causal = HEADS["causal"]
    finite = replace(causal, mask=None, logit_bias=np.where(causal.mask, 0.0, -1e9))
    assert weight_rounding(finite) == pytest.approx(weight_rounding(causal))


def weights_changed(head, relative, seed):
    """J of the head whose attention weights are off by so much, each by its own sign."""
    from condinit_jax.spectra._head import project

    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(len(head.tokens),) * 2)
    logits = np.log(project(head).weights) + relative * signs
    own = project(head)
    bias = logits - own.scale * (own.query @ own.key.T)
    return dense_jacobian(replace(head, logit_bias=bias))


@pytest.mark.parametrize("seed", range(3))
def test_a_relative_change_of_the_weights_moves_the_least_value_by_kappa_times_it_at_most(seed):
    head, delta = plain(6, 9, 4, seed), 1e-6
    exact = np.linalg.svd(dense_jacobian(head), compute_uv=False)
    changed = np.linalg.svd(weights_changed(head, delta, seed), compute_uv=False)
    moved = abs(changed[-1] / exact[-1] - 1)
    limit = delta * exact[0] / exact[-1]
    assert 1e-4 * limit < moved < limit


def extended_values(matrix):
    """Singular values by one-sided Jacobi rotations in extended precision, largest first."""
    columns = np.array(matrix if matrix.shape[0] >= matrix.shape[1] else matrix.T)
    for _ in range(30):
        largest = np.longdouble(0)
        for i in range(columns.shape[1] - 1):
            for j in range(i + 1, columns.shape[1]):
                a, b = columns[:, i].copy(), columns[:, j].copy()
                aa, bb, ab = a @ a, b @ b, a @ b
                size = abs(ab) / np.sqrt(aa * bb)
                largest = max(largest, size)
                if size > 1e-18:
                    zeta = (bb - aa) / (2 * ab)
                    turn = np.sign(zeta) / (abs(zeta) + np.sqrt(1 + zeta**2)) if zeta else 1
                    cosine = 1 / np.sqrt(1 + turn**2)
                    columns[:, i] = cosine * (a - turn * b)
                    columns[:, j] = cosine * (turn * a + b)
        if largest < 1e-17:
            break
    return np.sort(np.sqrt((columns**2).sum(axis=0)))[::-1]


def extended_kappa(head):
    """kappa(J) from the closed form of J, all in extended precision."""
    tokens, query, key, value = (
        np.asarray(array, np.longdouble) for array in (head.tokens, *head.kernels)
    )
    count, dim = len(tokens), query.shape[1]
    logits = (tokens @ query) @ (tokens @ key).T * np.longdouble(head.scale)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    rows = []
    for i in range(count):
        centred = tokens - weights[i] @ tokens
        mixed = (centred @ value).T * weights[i] * np.longdouble(head.scale)
        by_query = np.einsum("w,ab->awb", tokens[i], mixed @ (centred @ key))
        by_key = np.einsum("aw,b->awb", mixed @ centred, tokens[i] @ query)
        by_value = np.einsum("w,ab->awb", weights[i] @ tokens, np.eye(dim, dtype=np.longdouble))
        rows.append(np.concatenate([a.reshape(dim, -1) for a in (by_query, by_key, by_value)], 1))
    values = extended_values(np.concatenate(rows))
    return float(values[0] / values[-1])


@pytest.mark.skipif(np.finfo(np.longdouble).eps > 1e-18, reason="no extended precision here")
@pytest.mark.parametrize("scale", [0.5, 50.0, 500.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_error_of_a_record_covers_the_rounding_of_large_logits(scale, seed):
    head = plain(5, 6, 3, seed)
    head = replace(head, tokens=head.tokens[:1] + 0.02 * head.tokens, scale=np.float64(scale))
    record = jacobian_spectrum(head)
    assert record.rank == record.size
    missed = abs(record.kappa / extended_kappa(head) - 1)
    assert missed <= 10 * record.error
    usual = record.size**0.5 * EPS * record.kappa
    if scale < 1:
        assert usual <= record.error < 4 * usual
    else:
        assert record.error > 2 * usual
