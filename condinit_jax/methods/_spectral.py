"""Spectral conditioning: a fixed identity beside every trained kernel."""

from collections.abc import Collection
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.initializers import rectangular_identity
from condinit_jax.initializers._rectangular_identity import Layout
from condinit_jax.kernels import flat_shape
from condinit_jax.methods._factors import require_finite
from condinit_jax.methods._method import INPUTS, NetworkMethod, checked_roles
from condinit_jax.methods._parts import find


def spectral(
    scale: float = 10.0, layout: Layout = "per_head", kernels: Collection[str] = INPUTS
) -> NetworkMethod:
    """The forward pass uses W + scale I for query, key and value kernels; W is what is trained.

    No parameter is rewritten: W keeps the model's own draw. The rectangular identities are
    constants, without gradient, weight decay, moments or average. A run keeps them in its state, in
    the collection "offsets", and evaluates and probes W + scale I.

    Tokens of variance 1 then have logits near scale^2 sqrt(d) with themselves, from the constants
    alone: at a scale of 10 the softmax nearly picks one token. How the paper keeps clear of that is
    not confirmed.

    With `compute_dtype = "bfloat16"` the sum is rounded: a diagonal entry near 10 is then a
    multiple of 1/16, so that W's own diagonal is nearly lost in the forward pass.

    Args:
        scale: the paper's lambda; 0 changes nothing.
        layout: `per_head` gives every head I_{D x d}; `joint` cuts one I_{D x H*d} into heads. See
            `rectangular_identity`. The paper's text leaves this open.
        kernels: which of query, key and value have an identity beside them.

    Returns:
        A method on the whole network, whose `offsets(params)` are the constants; for kernels of
        Flax's layout, (D, H, d), under any number of layer axes. It raises UserError if the tree
        holds none, or a kernel does not fit the layout.

    Raises:
        ValueError: if `scale` is not finite, or `layout` or `kernels` holds another name.

    Example:
        >>> import flax.linen as nn
        >>> import jax, jax.numpy as jnp
        >>> import condinit_jax
        >>> model, x = nn.MultiHeadDotProductAttention(num_heads=4), jnp.ones((1, 10, 64))
        >>> params = model.init(jax.random.key(0), x)["params"]
        >>> offsets = condinit_jax.methods.spectral().offsets(params)
        >>> y = model.apply({"params": condinit_jax.with_offsets(params, offsets)}, x)
        >>> offsets["query"]["kernel"].shape, sorted(offsets)
        ((64, 4, 16), ['key', 'query', 'value'])

    References:
        Saratchandran and Lucey, Spectral Conditioning of Attention Improves Transformer
        Performance, NeurIPS 2025, arXiv 2603.07162; lambda = 10 there. No code was released.
    """
    require_finite(scale=scale)
    roles = checked_roles(kernels)
    if "out" in roles:
        raise ValueError("kernels = 'out': spectral conditioning leaves the out kernel alone")
    rectangular_identity(layout=layout)  # refuses an unknown layout here, not later

    def offsets(params: Any) -> dict[str, Any]:
        leaves, _ = jax.tree_util.tree_flatten_with_path(params)
        constants: dict[str, Any] = {}
        for part in find(leaves, "kernels", [f"{role}/kernel" for role in roles]):
            dtype = leaves[part.position][1].dtype
            node = constants
            for name in part.names[:-1]:
                node = node.setdefault(name, {})
            one = _identity(part.path, part.shape, scale, layout, dtype)
            node[part.names[-1]] = jnp.broadcast_to(one, (*part.layer_axes, *part.shape))
        return constants

    return NetworkMethod(lambda key, params, data: params, offsets=offsets)


def _identity(path: str, shape: tuple[int, ...], scale: float, layout: Layout, dtype: Any) -> Array:
    """The constant of one layer's kernel."""
    if len(shape) != 3:
        raise UserError(
            f"{path}: shape {shape} is flat, so that its heads cannot be told; spectral "
            "conditioning needs (width, heads, dim)"
        )
    init = rectangular_identity(shape[1], layout, scale)
    try:
        # It ignores its key.
        flat = init(jax.random.key(0), flat_shape(shape, "query"), dtype)
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return flat.reshape(shape)
