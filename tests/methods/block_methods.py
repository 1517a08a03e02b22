"""Every method on attention blocks in the table, with what its tests may ask of it."""

import inspect
import typing

import jax
import jax.numpy as jnp

from condinit_jax import methods
from condinit_jax.kernels import ROLES, AttentionKernels

GRID = {"rows": 2, "columns": 3}
BLOCK_METHODS = {
    name: factory
    for name, factory in methods.METHODS.items()
    if typing.get_type_hints(factory).get("return") is not methods.NetworkMethod
}
# Methods that prescribe products of two kernels take fewer blocks than the others.
TIED = {"mimetic", "impulse", "skipless"}
ONE_ROLE = [
    (name, role)
    for name, factory in BLOCK_METHODS.items()
    if "kernels" in inspect.signature(factory).parameters
    for role in inspect.signature(factory).parameters["kernels"].default
]
SENTINEL = 7.0


def make(name, **arguments):
    """The method with its defaults, as a run builds it."""
    return methods.build({"method": name, **arguments}, GRID)


def touched(name):
    """The roles that the method says it rewrites: the default of its argument `kernels`."""
    parameters = inspect.signature(BLOCK_METHODS[name]).parameters
    return tuple(parameters["kernels"].default if "kernels" in parameters else ROLES[:3])


def block(width=24, heads=3, dim=8, *, kv_heads=None, out=True, dtype="float32", fill=SENTINEL):
    """A block whose kernels all hold one number."""
    kv_heads = kv_heads or heads
    return AttentionKernels(
        jnp.full((width, heads, dim), fill, dtype),
        jnp.full((width, kv_heads, dim), fill, dtype),
        jnp.full((width, kv_heads, dim), fill, dtype),
        jnp.full((heads, dim, width), fill, dtype) if out else None,
    )


KEY = jax.random.key(3)
