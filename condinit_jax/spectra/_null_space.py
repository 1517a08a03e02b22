"""Null vectors of a head's Jacobian that are known before anything is computed.

Softmax attention without query and key maps does not change

- along the gauge (W_Q A, -W_K A^T, 0), A any d x d matrix: the logits stay;
- along shifts (0, t a^T, 0) with Y t = 1, a any vector: each row of the logits moves as one. Such a
  t exists where there are no more context tokens than widths, and after a LayerNorm with a bias.

A query bias b takes part in the logits: the gauge is left with those A that have b^T A = 0, or with
(W_Q + t b^T) in place of W_Q where X t = 1.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from condinit_jax.spectra._head import Head

REACHED = 1e-9
"""Residual of X t = 1, relative, below which the tokens are taken to reach it."""


class NullSpace(NamedTuple):
    """What the projector needs: gauge directions are (query A, -key A^T free^T, 0).

    Attributes:
        query: (D, f), W_Q or its part that takes part.
        key: (E, d), W_K without its part along the shift.
        free: (d, f), orthonormal columns, f = d but for a query bias.
        shift: t, (E,), of unit length, or zero.
        query_basis, key_basis: eigenvectors of query^T query and key^T key.
        inverse: (f, d), inverse sums of their eigenvalues, zero where there is nothing to project.
    """

    query: Array | np.ndarray
    key: Array | np.ndarray
    free: Array | np.ndarray
    shift: Array | np.ndarray
    query_basis: Array | np.ndarray
    key_basis: Array | np.ndarray
    inverse: Array | np.ndarray


def null_space(head: Head) -> tuple[NullSpace, int] | None:
    """The known null space of a head of host arrays, and its dimension; None if it is empty."""
    if head.key_map is not None:
        return None
    query, key = np.asarray(head.query), np.asarray(head.key)
    bias = None if head.query_bias is None else np.asarray(head.query_bias)
    dim = query.shape[1]
    shift = _reaching_ones(np.asarray(head.keys_from))
    free = np.eye(dim)
    if head.query_map is not None:
        free = free[:, :0]
        query = query[:, :0]
    elif bias is not None and np.any(bias):
        towards = _reaching_ones(np.asarray(head.tokens))
        if towards is not None:
            query = query + np.outer(towards, bias)
        else:
            _, _, right = np.linalg.svd(bias[None])
            free = right[1:].T
            query = query @ free
    length = 0.0 if shift is None else float(np.linalg.norm(shift))
    unit = np.zeros(key.shape[0]) if shift is None else shift / length
    key = key - np.outer(unit, unit @ key)
    of_query, query_basis = np.linalg.eigh(query.T @ query)
    of_key, key_basis = np.linalg.eigh(key.T @ key)
    sums = np.maximum(of_query, 0)[:, None] + np.maximum(of_key, 0)
    counted = sums > 1e-13 * sums.max(initial=0.0)
    inverse = np.divide(1.0, sums, where=counted, out=np.zeros_like(sums))
    nullity = int(np.count_nonzero(counted)) + (0 if shift is None else dim)
    if nullity == 0:
        return None
    return NullSpace(query, key, free, unit, query_basis, key_basis, inverse), nullity


def project_out(
    null: NullSpace, blocks: Sequence[Float[Array, "block width dim"]]
) -> tuple[Array, ...]:
    """Perturbations of the three kernels without their part in the null space."""
    query, key, value = blocks
    key = key - jnp.einsum("e,f,kfa->kea", null.shift, null.shift, key)
    # Twice, since kernels of large condition number leave some of it behind.
    for _ in range(2):
        right = jnp.einsum("ra,krc->kac", null.query, query)
        right = right - jnp.einsum("keb,ba,ec->kac", key, null.free, null.key, optimize="optimal")
        turned = jnp.einsum("ax,kac,cy->kxy", null.query_basis, right, null.key_basis)
        turned = turned * null.inverse
        gauge = jnp.einsum("ax,kxy,cy->kac", null.query_basis, turned, null.key_basis)
        query = query - jnp.einsum("ra,kac->krc", null.query, gauge)
        key = key + jnp.einsum("ec,kac,ba->keb", null.key, gauge, null.free, optimize="optimal")
    return query, key, value


def _reaching_ones(tokens: np.ndarray) -> np.ndarray | None:
    """The shortest t with tokens @ t = 1, if there is one."""
    ones = np.ones(len(tokens))
    found = np.linalg.lstsq(tokens, ones, rcond=None)[0]
    missed = np.linalg.norm(tokens @ found - ones) / np.sqrt(len(tokens))
    return found if missed < REACHED else None
