"""What is wrong with a head that a user made, said before anything is computed."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra._head import Head, project
from condinit_jax.spectra._precision import float64


def check_fields(head: Head) -> None:
    """Raises a UserError for a field that is no array, or no map that can pass through `jit`."""
    for name, value in vars(head).items():
        if value is None:
            continue
        if name in ("query_map", "key_map"):
            if not callable(value):
                raise UserError(f"{name}: {type(value).__name__}; must be a function of (N, d)")
            if jax.tree_util.treedef_is_leaf(jax.tree.structure(value)):
                raise UserError(
                    f"{name}: is a plain function; wrap it, jax.tree_util.Partial(function, params)"
                )
            continue
        if isinstance(value, jax.core.Tracer):
            raise UserError(f"{name}: is traced; call this outside jit, on concrete arrays")
        if name == "scale" and isinstance(value, int | float):
            continue
        if not isinstance(value, jax.Array | np.ndarray | np.generic):
            raise UserError(f"{name}: {type(value).__name__}; must be an array")
        wanted = "b" if name == "mask" else "fV"
        if value.dtype.kind not in wanted and not (name != "mask" and value.dtype == jnp.bfloat16):
            right = "booleans" if name == "mask" else "floats"
            raise UserError(f"{name}: {value.dtype}; must be an array of {right}")


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
    for name in ("query", "key", "value", "context"):
        if arrays[name] is not None and arrays[name].ndim != 2:
            raise UserError(f"{name}: shape {arrays[name].shape} must have two axes")
    scale: Any = head.scale
    if np.ndim(scale):
        raise UserError(f"scale: shape {np.shape(scale)} must be one number")
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
    _check_weights(head)


def _check_weights(head: Head) -> None:
    """Raises where the attention weights are not finite though all that they are made of is."""
    for name in ("query_map", "key_map"):
        token_map = getattr(head, name)
        source, kernel = (
            (head.tokens, head.query) if name == "query_map" else (head.keys_from, head.key)
        )
        if token_map is not None:
            shape = jax.ShapeDtypeStruct((len(source), kernel.shape[1]), np.float64)
            with float64():
                found = jax.eval_shape(token_map, shape)
            if getattr(found, "shape", None) != shape.shape:
                raise UserError(f"{name}: maps {shape.shape} to {found}; must keep the shape")
    with float64(), np.errstate(all="ignore"):
        weights = np.asarray(project(head).weights)
    if not np.isfinite(weights).all():
        raise UserError(
            "query: attention weights are not finite; logits overflow, or a map returns NaN"
        )
