"""Where arrays live: the mesh, and shardings as a function of a leaf's path and shape.

Batches are split over both mesh axes. Parameters, their average and the optimizer's moments are
split over "fsdp" alone, so a mesh of shape (n, 1) is plain data parallelism and (1, n) shards
everything.
"""

import math
from collections.abc import Mapping

import chex
import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from condinit_jax.config import Config, MeshConfig
from condinit_jax.errors import UserError
from condinit_jax.training.paths import is_stacked

AXES = ("data", "fsdp")

SMALLEST_SPLIT = 2**14
"""Leaves with fewer elements stay whole: gathering them costs more than the memory they take."""


def make_mesh(config: MeshConfig) -> Mesh:
    """Mesh over the devices of all processes.

    One process may use fewer devices than it has (the first ones); several processes must use all.

    Args:
        config: Devices along each axis.

    Returns:
        A mesh with axes "data" and "fsdp".

    Raises:
        UserError: If the devices cannot be arranged so.
    """
    count = jax.device_count()
    if config.fsdp > count or (config.data == -1 and count % config.fsdp):
        fits = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
        raise UserError(f"config.mesh.fsdp = {config.fsdp}: must divide {count} devices: {fits}")
    data = count // config.fsdp if config.data == -1 else config.data
    used = data * config.fsdp
    if used > count or (jax.process_count() > 1 and used != count):
        raise UserError(
            f"config.mesh.data = {config.data}: with config.mesh.fsdp = {config.fsdp} must be "
            f"{count // config.fsdp} or -1 on {count} devices"
        )
    return jax.make_mesh(
        (data, config.fsdp), AXES, axis_types=(AxisType.Auto,) * 2, devices=jax.devices()[:used]
    )


def check_batch(config: Config, mesh: Mesh) -> None:
    """Checks that batches split evenly over devices and micro-batches.

    Args:
        config: The run's fields.
        mesh: The run's mesh.

    Raises:
        UserError: If one does not; the message names the nearest sizes that do.
    """
    accumulate = config.optimizer.accumulate
    sizes = {
        "batch_size": (config.batch_size, accumulate),
        "eval_batch_size": (config.eval_batch_size or config.batch_size, 1),
    }
    for field, (size, parts) in sizes.items():
        unit = mesh.size * parts
        if size % unit:
            near = [n for n in (size // unit * unit, (size // unit + 1) * unit) if n > 0]
            split = f"{mesh.size} devices" + (f" x {parts} micro-batches" if parts > 1 else "")
            raise UserError(
                f"config.{field} = {size}: cannot be split over {split}; "
                f"use {' or '.join(str(n) for n in near)}"
            )


def leaf_spec(path: tuple, shape: tuple[int, ...], fsdp: int) -> PartitionSpec:
    """How one leaf is split: its largest divisible axis over "fsdp", never the layer axis.

    Args:
        path: Key path of the leaf.
        shape: Shape of the leaf.
        fsdp: Devices along the "fsdp" axis.

    Returns:
        The partition; empty for small leaves and those without a divisible axis. Of equally large
        axes the last is split.

    Example:
        >>> key = jax.tree_util.DictKey("blocks")
        >>> leaf_spec((key,), (8, 64, 256), fsdp=4) == PartitionSpec(None, None, "fsdp")
        True
    """
    first = 1 if is_stacked(path) else 0
    axes = [axis for axis in range(first, len(shape)) if shape[axis] % fsdp == 0]
    if fsdp == 1 or math.prod(shape) < SMALLEST_SPLIT or not axes:
        return PartitionSpec()
    split = max(axes, key=lambda axis: (shape[axis], axis))
    return PartitionSpec(*(None,) * split, "fsdp")


def param_shardings(shapes: chex.ArrayTree, mesh: Mesh) -> chex.ArrayTree:
    """Shardings of a tree of parameters or of any tree that mirrors them, such as moments.

    Args:
        shapes: Tree of arrays or `jax.ShapeDtypeStruct`.
        mesh: The run's mesh.

    Returns:
        A tree of the same structure with one `NamedSharding` per leaf.
    """
    fsdp = mesh.shape["fsdp"]
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: NamedSharding(mesh, leaf_spec(path, leaf.shape, fsdp)), shapes
    )


def batch_sharding(mesh: Mesh) -> NamedSharding:
    """Sharding of a batch: its first axis over all devices.

    Args:
        mesh: The run's mesh.

    Returns:
        The sharding.
    """
    return NamedSharding(mesh, PartitionSpec(AXES))


def replicated(mesh: Mesh) -> NamedSharding:
    """Sharding of a value that every device holds whole.

    Args:
        mesh: The run's mesh.

    Returns:
        The sharding.
    """
    return NamedSharding(mesh, PartitionSpec())


def to_devices(batch: Mapping[str, np.ndarray], sharding: NamedSharding) -> dict[str, jax.Array]:
    """This process's part of a batch as global arrays.

    Args:
        batch: Arrays whose first axis is this process's share of the batch.
        sharding: From `batch_sharding`.

    Returns:
        Arrays whose first axis is the whole batch.
    """
    return {name: jax.make_array_from_process_local_data(sharding, x) for name, x in batch.items()}
