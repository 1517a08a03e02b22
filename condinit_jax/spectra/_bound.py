"""The bound of Theorem 3.1 on the condition number of a head's Jacobian, factor by factor."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._condition_number import ConditionNumber, condition_number
from condinit_jax.spectra._dense import check_arrays
from condinit_jax.spectra._head import Head, check_shapes, project
from condinit_jax.spectra._precision import float64, on_host
from condinit_jax.spectra._softmax_derivative import softmax_derivative_spectrum


@dataclasses.dataclass(frozen=True)
class Bound:
    """B(J) of Theorem 3.1 and what it is made of, beside the condition number that it bounds.

    Every factor is effective: over the non-zero singular values, with its rank beside it.

    Attributes:
        tokens: of X, (N, D).
        softmax_derivative: of Lambda(P), the block diagonal matrix of Diag(p_i) - p_i p_i^T, (N^2,
            N^2). Its known null vectors are left out exactly, so that no tolerance is needed.
        weights: of P, (N, N).
        query: of W_Q, (D, d).
        key: of W_K, (D, d).
        value: of W_V, (D, v).
        mixed: of P X, (N, D); no factor of B(J), but of `proven_limit`.
        limit: B(J) = kappa(X)^3 kappa(Lambda(P)) kappa(W_V) (kappa(W_Q) + kappa(W_K))
            + kappa(X) kappa(P).
        proven_limit: an upper bound on kappa(J) with a proof, see `bound`; infinite unless P X has
            full row rank.
        measured: the record of J that was given, or None.
        holds: whether kappa(J) <= B(J); None if that was not measured, or not well enough to tell.
        slack: B(J) / kappa(J), below 1 where the bound is violated; None if not measured.
        note: one line on where the theorem is violated, vacuous or does not apply; may be empty.
    """

    tokens: ConditionNumber
    softmax_derivative: ConditionNumber
    weights: ConditionNumber
    query: ConditionNumber
    key: ConditionNumber
    value: ConditionNumber
    mixed: ConditionNumber
    limit: float
    proven_limit: float
    measured: ConditionNumber | None
    holds: bool | None
    slack: float | None
    note: str

    def __str__(self) -> str:
        """One line for people."""
        factors = ", ".join(
            f"{name} {record.kappa:.3g}"
            for name, record in (
                ("X", self.tokens),
                ("Lambda(P)", self.softmax_derivative),
                ("W_Q", self.query),
                ("W_K", self.key),
                ("W_V", self.value),
                ("P", self.weights),
            )
        )
        text = f"B(J) {self.limit:.4g} from kappas of {factors}"
        if self.measured is not None:
            text += f"; kappa(J) {self.measured.kappa:.4g}"
        return f"{text}; {self.note}" if self.note else text


def bound(
    head: Head, *, jacobian: ConditionNumber | None = None, rtol: float | None = None
) -> Bound:
    """B(J) of Theorem 3.1 for one self-attention head, with every factor, and what became of it.

    The theorem says kappa(J) <= B(J) for J of full rank, B(J) = kappa(X)^3 kappa(Lambda(P))
    kappa(W_V) (kappa(W_Q) + kappa(W_K)) + kappa(X) kappa(P). J never has full column rank and
    Lambda(P) is always singular, so here full rank means full row rank, and a kappa is the ratio
    over the non-zero singular values. As written, B(J) is infinite for every head.

    Read so, the bound can be violated by any factor, by heads in which everything but Lambda(P) has
    full rank: `bound` is a figure to compare heads by, not a guarantee. W_Q -> g W_Q,
    W_K -> W_K / g changes neither the head's output nor B(J), but kappa(J) grows with g for every
    head of at least two tokens: dA/dW_K grows like g, while its rank is at most (N - 1) d of the
    N d rows (each Lambda(p) has the null vector 1), so that some rows are left with what dA/dW_V
    gives them. Where d >= N, W_V -> t W_V does the same, since then dA/dW_Q and dA/dW_K together
    lack row rank. The example is minimal: two one-hot tokens and one column, every kappa 1 but
    P's, which makes B(J) = 4.16, and kappa(J) about 0.39 g. At the best scales (t -> 0) kappa(J) is
    that of P X, which B(J) does bound.

    A random search (`benchmarks/bound_search.py`, 1500 draws of small heads) found it violated in
    0.8 % of the full-rank draws whose three kernels have one scale, in 9 % where each has its own,
    in 14 % where N > D, and in 4 % of the rank-deficient ones; climbing from there, B(J) / kappa(J)
    fell to 2e-5, and to 0.02 with the kernels' norms kept equal. None of 48 heads as initializers
    draw them, over LayerNormed tokens, violated it; the least B(J) / kappa(J) was 1.2 for normal
    0.02, 45 for LeCun normal and 2.9 for conditioned.

    What has a proof: J J^T is at least (P X)(P X)^T (x) I, so where P X has full row rank, with s
    the scale of the logits, Q, K and V the tokens times their kernels and |.| spectral norms,

        kappa(J)^2 <= (|P X|^2 + s^2 |V|^2 |Lambda(P)|^2 |X|^2 (|Q|^2 + |K|^2)) / sigma_min(P X)^2.

    This is `proven_limit`. It sees scales, as kappa(J) does, and stayed above every draw.

    Args:
        head: one softmax self-attention head over tokens (N, D). A mask, an additive bias and
            biases of the projections are allowed: but for the query bias, which is noted, they only
            change P.
        jacobian: the measured kappa(J) of that head, as `jacobian_spectrum` gives it, to be held
            against the bound; None leaves that out.
        rtol: tolerance of every factor but Lambda(P); None takes that of `condition_number`.

    Returns:
        The record. Computed in float64 whatever the head's dtype.

    Raises:
        UserError: if the head is a stack of several, attends over a context, or maps its queries or
            keys (QK-norm, rotary positions), which the theorem has no factor for; or if shapes do
            not fit, numbers are not finite, or a query sees no key.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import Head, attention_jacobian, bound, condition_number
        >>> from condinit_jax.spectra import head_output
        >>> g, column = 100.0, jnp.array([[1.0], [0.0]])
        >>> head = Head(jnp.eye(2), g * jnp.array([[1.0], [-1.0]]), column / g, column)
        >>> jacobian = attention_jacobian(
        ...     lambda kernels, tokens: head_output(head, kernels), head.kernels, head.tokens
        ... )
        >>> result = bound(head, jacobian=condition_number(jacobian))
        >>> result.holds, round(result.limit, 2), round(result.measured.kappa, 1)
        (False, 4.16, 39.3)
    """
    _check(head, jacobian)
    given = head.tokens.dtype
    head = on_host(head)
    with float64():
        weights = np.asarray(_weights(head))
    if not np.isfinite(weights).all():
        row = int(np.flatnonzero(~np.isfinite(weights).all(axis=1))[0])
        raise UserError(f"mask: query {row} sees no key, so that its attention weights are NaN")
    matrices: list[Any] = [head.tokens, weights @ head.tokens, weights, *head.kernels]
    tokens, mixed, weight, query, key, value = (condition_number(m, rtol) for m in matrices)
    derivative = softmax_derivative_spectrum(weights)
    cubed = tokens.kappa * tokens.kappa * tokens.kappa  # ** raises where this overflows to infinity
    limit = cubed * derivative.kappa * value.kappa * (query.kappa + key.kappa)
    limit += tokens.kappa * weight.kappa
    result = Bound(
        tokens=tokens,
        softmax_derivative=derivative,
        weights=weight,
        query=query,
        key=key,
        value=value,
        mixed=mixed,
        limit=limit,
        proven_limit=_proven_limit(head, mixed, derivative),
        measured=jacobian,
        holds=_holds(jacobian, limit),
        slack=None if jacobian is None else limit / jacobian.kappa,
        note="",
    )
    notes = _notes(head, result)
    if tokens.kappa * jnp.finfo(given).eps > 0.01:
        notes.append(f"kappa(X) may be that of the rounding of X to {given}; an rtol cuts that off")
    return dataclasses.replace(result, note="; ".join(notes))


@jax.jit
def _weights(head: Head) -> Array:
    with jax.default_matmul_precision("highest"):
        return project(head).weights


def _proven_limit(head: Head, mixed: ConditionNumber, derivative: ConditionNumber) -> float:
    if mixed.rank != len(head.tokens):
        return math.inf
    query = np.asarray(head.tokens @ head.query)
    if head.query_bias is not None:
        query = query + head.query_bias
    # Biases of key and value fall out: Lambda(p) has the null vector 1.
    both = np.hypot(np.linalg.norm(head.tokens @ head.key, 2), np.linalg.norm(query, 2))
    scale = 1 / math.sqrt(head.query.shape[1]) if head.scale is None else abs(float(head.scale))
    shared = scale * np.linalg.norm(head.tokens @ head.value, 2) * derivative.sigma_max
    shared *= np.linalg.norm(head.tokens, 2)
    return float(np.hypot(shared * both, mixed.sigma_max) / mixed.sigma_min)


def _holds(jacobian: ConditionNumber | None, limit: float) -> bool | None:
    if jacobian is None:
        return None
    if not jacobian.converged:  # kappa is known from below
        return False if jacobian.kappa > limit else None
    if jacobian.kappa * (1 + jacobian.error) <= limit:
        return True
    return False if jacobian.kappa * (1 - jacobian.error) > limit else None


def _notes(head: Head, result: Bound) -> list[str]:
    """What keeps the theorem from saying anything about this head, the worst first."""
    count, width = head.tokens.shape
    dim, value_dim = head.query.shape[1], head.value.shape[1]
    notes = []
    if result.holds is False and result.measured is not None:
        notes.append(f"violated: kappa(J) = {result.measured.kappa:.4g} is above B(J)")
    if math.isinf(result.limit):
        notes.append("vacuous: a factor is zero or B(J) overflows")
    # W_Q -> W_Q G, W_K -> W_K G^-T changes nothing: d^2 null directions, fewer where D < d.
    gauge = dim * dim - max(dim - width, 0) ** 2
    rows, most = count * value_dim, width * (2 * dim + value_dim) - gauge
    rank = None if result.measured is None else result.measured.rank
    if rows > most:
        notes.append(f"J cannot have full rank: {rows} rows, rank at most {most}")
    elif rank is not None and rank < rows:
        notes.append(f"J has rank {rank} of {rows}, and the theorem supposes full rank")
    for name, record in (
        ("X", result.tokens), ("P", result.weights), ("W_Q", result.query), ("W_K", result.key),
        ("W_V", result.value),
    ):  # fmt: skip
        if record.dropped:
            notes.append(
                f"kappa({name}) as written is infinite: rank {record.rank} of {record.size}"
            )
    if count > width:
        notes.append(f"X has more tokens ({count}) than width ({width}), so no full row rank")
    derivative = result.softmax_derivative
    if zeros := derivative.size - count - (derivative.rank or 0):
        notes.append(f"{zeros} attention weights are zero, and so are as many rows of Lambda(P)")
    if head.query_bias is not None and np.any(head.query_bias):
        notes.append("the theorem has no factor for the query bias")
    return notes


def _check(head: Head, jacobian: Any) -> None:
    if jacobian is not None and not isinstance(jacobian, ConditionNumber):
        raise UserError(f"jacobian: {type(jacobian).__name__}; must be a ConditionNumber")
    if any(np.ndim(array) == 3 for array in (head.tokens, *head.kernels)):
        raise UserError(
            f"head: is a stack of {len(head.query)}; give one, "
            "jax.tree.map(lambda array: array[i], heads)"
        )
    if head.context is not None:
        raise UserError("context: Theorem 3.1 is about self-attention; give a head without context")
    for name in ("query_map", "key_map"):
        if getattr(head, name) is not None:
            raise UserError(
                f"{name}: Theorem 3.1 has no factor for a map of queries or keys (QK-norm, rotary "
                "positions); give a head without"
            )
    check_shapes(AttentionKernels(*(k[:, None] for k in head.kernels)), head.tokens, None)
    for name in ("tokens", "query", "key", "value", "query_bias", "key_bias", "value_bias"):
        if getattr(head, name) is not None:
            check_arrays(name, getattr(head, name))
