"""Options that the ways to a spectrum share, and what is wrong with them."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Literal, TypedDict, get_args

import jax

from condinit_jax.errors import UserError

Method = Literal["auto", "gram", "qr", "matrix_free"]
Values = Literal["extremes", "all"]

GIB = 2**30


class SpectrumOptions(TypedDict, total=False):
    """The options of `jacobian_spectrum`, which says what they mean."""

    values: Values
    method: Method
    memory: float
    rtol: float | None
    accuracy: float
    device: jax.Device | None


def check_options(values: str, method: str, memory: float, accuracy: float) -> None:
    """Raises a UserError for an option of `jacobian_spectrum` that is out of range."""
    check_choice("values", values, get_args(Values))
    check_choice("method", method, get_args(Method))
    check_memory(memory)
    if not 0 < accuracy < 1:
        raise UserError(f"accuracy = {accuracy}: must be between 0 and 1")
    if values == "all" and method == "matrix_free":
        raise UserError("method = 'matrix_free': gives no more than the extremes; use 'qr'")


def check_choice(name: str, value: str, known: Sequence[str]) -> None:
    """Raises a UserError for a value that is not among those known."""
    if value not in known:
        raise UserError(f"{name} = {value!r}: must be one of {', '.join(known)}")


def check_memory(memory: float) -> None:
    """Raises a UserError for what is no number of bytes."""
    if not isinstance(memory, int | float) or not memory > 0:
        raise UserError(f"memory = {memory!r}: must be a positive number of bytes")


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Raises a UserError for an option of an unknown name."""
    known = list(dict.fromkeys(known))
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            guess = f"did you mean {near[0]}? There" if near else "there"
            raise UserError(f"{name}: unknown option; {guess} are {', '.join(known)}")
