"""The dense Jacobian of any attention function: the oracle, for sizes at which it fits.

It knows nothing of softmax: windows with relative bias, cross-covariance, Nystrom, linear, masked
and cross-attention, or a whole block with its out projection, are all functions of (kernels,
tokens), and forward mode differentiates them column by column.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, Unpack, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from condinit_jax.errors import UserError
from condinit_jax.kernels import AttentionKernels
from condinit_jax.spectra._head import AttentionOptions, attention_heads, head_output
from condinit_jax.spectra._options import check_choice

AttentionFunction = Callable[[Any, Any], Array]
"""A function of kernels and tokens, each any pytree of arrays, that returns one array."""

Wrt = Literal["kernels", "kernels_and_out", "tokens"]

_BATCH_SIZE = 64


def attention_jacobian(
    attention_fn: AttentionFunction,
    kernels: Any,
    tokens: Any,
    *,
    wrt: Wrt = "kernels",
    batch_size: int | None = None,
) -> Float[Array, "rows columns"]:
    """The dense Jacobian of an attention function.

    Forward mode, one column per parameter, in blocks of columns that are written into the result
    in place, so that memory beside the result is that of `batch_size` tangents. Everything is
    compiled, once for each function object and shapes: give arrays that change from call to call
    as arguments of a `jax.tree_util.Partial`, not in a new closure. Matrix products have full
    precision on every backend. The dtype is that of the kernels (or tokens), so in float64 call it
    where x64 is enabled.

    Args:
        attention_fn: `attention_fn(kernels, tokens)` gives one array of any shape. May be a pytree
            (`jax.tree_util.Partial`); it is then an argument of the compiled function.
        kernels: any pytree of arrays, such as (query, key, value), `AttentionKernels` or a dict.
        tokens: an array, or a pytree such as (tokens, context).
        wrt: "kernels" differentiates by every array in `kernels`, except the `out` of
            `AttentionKernels`: the J of the paper has query, key and value alone.
            "kernels_and_out" includes it. "tokens" differentiates by `tokens`.
        batch_size: columns computed at a time; None takes 64.

    Returns:
        (rows, columns): the output's entries by the parameters, both in C order, kernels one after
        the other in the order of their pytree.

    Raises:
        UserError: if kernels, tokens or the Jacobian are not finite (a query that sees no key makes
            NaN), arrays are not floating point, `attention_fn` does not return one array, or an
            option is unknown.

    Example:
        >>> import jax.numpy as jnp
        >>> from condinit_jax.spectra import Head, attention_jacobian, head_output
        >>> head = Head(jnp.eye(4, 6), jnp.eye(6, 2), jnp.eye(6, 2), jnp.eye(6, 2))
        >>> attention_jacobian(lambda kernels, tokens: head_output(head, kernels), head.kernels,
        ...     head.tokens).shape
        (8, 36)
    """
    check_inputs(kernels, tokens, wrt)
    if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
        raise UserError(f"batch_size = {batch_size!r}: must be a whole number, at least 1")
    jacobian, finite = _jacobian(
        as_pytree(attention_fn), kernels, tokens, wrt=wrt, batch_size=batch_size or _BATCH_SIZE
    )
    if not isinstance(finite, jax.core.Tracer) and not finite:
        raise UserError(
            "attention_fn: its Jacobian is not finite at these kernels and tokens, though they "
            "are; a query that sees no key or a norm of zero does that"
        )
    return jacobian


@functools.partial(jax.jit, static_argnames=("wrt", "batch_size"))
def _jacobian(
    attention_fn: AttentionFunction, kernels: Any, tokens: Any, *, wrt: Wrt, batch_size: int
) -> tuple[Array, Array]:
    # On accelerators the default precision of products would limit what a condition number means.
    with jax.default_matmul_precision("highest"):
        function, at = as_vector_function(attention_fn, kernels, tokens, wrt)
        output, tangent = jax.linearize(function, at)
        columns, block = at.size, min(batch_size, at.size)

        def write_block(index: Array, result: Array) -> Array:
            # The last block starts early where blocks do not divide the columns, and redoes a few.
            start = jnp.minimum(index * block, columns - block)
            basis = jax.nn.one_hot(start + jnp.arange(block), columns, dtype=at.dtype)
            return jax.lax.dynamic_update_slice(
                result, jax.vmap(tangent, out_axes=1)(basis), (0, start)
            )

        empty = jnp.zeros((output.size, columns), output.dtype)
        jacobian = jax.lax.fori_loop(0, -(-columns // block), write_block, empty)
    return jacobian, jnp.isfinite(jacobian).all()


def as_vector_function(
    attention_fn: AttentionFunction, kernels: Any, tokens: Any, wrt: Wrt
) -> tuple[Callable[[Float[Array, " columns"]], Float[Array, " rows"]], Float[Array, " columns"]]:
    """An attention function as one of a vector, and the vector at which it is to be differentiated.

    Args:
        attention_fn: see `attention_jacobian`.
        kernels: pytree of arrays.
        tokens: pytree of arrays.
        wrt: what the vector holds.

    Returns:
        The function, its output raveled, and the raveled kernels or tokens.
    """
    fixed_out = None
    if wrt == "kernels" and isinstance(kernels, AttentionKernels):
        fixed_out, kernels = kernels.out, kernels._replace(out=None)
    at, unravel = ravel_pytree(tokens if wrt == "tokens" else kernels)
    if at.size == 0:
        raise UserError(f"wrt = {wrt!r}: there is no number to differentiate by")

    def function(vector: Array) -> Array:
        changed = unravel(vector)
        if wrt == "tokens":
            output = attention_fn(kernels, changed)
        elif fixed_out is not None:
            output = attention_fn(changed._replace(out=fixed_out), tokens)
        else:
            output = attention_fn(changed, tokens)
        if not isinstance(output, jax.Array) or not jnp.issubdtype(output.dtype, jnp.floating):
            kind = output.dtype if isinstance(output, jax.Array) else type(output).__name__
            raise UserError(f"attention_fn: returned {kind}; it must return one array of floats")
        return output.ravel()

    return function, at


def as_pytree(attention_fn: AttentionFunction) -> AttentionFunction:
    """The function in a form that `jit` takes as an argument, compiled once per function object."""
    if not callable(attention_fn):
        raise UserError(f"attention_fn = {attention_fn!r}: must be a function of (kernels, tokens)")
    if not jax.tree_util.treedef_is_leaf(jax.tree.structure(attention_fn)):
        return attention_fn
    try:
        hash(attention_fn)
    except TypeError:
        # Nothing tells whether such an object has changed since it was compiled: compile anew.
        return jax.tree_util.Partial(lambda kernels, tokens: attention_fn(kernels, tokens))
    return jax.tree_util.Partial(attention_fn)


def check_inputs(kernels: Any, tokens: Any, wrt: str) -> None:
    """Raises a UserError if there is nothing to differentiate, or it is not finite."""
    check_choice("wrt", wrt, get_args(Wrt))
    check_arrays("kernels", kernels)
    check_arrays("tokens", tokens)


def check_arrays(name: str, tree: Any) -> None:
    """Raises a UserError if a leaf is no array of finite floats; traced ones pass as finite."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    if not leaves:
        raise UserError(f"{name} = {tree!r}: must hold at least one array")
    for path, leaf in leaves:
        full = name + jax.tree_util.keystr(path)
        if not isinstance(leaf, jax.Array | np.ndarray) or not jnp.issubdtype(
            leaf.dtype, jnp.floating
        ):
            kind = getattr(leaf, "dtype", type(leaf).__name__)
            raise UserError(f"{full}: {kind}; must be an array of floats")
        if not isinstance(leaf, jax.core.Tracer):
            bad = np.count_nonzero(~np.isfinite(np.asarray(leaf)))
            if bad:
                raise UserError(f"{full}: {bad} of {leaf.size} numbers are not finite")


def block_output(
    kernels: AttentionKernels,
    tokens: Float[Array, "tokens width"],
    **options: Unpack[AttentionOptions],
) -> Float[Array, "tokens out_width"]:
    """The output of one attention block: all heads, and the out projection if it has one.

    With `attention_jacobian` and `jax.tree_util.Partial(block_output, mask=...)` it gives the
    Jacobian at the level of the block. An out bias would not change that, and is left out.

    Args:
        kernels: query (D, H, d), key (E, H_kv, d), value (E, H_kv, v) and out (H, v, O) or None.
        tokens: (N, D).
        **options: of `attention_heads`, such as `mask`.

    Returns:
        (N, O); without an out kernel the heads side by side, (N, H*v).

    Raises:
        UserError: if shapes do not fit each other.

    Example:
        >>> import jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> from condinit_jax.spectra import attention_jacobian, block_output
        >>> kernel, out = jnp.ones((6, 2, 3)), jnp.ones((2, 3, 6))
        >>> block = AttentionKernels(kernel, kernel, kernel, out)
        >>> block_output(block, jnp.ones((5, 6))).shape
        (5, 6)
        >>> attention_jacobian(block_output, block, jnp.ones((5, 6))).shape
        (30, 108)
        >>> attention_jacobian(
        ...     block_output, block, jnp.ones((5, 6)), wrt="kernels_and_out"
        ... ).shape
        (30, 144)
    """
    heads = attention_heads(kernels, tokens, **options)
    mixed = jax.vmap(head_output)(heads)
    if kernels.out is None:
        return jnp.moveaxis(mixed, 0, 1).reshape(len(tokens), -1)
    if kernels.out.ndim != 3 or kernels.out.shape[:2] != (mixed.shape[0], mixed.shape[2]):
        raise UserError(
            f"out: shape {kernels.out.shape} must be (heads, value dim, width) = "
            f"({mixed.shape[0]}, {mixed.shape[2]}, width)"
        )
    return jnp.einsum("hnv,hvo->no", mixed, kernels.out)
