"""Constants that the forward pass adds to parameters, kept outside of what is trained."""

from typing import Any, TypeVar

import jax

from condinit_jax.errors import UserError
from condinit_jax.leaves import by_names, names_of

Params = TypeVar("Params")


def with_offsets(params: Params, offsets: Any) -> Params:
    """The parameters that a forward pass uses: the trained ones plus constants.

    Gradients reach the parameters and not the constants, whose place is a collection of their own,
    beside "params", so that no optimizer, weight decay or average sees them and a checkpoint keeps
    them.

    Args:
        params: arrays in any pytree: linen dictionaries, boxed leaves, NNX states.
        offsets: a tree with some of the same leaves, found by their names; None adds nothing.

    Returns:
        A tree of the structure of `params`; leaves without an offset are the same objects, the
        others keep their dtype.

    Raises:
        UserError: if an offset has no parameter of its path and shape.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"query": {"kernel": jnp.ones(2), "bias": jnp.ones(2)}}
        >>> new = with_offsets(params, {"query": {"kernel": jnp.full(2, 10.0)}})
        >>> new["query"]["kernel"].tolist(), new["query"]["bias"] is params["query"]["bias"]
        ([11.0, 11.0], True)
    """
    if offsets is None:
        return params
    constants = by_names(offsets)
    leaves, structure = jax.tree_util.tree_flatten_with_path(params)
    values = []
    for path, leaf in leaves:
        constant = constants.pop(names_of(path), None)
        if constant is None:
            values.append(leaf)
            continue
        if constant.shape != leaf.shape:
            name = "/".join(names_of(path))
            raise UserError(
                f"offsets: {name} has shape {constant.shape}, but the parameter has {leaf.shape}"
            )
        values.append(leaf + constant.astype(leaf.dtype))
    if constants:
        name = "/".join(next(iter(constants)))
        raise UserError(f"offsets: {name} is no parameter of this model")
    return jax.tree_util.tree_unflatten(structure, values)
