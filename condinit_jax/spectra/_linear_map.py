"""A matrix known by its products only, such as the Jacobian of a function."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

BlockMap = Callable[[Float[Array, "_ block"]], Float[Array, "_ block"]]
"""A linear map applied to every column of a matrix."""


class LinearMap(NamedTuple):
    """A (rows, columns) matrix by its products.

    Attributes:
        matvec: (columns, k) -> (rows, k).
        rmatvec: (rows, k) -> (columns, k), the transpose.
        rows: Number of rows.
        columns: Number of columns.
    """

    matvec: BlockMap
    rmatvec: BlockMap
    rows: int
    columns: int

    def transposed(self) -> "LinearMap":
        """The transposed matrix."""
        return LinearMap(self.rmatvec, self.matvec, self.columns, self.rows)


def linear_map(function: Callable[[Any], Any], at: Any, *, batch_size: int = 8) -> LinearMap:
    """The Jacobian of a function by its products, flat parameters to flat outputs.

    Args:
        function: From a pytree of arrays to a pytree of arrays.
        at: Where it is differentiated.
        batch_size: How many products run at once; fewer take less memory.

    Returns:
        The map.

    Example:
        >>> import jax.numpy as jnp
        >>> product = linear_map(lambda pair: pair[0] * pair[1], (jnp.ones(3), jnp.ones(3)))
        >>> product.rows, product.columns
        (3, 6)
    """
    flat, unravel = ravel_pytree(at)
    outputs, jvp = jax.linearize(lambda flat: ravel_pytree(function(unravel(flat)))[0], flat)
    transpose = jax.linear_transpose(jvp, flat)

    def columnwise(product: Callable[[Array], Array]) -> BlockMap:
        def apply(columns: Array) -> Array:
            if columns.shape[1] <= batch_size:
                return jax.vmap(product, in_axes=1, out_axes=1)(columns)
            return jax.lax.map(product, columns.T, batch_size=batch_size).T

        return apply

    matvec, rmatvec = columnwise(jvp), columnwise(lambda row: transpose(row)[0])
    return LinearMap(matvec, rmatvec, len(outputs), len(flat))
