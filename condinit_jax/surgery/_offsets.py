"""Constants that the forward pass adds to parameters, kept outside of what is trained."""

from typing import Any, TypeVar

from condinit_jax.errors import UserError

Params = TypeVar("Params")


def with_offsets(params: Params, offsets: Any) -> Params:
    """The parameters that a forward pass uses: the trained ones plus constants.

    Gradients reach the parameters and not the constants, whose place is a collection of their own,
    beside "params", so that no optimizer, weight decay or average sees them and a checkpoint keeps
    them.

    Args:
        params: nested mappings of arrays.
        offsets: nested mappings with some of the same leaves; None adds nothing.

    Returns:
        A tree like `params`; leaves without an offset are the same objects.

    Raises:
        UserError: if an offset has no parameter of its path and shape.

    Example:
        >>> import jax.numpy as jnp
        >>> params = {"query": {"kernel": jnp.ones(2), "bias": jnp.ones(2)}}
        >>> new = with_offsets(params, {"query": {"kernel": jnp.full(2, 10.0)}})
        >>> new["query"]["kernel"].tolist(), new["query"]["bias"] is params["query"]["bias"]
        ([11.0, 11.0], True)
    """
    return params if offsets is None else _added(params, offsets, ())


def _added(params: Any, offsets: Any, path: tuple[str, ...]) -> Any:
    if not hasattr(offsets, "items"):
        if getattr(params, "shape", None) != offsets.shape:
            name = "/".join(path)
            raise UserError(f"offsets: {name} has shape {offsets.shape}, not the kernel's")
        return params + offsets.astype(params.dtype)
    new = dict(params)
    for name, offset in offsets.items():
        if name not in new:
            raise UserError(f"offsets: {'/'.join((*path, name))} is no parameter of this model")
        new[name] = _added(new[name], offset, (*path, name))
    return new
