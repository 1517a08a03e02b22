"""Configs as text for people: what differs between two, and what every field means."""

import dataclasses
import textwrap
import typing
from collections.abc import Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from condinit_jax.config._fields import Config
from condinit_jax.config._parse import parse
from condinit_jax.config._schema import SELECTORS, flatten, schema
from condinit_jax.config._values import Field, choices, describe_type

_ABSENT = object()


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """The fields in which two configs differ.

    Args:
        old: from `to_dict`, or a stored ``config.json``.
        new: the same.

    Returns:
        Lines such as ``optimizer.lr: 0.001 -> 0.003``; ``(absent)`` stands for a field that one
        of them does not have.

    Example:
        >>> diff({"optimizer": {"lr": 1e-3}}, {"optimizer": {"lr": 3e-3}})
        ['optimizer.lr: 0.001 -> 0.003']
    """
    before, after = dict(flatten(old)), dict(flatten(new))
    lines = []
    for path in {**after, **before}:
        was, now = before.get(path, _ABSENT), after.get(path, _ABSENT)
        # JSON has no tuples: a stored list and a tuple in memory are the same value.
        if as_text(was) != as_text(now):
            lines.append(f"{path}: {as_text(was)} -> {as_text(now)}")
    return lines


def describe(config: Config | ConfigDict | Mapping[str, Any]) -> str:
    """A table of every field: its value in this config, its meaning, and what it may be.

    Args:
        config: anything that `parse` takes.

    Returns:
        Lines of at most 100 characters, a paragraph per group.

    Raises:
        UserError: as `parse` does.
    """
    run = parse(config)
    values = dict(flatten(dataclasses.asdict(run)))
    fields = schema(*(values[path] for path in SELECTORS))
    shown = {path: f"{path} = {as_text(values[path])}" for path in fields}
    margin = min(max(map(len, shown.values())), 44) + 2
    lines, group = [], ""
    for path, field in fields.items():
        if path.partition(".")[0] != group and ("." in path or "." in group):
            lines.append("")
        group = path.partition(".")[0] if "." in path else ""
        meaning = " ".join(filter(None, [field.doc, _allowed(field)]))
        first = shown[path].ljust(margin - 2) + "  "
        lines += textwrap.wrap(
            first + meaning, 100, subsequent_indent=" " * margin, drop_whitespace=True
        )
    return "\n".join(lines)


def _allowed(field: Field) -> str:
    """The type and limits in brackets, where the meaning does not say them already."""
    if typing.get_origin(field.annotation) is Literal:
        names = [str(choice) for choice in typing.get_args(field.annotation)]
        return "" if all(name in field.doc for name in names) else f"({choices(names)})"
    limits = field.limits.describe()
    return f"({describe_type(field.annotation)}{', ' if limits else ''}{limits})"


def as_text(value: Any) -> str:
    """A value as the command line takes it."""
    if value is _ABSENT:
        return "(absent)"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return ",".join(as_text(entry) for entry in value) or "()"
    return str(value) if value != "" else "''"
