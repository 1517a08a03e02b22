"""Taking the kernels of each layer out of a stored leaf, and putting them back."""

import dataclasses
from collections.abc import Mapping

import einops
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array

from condinit_jax.kernels import Role
from condinit_jax.leaves import explicit_sharding

_INPUT = "layers groups width heads dim -> layers width (groups heads) dim"
_OUTPUT = "layers groups width heads dim -> layers (groups heads) dim width"


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the kernels of a block stand in one stored leaf; everything in it is static.

    Attributes:
        roles: the kernels, in their order along `part`, or along `heads` where there is no `part`.
        heads: how many places along `heads` each of them takes.
        axes: for every axis of the leaf the names that make it up.
        sizes: the size of each name.
    """

    roles: tuple[Role, ...]
    heads: tuple[int, ...]
    axes: tuple[tuple[str, ...], ...]
    sizes: tuple[tuple[str, int], ...]

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The axes of stacked layers."""
        return tuple(n for axis in self.axes for n in axis if n.startswith("layers"))

    def unpacked(self, leaf: Array) -> dict[Role, Array]:
        """Each kernel per head, (layers, D, H, d), for out (layers, H, d, D)."""
        stored, inner = self._sides()
        apart = einops.rearrange(whole(leaf), f"{stored} -> {inner}", **dict(self.sizes))
        kernels = {}
        for role, part, start, count in self._places():
            kernel = apart[:, part, :, :, start : start + count]
            kernels[role] = einops.rearrange(kernel, _OUTPUT if role == "out" else _INPUT)
        return kernels

    def packed(self, kernels: Mapping[Role, Array]) -> Array:
        """The leaf with these kernels, all that it holds."""
        stored, inner = self._sides()
        groups = dict(self.sizes).get("groups", 1)
        pieces = []
        for role in self.roles:
            after, before = (_OUTPUT if role == "out" else _INPUT).split(" -> ")
            pieces.append(
                einops.rearrange(whole(kernels[role]), f"{before} -> {after}", groups=groups)
            )
        if self._parted:
            apart = jnp.stack(pieces, axis=1)
        else:
            apart = jnp.concatenate(pieces, axis=3)[:, None]
        return einops.rearrange(apart, f"{inner} -> {stored}", **dict(self.sizes))

    @property
    def _parted(self) -> bool:
        return any("part" in axis for axis in self.axes)

    def _places(self) -> list[tuple[Role, int, int, int]]:
        """For each role its place along `part`, and its first place and count along `heads`."""
        places, start = [], 0
        for index, (role, count) in enumerate(zip(self.roles, self.heads, strict=True)):
            places.append((role, index, 0, count) if self._parted else (role, 0, start, count))
            start += count
        return places

    def _sides(self) -> tuple[str, str]:
        """The two sides of the rearrangement; axes that the leaf lacks have size one."""
        names = {name for axis in self.axes for name in axis}
        stored = " ".join(f"({' '.join(axis)})" if len(axis) > 1 else axis[0] for axis in self.axes)
        part = "part" if "part" in names else "()"
        groups = "groups" if "groups" in names else "()"
        return stored, f"({' '.join(self.layer_names)}) {part} {groups} width heads dim"


def whole(kernel: Array) -> Array:
    """A kernel that can be cut and stacked along any axis."""
    sharding = explicit_sharding(kernel)
    return kernel if sharding is None else jax.sharding.reshard(kernel, PartitionSpec())
