"""What a field's annotation and limits accept, for values from Python and for text from a shell."""

import dataclasses
import difflib
import math
import numbers
import types
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class Limits:
    """Bounds of a number, or of every number in a tuple; None does not bind."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    below: float | None = None

    def describe(self) -> str:
        """The bounds in words, such as ``at least 0 and below 1``."""
        words = {
            "at least": self.minimum,
            "above": self.above,
            "at most": self.maximum,
            "below": self.below,
        }
        return " and ".join(f"{word} {bound}" for word, bound in words.items() if bound is not None)

    def hold(self, number: float) -> bool:
        """Whether a number is finite and inside the bounds."""
        return (
            (isinstance(number, int) or math.isfinite(number))
            and (self.minimum is None or number >= self.minimum)
            and (self.above is None or number > self.above)
            and (self.maximum is None or number <= self.maximum)
            and (self.below is None or number < self.below)
        )


@dataclasses.dataclass(frozen=True)
class Field:
    """One field: what it may hold, what it holds when nothing is said, and what it is for.

    A `default` of `dataclasses.MISSING` marks a field that has to be given.
    """

    annotation: Any
    default: Any
    doc: str = ""
    limits: Limits = Limits()

    def __post_init__(self) -> None:
        # Data that a config holds in order is a tuple, whatever a signature calls it.
        if typing.get_origin(self.annotation) in (Collection, Sequence):
            (entry,) = typing.get_args(self.annotation)
            object.__setattr__(self, "annotation", types.GenericAlias(tuple, (entry, ...)))

    @property
    def settable(self) -> bool:
        """Whether a config, which is plain data, can hold a value of this field."""
        return _is_data(self.annotation)

    def accept(self, value: Any) -> Any:
        """The value as the field's type.

        Args:
            value: what a recipe, a notebook or a stored config holds.

        Returns:
            The value; integers become floats and lists become tuples where the field wants that.

        Raises:
            ValueError: the message says what the value must be.
        """
        return self._within_limits(_accept(self.annotation, value))

    def read(self, text: str) -> Any:
        """The value that a text from the command line stands for.

        Args:
            text: such as ``1e-3``, ``true``, ``0.5,0.5`` or ``none``.

        Returns:
            The value as the field's type.

        Raises:
            ValueError: the message says what the text must be.
        """
        return self._within_limits(_read(self.annotation, text))

    def _within_limits(self, value: Any) -> Any:
        entries = value if isinstance(value, tuple) else (value,)
        each = "every entry must be " if isinstance(value, tuple) else "must be "
        for entry in entries:
            if isinstance(entry, float) and not math.isfinite(entry):
                raise ValueError(f"{each}a finite number")
            if isinstance(entry, int | float) and not self.limits.hold(entry):
                raise ValueError(each + self.limits.describe())
        return value


def choices(names: Iterable[Any]) -> str:
    """Names as a sentence lists them: ``a, b or c``."""
    *most, last = [str(name) for name in names] or [""]
    return f"{', '.join(most)} or {last}" if most else last


def describe_type(annotation: Any) -> str:
    """An annotation in the words of an error message, such as ``an integer``."""
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return choices(parts)
    if origin in (typing.Union, types.UnionType):
        # What a config cannot hold is for callers from Python.
        return " or ".join(describe_type(part) for part in parts if _is_data(part))
    if origin is tuple or annotation is tuple:
        inner = {int: "integers", float: "numbers", str: "texts"}
        if parts and typing.get_origin(parts[0]) is Literal:
            return f"a tuple of {describe_type(parts[0])}"
        return f"a tuple of {inner.get(parts[0], 'values') if parts else 'values'}"
    names = {
        bool: "true or false",
        int: "an integer",
        float: "a number",
        str: "a text",
        types.NoneType: "none",
        Any: "anything",
    }
    return names.get(annotation, "a Python object")


def _is_data(annotation: Any) -> bool:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_is_data(part) for part in parts)
    if origin is tuple:
        return all(part is Ellipsis or _is_data(part) for part in parts)
    return annotation in (bool, int, float, str, tuple, types.NoneType, Any)


def _wrong(annotation: Any) -> ValueError:
    return ValueError(f"must be {describe_type(annotation)}")


def _no_choice(parts: Iterable[Any], value: Any) -> ValueError:
    names = [str(part) for part in parts]
    near = difflib.get_close_matches(str(value), names, 1)
    return ValueError(f"must be {choices(names)}" + (f"; did you mean {near[0]}?" if near else ""))


def _first(annotations: Iterable[Any], convert: Callable[[Any], Any], whole: Any) -> Any:
    """The first member of a union that takes the value."""
    for annotation in annotations:
        try:
            return convert(annotation)
        except ValueError:
            continue
    raise _wrong(whole)


def _accept(annotation: Any, value: Any) -> Any:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        # An integer given to `float | int` stays one: exact types come before conversions.
        exact = [part for part in parts if type(value) is part]
        return _first([*exact, *parts], lambda part: _accept(part, value), annotation)
    if origin is Literal:
        if any(type(value) is type(part) and value == part for part in parts):
            return value
        raise _no_choice(parts, value)
    if origin is tuple or annotation is tuple:
        if not isinstance(value, list | tuple):
            raise _wrong(annotation)
        try:
            return tuple(_accept(part, entry) for part, entry in _entries(annotation, value))
        except ValueError:
            raise _wrong(annotation) from None
    if annotation is Any:
        return value
    truth = isinstance(value, bool)
    if annotation is bool and truth:
        return value
    if annotation is int and isinstance(value, numbers.Integral) and not truth:
        return int(value)
    if annotation is float and isinstance(value, numbers.Real) and not truth:
        return float(value)
    if annotation in (str, types.NoneType) and isinstance(value, annotation):
        return value
    raise _wrong(annotation)


def _read(annotation: Any, text: str) -> Any:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        # Every text is a str, so a str in a union takes only what nothing else takes.
        ordered = sorted(parts, key=lambda part: part is str)
        return _first(ordered, lambda part: _read(part, text), annotation)
    if origin is Literal:
        named = {str(part).lower(): part for part in parts}
        if text.lower() in named:
            return named[text.lower()]
        raise _no_choice(parts, text)
    if origin is tuple or annotation is tuple:
        inner = text.strip().removeprefix("(").removesuffix(")").rstrip(",")
        words = [word.strip() for word in inner.split(",")] if inner else []
        try:
            return tuple(_read(part, word) for part, word in _entries(annotation, words))
        except ValueError:
            raise _wrong(annotation) from None
    if annotation is bool and text.lower() in ("true", "false"):
        return text.lower() == "true"
    if annotation in (int, float):
        try:
            return annotation(text)
        except ValueError:
            raise _wrong(annotation) from None
    if annotation is types.NoneType and text.lower() == "none":
        return None
    if annotation in (str, Any):
        return text
    raise _wrong(annotation)


def _entries(annotation: Any, values: Any) -> list[tuple[Any, Any]]:
    """Each value beside the annotation of its place in a tuple."""
    parts = typing.get_args(annotation) or (Any, ...)
    if len(parts) == 2 and parts[1] is Ellipsis:
        return [(parts[0], value) for value in values]
    if len(parts) != len(values):
        raise _wrong(annotation)
    return list(zip(parts, values, strict=True))
