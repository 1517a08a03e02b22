"""The four kernels of one attention block, and the two ways in which their heads are laid out.

Flax keeps the query, key and value kernels of `H` heads of width `d` as (D, H, d) and the out
kernel as (H, d, D); its initializers see the flat shapes (D, H*d) and (H*d, D), where head `h` owns
columns (for out: rows) `h*d` to `(h+1)*d`. Everything else in the package says which one it means.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from jaxtyping import Array, Float

Role = Literal["query", "key", "value", "out"]
ROLES: tuple[Role, ...] = get_args(Role)


class AttentionKernels(NamedTuple):
    """The kernels of one attention block, per head.

    Queries may have more heads than keys and values (grouped-query attention), and each kernel may
    read a different width (cross-attention).

    Attributes:
        query: (D_q, H, d).
        key: (D_k, H_kv, d), with H a multiple of H_kv.
        value: (D_v, H_kv, d_v).
        out: (H, d_v, D_out), or None where the block has no out projection.
    """

    query: Float[Array, "query_width heads dim"]
    key: Float[Array, "key_width kv_heads dim"]
    value: Float[Array, "value_width kv_heads value_dim"]
    out: Float[Array, "heads value_dim out_width"] | None = None


class HeadShape(NamedTuple):
    """Sizes of an input kernel: `width` (D) inputs, `num_heads` (H) heads of `head_dim` (d)."""

    width: int
    num_heads: int
    head_dim: int


def head_shape(shape: Sequence[int], num_heads: int) -> HeadShape:
    """Reads the heads out of the shape of a query, key or value kernel.

    Args:
        shape: (D, H*d), or (D, H, d) with H equal to `num_heads`.
        num_heads: H.

    Returns:
        The three sizes.

    Raises:
        ValueError: if `shape` has neither form, or its heads are not `num_heads`.

    Example:
        >>> head_shape((768, 768), num_heads=12)
        HeadShape(width=768, num_heads=12, head_dim=64)
        >>> head_shape((768, 12, 64), num_heads=12)
        HeadShape(width=768, num_heads=12, head_dim=64)
    """
    if num_heads < 1:
        raise ValueError(f"num_heads = {num_heads}: must be at least 1")
    if len(shape) == 2:
        width, columns = shape
        if columns % num_heads:
            raise ValueError(
                f"a kernel of shape {tuple(shape)} does not hold num_heads = {num_heads} heads: "
                f"{columns} columns are no multiple of it"
            )
        return HeadShape(width, num_heads, columns // num_heads)
    if len(shape) == 3:
        width, heads, head_dim = shape
        if heads != num_heads:
            raise ValueError(
                f"a kernel of shape {tuple(shape)}, read as (width, heads, head width), has "
                f"{heads} heads; write num_heads={heads} (got {num_heads})"
            )
        return HeadShape(width, heads, head_dim)
    raise ValueError(
        f"an attention kernel has shape (width, heads * head width) or (width, heads, head width); "
        f"got {tuple(shape)}"
    )


def flat_shape(shape: Sequence[int], role: Role) -> tuple[int, int]:
    """The (inputs, outputs) shape of a per-head kernel, as Flax hands it to an initializer.

    Args:
        shape: (D, H, d) for query, key and value; (H, d, D) for out.
        role: which kernel it is.

    Returns:
        (D, H*d) for query, key and value; (H*d, D) for out.

    Example:
        >>> flat_shape((192, 3, 64), "query"), flat_shape((3, 64, 192), "out")
        ((192, 192), (192, 192))
    """
    inputs = 2 if role == "out" else 1
    return math.prod(shape[:inputs]), math.prod(shape[inputs:])
