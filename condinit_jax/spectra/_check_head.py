"""What is wrong with a head that a user made, said before anything is computed."""

import dataclasses

import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra._head import Head


def check_head(head: Head) -> None:
    """Raises a UserError for arrays that are not finite or do not fit each other."""
    arrays = {field.name: getattr(head, field.name) for field in dataclasses.fields(head)}
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
            continue
        # An additive bias of minus infinity is a mask.
        bad = ~np.isfinite(array) if name != "logit_bias" else np.isnan(array) | (array == np.inf)
        if bad.any():
            raise UserError(
                f"{name}: {np.count_nonzero(bad)} of {array.size} numbers are not finite; "
                "give finite ones"
            )
    if head.tokens.ndim != 2:
        raise UserError(
            f"tokens: shape {head.tokens.shape} must be (tokens, width); for a stack of heads use "
            "jacobian_spectra"
        )
    length, width = head.tokens.shape
    context_length, context_width = head.keys_from.shape
    dim, value_dim = head.query.shape[-1], head.value.shape[-1]
    right = {
        "query": (width, dim),
        "key": (context_width, dim),
        "value": (context_width, value_dim),
        "query_bias": (dim,),
        "key_bias": (dim,),
        "value_bias": (value_dim,),
        "logit_bias": (length, context_length),
        "mask": (length, context_length),
    }
    for name, shape in right.items():
        if arrays[name] is not None and arrays[name].shape != shape:
            raise UserError(f"{name}: shape {arrays[name].shape} must be {shape}")
    if 0 in (*head.tokens.shape, *head.keys_from.shape, dim, value_dim):
        raise UserError(f"tokens: shape {head.tokens.shape} and kernels must not be empty")
    seen = np.ones((length, context_length), bool) if head.mask is None else head.mask
    if head.logit_bias is not None:
        seen = seen & (head.logit_bias > -np.inf)
    blind = np.flatnonzero(~seen.any(axis=1))
    if blind.size:
        raise UserError(
            f"mask: query {blind[0]} may see no key; leave such rows out of tokens and mask"
        )
