"""Methods combined: one for query and key, one for value, one for out."""

import inspect
import typing
from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from condinit_jax.kernels import ROLES, AttentionKernels, Role
from condinit_jax.methods._method import Method, NetworkMethod, checked_method

_UNTOUCHED = "default"


def hybrid(
    query_key: str | Method = "conditioned",
    value: str | Method = "conditioned",
    out: str | Method = "default",
    rows: int | None = None,
    columns: int | None = None,
) -> Method:
    """Query and key by one method, value by another, out by a third.

    Each method is called on the whole block with the block's own key, and its kernels of the
    assigned roles are taken: they are drawn as that method draws them alone, and value and out both
    from "mimetic" stay one joint draw. Value from a method that ties it to out, and out from
    another or "default", is allowed; the product W_V W_O is then not the one that the method is
    about.

    Args:
        query_key: a name in `METHODS` of a method on blocks, with that method's default arguments,
            or "default" to leave both kernels alone; from Python also a method.
        value: the same for the value kernel.
        out: the same for the out kernel.
        rows: height of the grid of tokens, for methods that need it; None is filled in by a run.
        columns: width of the grid of tokens, for methods that need it; None is filled in by a run.

    Returns:
        A method for blocks that all the named methods take.

    Raises:
        ValueError: if a name is unknown, the method acts on a network as a whole, has no rule for
            the kernel, or all three are "default".

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> block = AttentionKernels(zeros, zeros, zeros, jnp.zeros((4, 16, 64)))
        >>> block = hybrid(value="mimetic", out="mimetic")(jax.random.key(0), block)
        >>> product = block.value.reshape(64, 64) @ block.out.reshape(64, 64)
        >>> bool(abs(product.diagonal().mean() + 0.4) < 0.05)
        True
    """
    assigned: dict[Role, str | Method] = {
        "query": query_key,
        "key": query_key,
        "value": value,
        "out": out,
    }
    choices: list[tuple[str | Method, list[Role]]] = []
    for role, choice in assigned.items():
        if isinstance(choice, str) and choice == _UNTOUCHED:
            continue
        roles = next(
            (roles for known, roles in choices if known is choice or known == choice), None
        )
        if roles is None:
            choices.append((choice, [role]))
        else:
            roles.append(role)
    if not choices:
        raise ValueError("query_key, value and out are all 'default': nothing to draw")
    grid = {"rows": rows, "columns": columns}
    parts = [(_method(choice, roles, grid), roles) for choice, roles in choices]

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        drawn: dict[str, Any] = {}
        for part, roles in parts:
            new = part(key, kernels)
            drawn |= {role: getattr(new, role) for role in roles}
        return kernels._replace(**drawn)

    return method


def _method(choice: str | Method, roles: list[Role], grid: dict[str, int | None]) -> Method:
    """The method itself, for those roles."""
    fields = dict.fromkeys({"query": "query_key", "key": "query_key"}.get(r, r) for r in roles)
    field = ", ".join(fields)
    if isinstance(choice, NetworkMethod):
        raise ValueError(f"{field}: the method acts on a network as a whole, not on blocks")
    if not isinstance(choice, str):
        if not callable(choice):
            raise ValueError(f"{field} = {choice!r}: must be a name or a method")
        return typing.cast(Method, checked_method(field, choice))
    names = block_methods()
    names.pop("hybrid", None)
    if choice not in names:
        listed = ", ".join([_UNTOUCHED, *names])
        raise ValueError(f"{field} = {choice!r}: must be one of {listed}")
    factory = names[choice]
    known = inspect.signature(factory).parameters
    arguments: dict[str, Any] = {name: size for name, size in grid.items() if name in known}
    try:
        return factory(kernels=tuple(role for role in ROLES if role in roles), **arguments)
    except ValueError as error:
        raise ValueError(f"{field} = {choice!r}: {error}") from error


def block_methods() -> dict[str, Callable[..., Method]]:
    """The entries of `METHODS` that act on attention blocks."""
    from condinit_jax.methods import METHODS  # the table names this module's own method

    return {
        name: typing.cast(Callable[..., Method], factory)
        for name, factory in METHODS.items()
        if typing.get_type_hints(factory).get("return") is not NetworkMethod
    }
