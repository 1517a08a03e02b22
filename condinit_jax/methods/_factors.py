"""Two kernels that are tied: the factors of one matrix, shared out over the heads.

Mimetic initialization and its descendants prescribe products, W_Q W_K^T of every head and W_V W_O
of the block, and take the two kernels from the singular value decomposition of the product. What
they share stands here: checks, the target matrix, and its factors.

Everything is drawn in float32 or wider, one matrix after the other: on CPUs, JAX's LAPACK kernels
spread a batch over the threads that also run the (simulated) devices and wait for them.
"""

import math
import numbers
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax.initializers._orthonormal import orthonormal_columns
from condinit_jax.kernels import ROLES, AttentionKernels, Role

Matrix = Float[Array, "rows columns"]
Pair = tuple[Matrix, Matrix]


def noisy_identity(key: Array, width: int, noise: float, identity: float, dtype: Any) -> Matrix:
    """Noise Z + identity I with Z_ij ~ N(0, 1/width)."""
    gaussian = jax.random.normal(key, (width, width), dtype)
    return noise / math.sqrt(width) * gaussian + identity * jnp.eye(width, dtype=dtype)


def factors(key: Array, matrix: Matrix, columns: int) -> Pair:
    """Balanced factors of a square matrix: the best approximation of their rank.

    With M = U S V^T, left and right are the first `columns` columns of U S^1/2 and V S^1/2. More
    columns than the matrix has are no zeros, which training would never leave: both factors are
    turned by the same random semi-orthogonal matrix, which changes no product.

    Args:
        key: for that turn alone.
        matrix: M, (width, width).
        columns: of each factor.

    Returns:
        Left and right, (width, columns) each, with left right^T nearest to M.
    """
    width = matrix.shape[0]
    rank = min(columns, width)
    # The Gram matrix halves the work; squaring takes digits from small singular values only, and
    # half of a random matrix's are large.
    left, right = (_leading if rank <= width // 2 else _all)(matrix, rank)
    return widened(key, left, right, columns)


def _leading(matrix: Matrix, rank: int) -> Pair:
    vectors = jnp.linalg.eigh(matmul(matrix.T, matrix))[1][:, ::-1][:, :rank]
    images = matmul(matrix, vectors)
    scales = jnp.linalg.norm(images, axis=0)[None]
    roots = jnp.sqrt(scales)
    return images / jnp.where(roots > 0, roots, 1), vectors * roots


def _all(matrix: Matrix, rank: int) -> Pair:
    u, s, vt = jnp.linalg.svd(matrix, full_matrices=False)
    root = jnp.sqrt(s[:rank])[None]
    return u[:, :rank] * root, vt[:rank].T * root


def widened(key: Array, left: Matrix, right: Matrix, columns: int) -> Pair:
    """The factors with more columns and the same product; as they are where they have enough."""
    rank = left.shape[1]
    if rank == columns:
        return left, right
    gaussian = jax.random.normal(key, (1, columns, rank), left.dtype)
    turn = orthonormal_columns(gaussian)[0].T
    return matmul(left, turn), matmul(right, turn)


def matmul(left: Array, right: Array) -> Array:
    """A product in full precision; accelerators' default is bfloat16 or TF32."""
    return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def wide_dtype(kernels: AttentionKernels) -> Any:
    """float64 if a kernel has it, otherwise float32: what a block is drawn in."""
    present = [kernel for kernel in kernels if kernel is not None]
    for kernel in present:
        if not jnp.issubdtype(kernel.dtype, jnp.floating):
            raise ValueError(
                f"dtype = {kernel.dtype.name}: an attention kernel needs a floating dtype"
            )
    return jnp.dtype(jnp.float64 if any(k.dtype == jnp.float64 for k in present) else jnp.float32)


def replaced(
    kernels: AttentionKernels, roles: tuple[Role, ...], drawn: Mapping[Role, Array]
) -> AttentionKernels:
    """The block with the kernels of those roles replaced, in their own shapes and dtypes."""
    new = {}
    for role in ROLES:
        if role in roles and role in drawn:
            old = getattr(kernels, role)
            new[role] = drawn[role].reshape(old.shape).astype(old.dtype)
    return kernels._replace(**new)


def query_key_shape(method: str, kernels: AttentionKernels) -> tuple[int, int, int]:
    """(D, H, d) of query and key, where every head has a square product W_Q W_K^T.

    Raises:
        ValueError: if they read different widths, share heads, or are empty.
    """
    query, key = kernels.query.shape, kernels.key.shape
    if query[0] != key[0]:
        raise ValueError(
            f"{method}: query reads width {query[0]} and key {key[0]}; W_Q W_K^T must be square"
        )
    _one_key_head_per_query_head(method, query[1], key[1], "query and key", "query_key")
    _not_empty(method, query)
    width, heads, head_dim = query
    return width, heads, head_dim


def value_out_shape(method: str, kernels: AttentionKernels) -> tuple[int, int]:
    """(D, H*d) of value and out, where the block has a square product W_V W_O.

    Raises:
        ValueError: if there is no out kernel, the widths differ, heads are shared, or empty.
    """
    value, out = kernels.value.shape, kernels.out
    if out is None:
        raise ValueError(
            f"{method}: the block has no out kernel to which its value kernel is tied; leave value "
            "and out alone with kernels=('query', 'key')"
        )
    if value[0] != out.shape[2]:
        raise ValueError(
            f"{method}: value reads width {value[0]} and out gives {out.shape[2]}; W_V W_O must be "
            "square"
        )
    _one_key_head_per_query_head(method, out.shape[0], value[1], "value and out", "value")
    _not_empty(method, value)
    return value[0], value[1] * value[2]


def _one_key_head_per_query_head(
    method: str, heads: int, key_heads: int, roles: str, argument: str
) -> None:
    if heads != key_heads:
        raise ValueError(
            f"{method}: {heads} query heads share {key_heads} key heads, and products of {roles} "
            f"cannot all be met; use kernels= for the others, or hybrid({argument}=...)"
        )


def _not_empty(method: str, shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise ValueError(f"{method}: a kernel of shape {tuple(shape)} is empty")


def require_finite(**values: float) -> None:
    """Raises where an argument is no finite number."""
    for name, value in values.items():
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not (number and math.isfinite(value)):
            raise ValueError(f"{name} = {value!r}: must be a finite number")


def require_not_negative(**values: float) -> None:
    """Raises where an argument is negative or no finite number."""
    require_finite(**values)
    for name, value in values.items():
        if value < 0:
            raise ValueError(f"{name} = {value}: must not be negative")


def require_target(noise: tuple[str, float], identity: tuple[str, float]) -> None:
    """Raises where noise Z + identity I is no target: a negative or infinite part, or zero."""
    require_not_negative(**dict([noise]))
    require_finite(**dict([identity]))
    if noise[1] == 0 and identity[1] == 0:
        raise ValueError(f"{noise[0]} = 0 and {identity[0]} = 0: leave nothing to draw")
