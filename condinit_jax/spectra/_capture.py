"""From a model and a batch to its attention blocks, layer by layer, on the host."""

import dataclasses
import itertools
import operator
from collections.abc import Iterator, Sequence
from typing import Any

import flax.linen as nn
import jax
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.spectra._captured_block import CapturedBlock, check_block
from condinit_jax.spectra._head import TokenMap
from condinit_jax.spectra._record import (
    ApplyModules,
    Facts,
    Path,
    Recording,
    as_variables,
    check_model,
    record,
)
from condinit_jax.surgery import attention_blocks


def _record(
    model: nn.Module,
    structure: Any,
    plain: tuple[Any, ...],
    examples: tuple[int, ...] | None,
    variables: Any,
    arrays: list[Array | None],
) -> Recording:
    """`record`, with what is no array apart from the arrays."""
    leaves = [leaf if array is None else array for leaf, array in zip(plain, arrays, strict=True)]
    args, kwargs = jax.tree.unflatten(structure, leaves)
    return record(model, variables, *args, examples=examples, **kwargs)


_compiled_record = jax.jit(_record, static_argnums=range(4))


def capture(
    model: nn.Module,
    variables: Any,
    *args: Any,
    examples: Sequence[int] | None = None,
    **kwargs: Any,
) -> list[CapturedBlock]:
    """What enters each attention block of a linen model: `record`, compiled, then `assemble`.

    Args:
        model: see `record`.
        variables: the model's variables, or its parameters alone.
        *args: of the model's call.
        examples: which examples of the batch to keep; None keeps all.
        **kwargs: of the model's call. Dropout has to be off.

    Returns:
        One `CapturedBlock` for each attention block and layer, in depth order.

    Raises:
        UserError: see `record` and `assemble`.

    Example:
        >>> import flax.linen as nn
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import capture
        >>> model, tokens = nn.MultiHeadDotProductAttention(num_heads=2), jnp.ones((3, 5, 8))
        >>> variables = model.init(jax.random.key(0), tokens)
        >>> block, = capture(model, variables, tokens)
        >>> block.layer, block.tokens.shape, block.kernels.query.shape
        (0, (3, 5, 8), (8, 2, 4))
        >>> block.heads(example=2).query.shape
        (2, 8, 4)
    """
    check_model(model)
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = [leaf if isinstance(leaf, jax.Array | np.ndarray) else None for leaf in leaves]
    plain = tuple(
        leaf if array is None else None for leaf, array in zip(leaves, arrays, strict=True)
    )
    chosen = None if examples is None else tuple(examples)
    try:
        hash((model, plain))
    except TypeError:  # a field such as a dict: compiled anew, as nothing tells whether it changed
        run = jax.jit(lambda *given: _record(model, structure, plain, chosen, *given))
        return assemble(run(as_variables(variables), arrays))
    return assemble(
        _compiled_record(model, structure, plain, chosen, as_variables(variables), arrays)
    )


def assemble(recording: Recording) -> list[CapturedBlock]:
    """Takes a recording apart into blocks of one layer each, as NumPy arrays.

    Args:
        recording: what `record` returned, with every array whole on this process.

    Returns:
        The blocks in depth order: that of their first call, where layers of one scan go together.

    Raises:
        UserError: if tokens or kernels are not finite, or shapes not understood; the message names
            the layer.
    """
    parts, facts = jax.device_get(recording.blocks), recording.facts
    place = {stack: n for n, stack in reversed(list(enumerate(facts.stacks.values())))}
    found = [
        ((place[facts.stacks[path]], layer, call, order), block)
        for order, path in enumerate(facts.paths)
        for layer, call, block in _layers(path, parts["/".join(path)], facts)
    ]
    found.sort(key=lambda entry: entry[0])
    blocks = [dataclasses.replace(block, layer=n) for n, (_, block) in enumerate(found)]
    for block in blocks:
        check_block(block)
    return blocks


def _layers(path: Path, part: Any, facts: Facts) -> Iterator[tuple[int, int, CapturedBlock]]:
    """The blocks of one path, each with its layer in a scan and its number among repeated calls."""
    name = "/".join(path)
    (found,) = attention_blocks({name: part["params"]})
    axes = found.layer_axes

    def flat(array: np.ndarray) -> np.ndarray:
        if array.shape[: len(axes)] != axes:
            raise UserError(
                f"attention block {name!r}: what entered it has shape {array.shape}, which does "
                f"not begin with the layer axes {axes} of its kernels; scan both along axis 0"
            )
        return _as_floats(array).reshape(found.layers, *array.shape[len(axes) :])

    params = jax.tree.map(flat, part["params"])
    inputs = {role: [flat(array) for array in calls] for role, calls in part["inputs"].items()}
    calls = len(inputs["query"])
    masks, biases = ([flat(array) for array in part[kind]] for kind in ("mask", "bias"))
    for layer, call in itertools.product(range(found.layers), range(calls)):

        def at(arrays: Sequence[np.ndarray] | None, layer: int = layer, call: int = call) -> Any:
            return arrays[call][layer] if arrays and len(arrays) == calls else None

        own = jax.tree.map(operator.itemgetter(layer), params)
        maps = {
            role: _token_map(facts.maps.get((path, role), {}), own) for role in ("query", "key")
        }
        yield (
            layer,
            call,
            _block(
                name,
                own,
                {role: at(arrays) for role, arrays in inputs.items()},
                query_map=maps["query"],
                key_map=maps["key"],
                mask=_batched(at(masks), 3),
                logit_bias=_batched(at(biases), 3),
                dtype=facts.dtypes[path],
                examples=facts.examples,
            ),
        )


def _block(name: str, params: Any, inputs: dict[Role, Any], **fields: Any) -> CapturedBlock:
    tokens, context, value = (_batched(inputs[role], 2) for role in ("query", "key", "value"))
    if not np.array_equal(context, value, equal_nan=True):
        raise UserError(
            f"attention block {name!r}: its keys and values are made of different tokens, which is "
            "not supported"
        )
    output = inputs.get("out")
    if output is not None:
        # (.., N, H, v), or (.., N, H*v) where a dense layer with a flat kernel follows.
        heads, dim = params["query"]["kernel"].shape[1], params["value"]["kernel"].shape[-1]
        output = output.reshape(*tokens.shape[:2], heads, dim)
    return CapturedBlock(
        path=name,
        layer=0,
        tokens=tokens,
        context=None if np.array_equal(tokens, context, equal_nan=True) else context,
        kernels=AttentionKernels(
            **{role: params[role]["kernel"] for role in ROLES if role in params}
        ),
        biases=(
            params["query"].get("bias"),
            params["key"].get("bias"),
            params["value"].get("bias"),
        ),
        output=output,
        **fields,
    )


def _token_map(modules: dict[str, nn.Module], params: Any) -> TokenMap | None:
    if not modules:
        return None
    own = tuple(params.get(name, {}) for name in modules)
    return jax.tree_util.Partial(ApplyModules(tuple(modules.values())), own)


def _batched(array: np.ndarray | None, axes: int) -> Any:
    """The array with exactly one batch axis before its last `axes` axes."""
    return None if array is None else array.reshape(-1, *array.shape[array.ndim - axes :])


def _as_floats(array: np.ndarray) -> np.ndarray:
    """Masks as they are, float64 as it is, any other float as float32."""
    return array if array.dtype in (np.bool_, np.float64) else array.astype(np.float32)
