"""Draws that give the same bits on any mesh of devices.

The result must not depend on how XLA splits the work over devices, or two runs of one seed would
start from different kernels on different meshes: a sum that is split over devices is rounded
differently. So a whole computation, the Gaussian included, is declared indivisible: every device
draws everything from the key, and no device waits for another.
"""

import functools
import itertools
from collections.abc import Callable, Hashable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, UInt32

KeyData = UInt32[Array, "batch words"]
Draws = Float[Array, "batch ..."]


@functools.cache
def _operation(
    draw: Callable[..., Draws],
    arguments: tuple[Hashable, ...],
    implementation: Any,
    words: int,
    constants: tuple[tuple[tuple[int, ...], np.dtype], ...],
) -> Callable[..., Draws]:
    """The draw for a batch of keys, as one operation to XLA and to `vmap`."""

    def everything(data: KeyData, *arrays: Array) -> Draws:
        typed = implementation is not None
        keys = jax.random.wrap_key_data(data, impl=implementation) if typed else data
        return draw(keys, *arrays, *arguments)

    def alone(data: KeyData, *arrays: Array) -> Draws:
        # What one device runs after the split knows no mesh; an explicit one would mark its arrays.
        with jax.sharding.use_abstract_mesh(AbstractMesh((), ())):
            return everything(data, *arrays)

    def everywhere(mesh: Any, arguments: Any, result: Any) -> Any:
        return NamedSharding(mesh, PartitionSpec())

    def partition(mesh: Any, arguments: Any, result: Any) -> Any:
        whole = everywhere(mesh, arguments, result)
        return mesh, alone, whole, (whole,) * (1 + len(constants))

    shapes = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in constants]
    one = jax.eval_shape(everything, jax.ShapeDtypeStruct((1, words), jnp.uint32), *shapes)
    axes = [f"a{axis}" for axis in range(1, one.ndim)]
    given = [
        [f"c{number}x{axis}" for axis in range(len(shape))]
        for number, (shape, _) in enumerate(constants)
    ]
    operands = ", ".join(["b k", *(" ".join(own) for own in given)])
    whole_draw = custom_partitioning(everything)
    whole_draw.def_partition(
        partition=partition,
        infer_sharding_from_operands=everywhere,
        sharding_rule=f"{operands} -> {' '.join(['b', *axes])}",
        need_replication_factors=("b", "k", *itertools.chain(*given), *axes),
        # Decoding fails on the shardings that XLA makes of a split H*d axis, and none is needed.
        decode_shardings=False,
    )

    @jax.custom_batching.custom_vmap
    def batchable(data: KeyData, *arrays: Array) -> Draws:
        return whole_draw(data, *arrays)

    @batchable.def_vmap
    def batch(size: int, batched: list[bool], data: Array, *arrays: Array) -> tuple[Array, bool]:
        flat = batchable(data.reshape(-1, data.shape[-1]), *arrays)
        return flat.reshape(*data.shape[:-1], *flat.shape[1:]), True

    # Compiled as a whole also where a model is initialised outside jit, once per shape.
    return jax.jit(batchable)


def indivisible(
    draw: Callable[..., Draws],
    key: Array,
    *arguments: Hashable,
    constants: tuple[np.ndarray, ...] = (),
) -> Array:
    """Runs a drawing rule as one operation that no mesh of devices takes apart.

    Args:
        draw: gives, from a batch of keys, the constants and the arguments, one array whose first
            axis is the batch; a function of a module, since what is compiled for it is kept.
        key: one key, typed or raw.
        *arguments: whatever else the rule depends on, such as shapes and dtypes.
        constants: arrays that the rule reads; it may close over none.

    Returns:
        The draw for that key, without the batch axis; the same bits on any mesh of devices.

    Example:
        >>> def gaussian(keys, shape):
        ...     return jax.vmap(lambda key: jax.random.normal(key, shape))(keys)
        >>> indivisible(gaussian, jax.random.key(0), (2, 3)).shape
        (2, 3)
    """
    data, implementation = key, None
    if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key):
        data, implementation = jax.random.key_data(key), jax.random.key_impl(key)
    arrays = [jnp.asarray(constant) for constant in constants]
    kinds = tuple((array.shape, array.dtype) for array in arrays)
    operation = _operation(draw, arguments, implementation, data.shape[-1], kinds)
    return operation(data[None], *arrays)[0]
