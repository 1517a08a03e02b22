"""Impulse (structured) initialization: attention that starts as a convolution."""

import functools
from collections.abc import Collection

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float64, Int

from condinit_jax.initializers._indivisible import indivisible
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods._factors import (
    matmul,
    query_key_shape,
    replaced,
    require_finite,
    require_not_negative,
    require_target,
    wide_dtype,
    widened,
)
from condinit_jax.methods._method import Method, checked_roles
from condinit_jax.methods._mimetic import value_out
from condinit_jax.positions import sincos2d

# Singular values of the position embedding below this part of the largest are left out; see
# `impulse`.
_CUTOFF = 0.02
_NORM_EPS = 1e-6


def impulse(
    filter_size: int = 3,
    gain: float = 7.0,
    noise: float = 0.0018,
    value_out_noise: float = 0.4,
    value_out_identity: float = 0.4,
    rows: int | None = None,
    columns: int | None = None,
    kernels: Collection[str] = ROLES,
) -> Method:
    r"""Heads that look, by position alone, at the neighbour that one tap of a filter looks at.

    For every head a shift by (dy, dx), |dy| and |dx| at most f // 2, is drawn from the key, all
    shifts being equally likely. With P the position embedding after a LayerNorm without scale and
    bias, and M the matrix with ones from every token to the token shifted by (dy, dx), where that
    is on the grid, plus noise elsewhere,

    W_Q W_K^T = P^+ M (P^+)^T up to scale,

    so that the logits of P alone are M seen through the space that P spans. W_Q and W_K are the
    balanced factors of the singular value decomposition, each of Frobenius norm `gain`. Value and
    out are those of `mimetic`.

    The embedding must be `condinit_jax.models.positions.sincos2d` (for ViT: `positions="sincos2d"`)
    and the tokens must be those of the grid and no others (`pool="gap"`): nothing here can see the
    model, and with a class token, learned positions or another grid the heads look elsewhere.

    The pseudo-inverse P^+ keeps at most d directions, as in the official code, and of those only
    singular values above 0.02 of the largest. That is ours: sine-cosine embeddings have few large
    ones (of 14 x 14 tokens 13), and P^+ with all of them spends the norm of the kernels on
    directions that a model hardly sees, so that attention is nearly uniform. With the cut, and
    logits scaled by 1/sqrt(d), the largest attention is at the shifted token for every token whose
    shifted one exists, at 4 x 4 (D = 64, d = 16), 8 x 8 and 14 x 14 (D = 192, d = 64).

    Args:
        filter_size: f, odd; f // 2 is less than both sides of the grid.
        gain: Frobenius norm of each query and key head.
        noise: deviation of the entries of M that are not ones, cut at 10/3 of it.
        value_out_noise: alpha_2 of `mimetic`.
        value_out_identity: beta_2 of `mimetic`.
        rows: height of the grid of tokens; None is filled in by a run
            whose model has that embedding and no class token.
        columns: width of the grid of tokens; None alike.
        kernels: which of query, key, value and out to rewrite. A kernel is drawn the same with and
            without its partner.

    Returns:
        A method for the blocks that `mimetic` takes, of a width that is a multiple of 4; for
        others, and where rows or columns are not known or the filter reaches over the whole grid,
        it raises ValueError.

    Raises:
        ValueError: if `filter_size` is not odd, a number is out of its range, or `kernels` holds
            another name.

    Example:
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = AttentionKernels(zeros, zeros, zeros, jnp.zeros((4, 16, 64)))
        >>> block = impulse(rows=4, columns=4)(jax.random.key(0), block)
        >>> round(float(jnp.linalg.norm(block.query[:, 0])), 3)
        7.0

    References:
        Zheng, Li and Lucey, Structured Initialization for Attention in Vision Transformers, 2024
        (https://arxiv.org/abs/2404.01139), which fits the map by gradient descent; Zheng et al.,
        Structured Initialization for Vision Transformers, NeurIPS 2025
        (https://arxiv.org/abs/2505.19985), in closed form. The official code of the latter
        (github.com/osiriszjq/structured_initialization, vision_transformer.py) has impulses of 1000
        and truncated normal noise of deviation 1.8, of which only the ratio matters, gain 7, a
        fixed order of shifts over the heads (the earlier one draws them), a learned position
        embedding of deviation 0.36, and Z uniform in value and out.
    """
    roles = checked_roles(kernels)
    if isinstance(filter_size, bool) or filter_size < 1 or filter_size % 2 != 1:
        raise ValueError(f"filter_size = {filter_size}: must be odd and at least 1")
    require_finite(gain=gain)
    if gain <= 0:
        raise ValueError(f"gain = {gain}: must be positive")
    require_not_negative(noise=noise)
    require_target(("value_out_noise", value_out_noise), ("value_out_identity", value_out_identity))
    for name, size in (("rows", rows), ("columns", columns)):
        if size is not None and size < 1:
            raise ValueError(f"{name} = {size}: must be at least 1")

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        drawn: dict[Role, Array] = {}
        if {"query", "key"} & set(roles):
            if rows is None or columns is None:
                raise ValueError(
                    f"rows = {rows}, columns = {columns}: impulse needs both, the grid of tokens "
                    "at fixed positions; a run knows them where model.positions is sincos2d and "
                    "model.pool is gap"
                )
            if filter_size // 2 >= min(rows, columns):
                raise ValueError(
                    f"filter_size = {filter_size}: some shifts leave a grid of {rows} x {columns} "
                    f"tokens altogether; must be at most {2 * min(rows, columns) - 1}"
                )
            shape = query_key_shape("impulse", kernels)
            if shape[0] % 4:
                raise ValueError(
                    f"impulse: width {shape[0]} is no multiple of 4, as sine-cosine positions need"
                )
            dtype = wide_dtype(kernels)
            pair = indivisible(
                _draw_query_key,
                jax.random.fold_in(key, ROLES.index("query")),
                shape,
                (rows, columns),
                filter_size,
                float(noise),
                constants=tuple(
                    array.astype(dtype) for array in _position_space(rows, columns, *shape[::2])
                ),
            )
            drawn |= {"query": gain * pair[0], "key": gain * pair[1]}
        if {"value", "out"} & set(roles):
            drawn |= value_out("impulse", key, kernels, value_out_noise, value_out_identity)
        return replaced(kernels, roles, drawn)

    return method


@functools.cache
def _position_space(
    rows: int, columns: int, width: int, rank: int
) -> tuple[Float64[np.ndarray, "tokens rank"], Float64[np.ndarray, "width rank"]]:
    """U S^-1 and V of the position embedding P = U S V^T after its norm, cut to what is kept."""
    table = sincos2d(rows, columns, width)
    table = table - table.mean(axis=1, keepdims=True)
    table /= np.sqrt(np.square(table).mean(axis=1, keepdims=True) + _NORM_EPS)
    u, s, vt = np.linalg.svd(table, full_matrices=False)
    kept = min(rank, int((s > _CUTOFF * s[0]).sum()))
    return u[:, :kept] / s[:kept], vt[:kept].T


def _draw_query_key(
    keys: Array,
    dual: Array,
    basis: Array,
    shape: tuple[int, int, int],
    grid: tuple[int, int],
    filter_size: int,
    noise: float,
) -> Array:
    """(batch, 2, D, H, d), every head of Frobenius norm 1."""
    _, heads, head_dim = shape
    dtype, bound = dual.dtype, 10 / 3

    def head(key: Array) -> Array:
        choice, blur, turn = jax.random.split(key, 3)
        impulses = _shift_matrix(
            jax.random.randint(choice, (), 0, filter_size**2), grid, filter_size
        )
        blurred = jax.random.truncated_normal(blur, -bound, bound, impulses.shape, dtype)
        wanted = jnp.where(impulses, jnp.ones((), dtype), noise * blurred)
        u, s, vt = jnp.linalg.svd(matmul(matmul(dual.T, wanted), dual))
        root = jnp.sqrt(s / s.sum())[None]
        left, right = matmul(basis, u * root), matmul(basis, vt.T * root)
        return jnp.stack(widened(turn, left, right, head_dim))

    def block(key: Array) -> Array:
        own = jax.vmap(lambda index: jax.random.fold_in(key, index))(jnp.arange(heads))
        return jax.lax.map(head, own).transpose(1, 2, 0, 3)

    return jax.lax.map(block, keys)


def _shift_matrix(
    shift: Int[Array, ""], grid: tuple[int, int], filter_size: int
) -> Bool[Array, "tokens tokens"]:
    """Whether column j is the token that token i is shifted to by that tap of the filter."""
    rows, columns = grid
    dy, dx = shift // filter_size - filter_size // 2, shift % filter_size - filter_size // 2
    y, x = jnp.divmod(jnp.arange(rows * columns), columns)
    return (y[None] - y[:, None] == dy) & (x[None] - x[:, None] == dx)
