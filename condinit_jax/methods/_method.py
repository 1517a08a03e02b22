"""What a method is: a pure function of one attention block's kernels, or of a whole network."""

import dataclasses
import inspect
from collections.abc import Callable, Collection
from typing import Any, Protocol, get_args

import jax
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.initializers import Initializer
from condinit_jax.kernels import ROLES, AttentionKernels, Role, flat_shape

INPUTS: tuple[Role, ...] = ("query", "key", "value")


class Method(Protocol):
    """Rewrites one attention block; block-level, since some rules tie two kernels together."""

    def __call__(self, key: Array, kernels: AttentionKernels) -> AttentionKernels:
        """Returns the block with some kernels replaced by others of the same shape and dtype."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class NetworkMethod:
    """Rewrites a whole parameter tree: for rules that need the depth, an MLP or another network.

    Attributes:
        rewrite: `(key, params, data) -> params`, pure, runs inside `jit`; the structure, shapes and
            dtypes stay, and leaves that are not rewritten are handed back as they came.
        data: Gives what `rewrite` reads besides, such as a teacher's arrays; called once, outside
            `jit`, whose argument it becomes and not a constant of the compiled program.
        offsets: `params -> offsets`, constants that the forward pass adds to some parameters and
            that are not trained (`condinit_jax.surgery.with_offsets`); None for none.
    """

    rewrite: Callable[[Array, Any, Any], Any]
    data: Callable[[], Any] = lambda: None
    offsets: Callable[[Any], Any] | None = None


def checked_method(field: str, method: Any) -> Any:
    """The method itself, unless it is one of the things that are taken for one.

    Args:
        field: what the user calls it.
        method: of any type.

    Raises:
        UserError: if it is a factory without its parentheses, an initializer, or not callable.
    """
    if isinstance(method, NetworkMethod):
        return method
    if not callable(method):
        raise UserError(
            f"{field}: a {type(method).__name__} is no method; write one such as "
            "condinit_jax.methods.conditioned()"
        )
    try:
        signature = inspect.signature(method)
    except (TypeError, ValueError):  # some callables that are not written in Python have none
        return method
    if signature.return_annotation in (Method, NetworkMethod):
        name = getattr(method, "__name__", "it")
        raise UserError(f"{field}: {name} is a factory: write {name}(), with parentheses")
    if "shape" in signature.parameters:
        raise UserError(
            f"{field}: an initializer draws one kernel; write condinit_jax.methods.conditioned(), "
            "another of condinit_jax.methods, or condinit_jax.methods.lifted(initializer)"
        )
    return method


def checked_roles(kernels: Collection[str]) -> tuple[Role, ...]:
    """The roles among `kernels`, in the package's order.

    Raises:
        ValueError: if `kernels` is empty or holds anything else.
    """
    names = (kernels,) if isinstance(kernels, str) else tuple(kernels)
    unknown = [name for name in names if name not in get_args(Role)]
    if unknown or not names:
        raise ValueError(f"kernels = {names!r}: must be some of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in names)


def rewrite(
    key: Array, kernels: AttentionKernels, initializers: dict[Role, Initializer]
) -> AttentionKernels:
    """Draws the named kernels anew, each from a key of its own, through their flat shapes.

    Args:
        key: the block's key; a role's key does not depend on which other roles are drawn.
        kernels: the block.
        initializers: for each role to rewrite, an initializer of its (inputs, outputs) kernel.

    Returns:
        The block with those kernels replaced. A block without an out kernel keeps None.
    """
    drawn = {}
    for position, role in enumerate(ROLES):
        old = getattr(kernels, role)
        if role in initializers and old is not None:
            flat = initializers[role](
                jax.random.fold_in(key, position), flat_shape(old.shape, role), old.dtype
            )
            drawn[role] = flat.reshape(old.shape)
    return kernels._replace(**drawn)
