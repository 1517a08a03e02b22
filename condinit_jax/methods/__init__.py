"""Initialization methods: `factory(...)` gives `method(key, kernels) -> kernels`.

Most act on one attention block; a `NetworkMethod` acts on a whole parameter tree.

`METHODS` is the one table of their names, as `config.init.method` uses them.
"""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from condinit_jax.errors import UserError
from condinit_jax.methods._aliases import ALIASES
from condinit_jax.methods._conditioned import conditioned
from condinit_jax.methods._deepnorm import deepnorm
from condinit_jax.methods._gpt2 import gpt2
from condinit_jax.methods._hybrid import hybrid
from condinit_jax.methods._impulse import impulse
from condinit_jax.methods._method import Method, NetworkMethod
from condinit_jax.methods._mimetic import mimetic
from condinit_jax.methods._plain import (
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
    lifted,
    normal,
    orthogonal,
    semi_orthogonal,
    truncated_normal,
    xavier_normal,
    xavier_uniform,
)
from condinit_jax.methods._skipless import skipless
from condinit_jax.methods._small import small
from condinit_jax.methods._spectral import spectral
from condinit_jax.methods._t_fixup import t_fixup
from condinit_jax.methods._tied import tied
from condinit_jax.methods._weight_selection import weight_selection
from condinit_jax.named import make_named

METHODS: dict[str, Callable[..., Method | NetworkMethod]] = {
    "conditioned": conditioned,
    "mimetic": mimetic,
    "impulse": impulse,
    "skipless": skipless,
    "tied": tied,
    "small": small,
    "hybrid": hybrid,
    "truncated_normal": truncated_normal,
    "normal": normal,
    "xavier_uniform": xavier_uniform,
    "xavier_normal": xavier_normal,
    "he_uniform": he_uniform,
    "he_normal": he_normal,
    "lecun_uniform": lecun_uniform,
    "lecun_normal": lecun_normal,
    "orthogonal": orthogonal,
    "semi_orthogonal": semi_orthogonal,
    "gpt2": gpt2,
    "t_fixup": t_fixup,
    "deepnorm": deepnorm,
    "spectral": spectral,
    "weight_selection": weight_selection,
}

DEFAULT = "default"

REFINE = "refine"
"""The entry of `config.init` that is no argument of the method."""


def build(
    init: Mapping[str, Any], facts: Mapping[str, Any] | None = None
) -> Method | NetworkMethod | None:
    """The method that a run's `config.init` names, with its arguments.

    Args:
        init: `method`, a name in `METHODS` or "default", and the arguments of that factory.
        facts: What the run knows of its model, such as `rows` and `columns`, the grid of its
            tokens; fills in arguments of those names that are None.

    Returns:
        The method, or None for "default": the model's own initialization stays.

    Raises:
        UserError: if the method or an argument is unknown, or a value impossible.

    Example:
        >>> method = build({"method": "conditioned", "value": "joint"})
        >>> build({"method": "default"}) is None
        True
    """
    arguments = {name: value for name, value in init.items() if name not in ("method", REFINE)}
    name = init.get("method", DEFAULT)
    return make_named(
        METHODS,
        "config.init.method",
        name,
        arguments,
        none=DEFAULT,
        facts=facts,
        blame=f"config.init (method {name!r}): ",
    )


def resolve(name: str, flag: str = "--init") -> str:
    """The method that a name on a command line stands for.

    Args:
        name: A key of `METHODS`, "default", or an alias such as "xavier".
        flag: What named it, for the error.

    Returns:
        The key.

    Raises:
        UserError: If there is none.

    Example:
        >>> resolve("xavier"), resolve("default")
        ('xavier_uniform', 'default')
    """
    known = [DEFAULT, *METHODS]
    name = name if name in known else ALIASES.get(name, name)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        guess = f"did you mean {near[0]}? There" if near else "there"
        raise UserError(f"{flag} = {name!r}: unknown method; {guess} are {', '.join(known)}")
    return name


__all__ = [
    "DEFAULT",
    "METHODS",
    "REFINE",
    "Method",
    "NetworkMethod",
    "build",
    "conditioned",
    "deepnorm",
    "gpt2",
    "he_normal",
    "he_uniform",
    "hybrid",
    "impulse",
    "lecun_normal",
    "lecun_uniform",
    "lifted",
    "mimetic",
    "normal",
    "orthogonal",
    "resolve",
    "semi_orthogonal",
    "skipless",
    "small",
    "spectral",
    "t_fixup",
    "tied",
    "truncated_normal",
    "weight_selection",
    "xavier_normal",
    "xavier_uniform",
]
