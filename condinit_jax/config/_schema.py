"""All fields of a run by dotted path, those of the named model, method and refinement included."""

import dataclasses
import difflib
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from ml_collections import ConfigDict

from condinit_jax.config._docstrings import documented
from condinit_jax.config._fields import Config
from condinit_jax.config._values import Field, choices
from condinit_jax.errors import UserError

# The fields whose value decides which further fields their group has, outer groups first.
SELECTORS = {"model.name": "model", "init.method": "method", "init.refine.name": "refinement"}
# What the task or Flax gives a model; never written in a config.
_GIVEN_BY_TASK = ("num_classes", "dtype", "parent", "name")
# Share of common letters above which a name is taken for a misspelt one: "stpes" and "steps".
_ALIKE = 0.79


def schema(model: str, method: str, refinement: str = "none") -> dict[str, Field]:
    """Every field that a run has.

    Args:
        model: a name in `condinit_jax.models.MODELS`.
        method: a name in `condinit_jax.methods.METHODS`, or ``default``.
        refinement: a name in `condinit_jax.refine.REFINERS`, or ``none``.

    Returns:
        Fields by dotted path, such as ``optimizer.lr``, in the order in which they are documented;
        those of `SELECTORS` have the given names as defaults.
    """
    fields = {}
    for entry in dataclasses.fields(Config):
        if entry.name == "model":
            fields["model.name"] = dataclasses.replace(selector("model.name"), default=model)
            fields |= _prefixed("model", _model_fields(model))
        elif entry.name == "init":
            fields["init.method"] = dataclasses.replace(selector("init.method"), default=method)
            fields |= _prefixed("init", _method_fields(method))
            chosen = dataclasses.replace(selector("init.refine.name"), default=refinement)
            fields["init.refine.name"] = chosen
            fields |= _prefixed("init.refine", _refinement_fields(refinement))
        elif isinstance(entry.type, type) and dataclasses.is_dataclass(entry.type):
            fields |= _prefixed(entry.name, _dataclass_fields(entry.type))
        else:
            fields[entry.name] = _documented(entry)
    return fields


def selector(path: str) -> Field:
    """The field of a path in `SELECTORS`; its choices are the names in its table."""
    if path == "model.name":
        from condinit_jax.models import MODELS

        return Field(Literal[tuple(MODELS)], "vit", "the model; the fields below are its own")
    if path == "init.refine.name":
        from condinit_jax.refine import REFINERS

        doc = "scales of the drawn parameters, learned before training; none keeps them as drawn"
        return Field(Literal[("none", *REFINERS)], "none", doc)
    from condinit_jax.methods import METHODS

    names = dict.fromkeys(["default", *METHODS])
    doc = "initialization of the attention kernels; default keeps the model's own"
    return Field(Literal[tuple(names)], "default", doc)


def flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings with their dotted paths."""
    for name, value in tree.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping | ConfigDict):
            yield from flatten(value, f"{path}.")
        else:
            yield path, value


def wrong(path: str, value: Any, right: object) -> UserError:
    """The error for a field that is known and a value that is not possible."""
    shown = " ".join(repr(value).split())
    return UserError(f"config.{path} = {shown[:77] + '...' if len(shown) > 80 else shown}: {right}")


def unknown(path: str, value: Any, fields: Mapping[str, Field]) -> UserError:
    """The error for a path that is no field, naming the nearest one that is."""
    group, _, name = path.rpartition(".")
    members = [known for known in fields if known.startswith(f"{path}.")]
    if members:
        inner = choices(f"config.{known}" for known in members[:3])
        return wrong(path, value, f"is a group of fields; set its fields, such as {inner}")
    if group == "model" and name in _GIVEN_BY_TASK:
        return wrong(path, value, "is given by the task; leave it out")
    if group == "init.refine" and fields["init.refine.name"].default == "none":
        # Its names, such as steps and lr, are those of other groups' fields too.
        names = choices(typing.get_args(fields["init.refine.name"].annotation)[1:])
        return wrong(path, value, f"needs config.init.refine.name, to be set to {names}")
    siblings = {_leaf(known): known for known in fields if _group(known) == group}
    elsewhere = [known for known in fields if _leaf(known) == name]
    continued = [
        siblings[leaf]
        for leaf in siblings
        if name and (leaf.startswith(name) or leaf.endswith(f"_{name}"))
    ]
    alike = [siblings[match] for match in difflib.get_close_matches(name, siblings, 1, _ALIKE)]
    near = [siblings[match] for match in difflib.get_close_matches(name, siblings, 1)]
    anywhere = difflib.get_close_matches(path, fields, 1)
    # The same name in one other group is a better guess than a faintly similar name in this one.
    guesses = continued + alike + (elsewhere if len(elsewhere) == 1 else [])
    guesses += _abbreviated(path, fields) + near
    if not guesses and group in map(_group, SELECTORS):
        chooser = next(selector for selector in SELECTORS if _group(selector) == group)
        own = [member for member in siblings if siblings[member] != chooser]
        has = f"takes {choices(own)}" if own else "takes no fields"
        right = f"unknown field; {SELECTORS[chooser]} {fields[chooser].default} {has}"
        return wrong(path, value, right)
    for guess in guesses + anywhere:
        return wrong(path, value, f"unknown field; did you mean config.{guess}?")
    tops = dict.fromkeys(known.partition(".")[0] for known in fields)
    there = siblings if group and siblings else tops
    return wrong(path, value, f"unknown field; there are {', '.join(there)}")


def find_field(name: str) -> str | None:
    """The field that a name stands for, whatever model or method has it.

    Args:
        name: a dotted path or its last part.

    Returns:
        The dotted path; None where no field has the name, or several have it.

    Example:
        >>> find_field("lr"), find_field("steps"), find_field("name")
        ('optimizer.lr', 'steps', None)
    """
    from condinit_jax.methods import METHODS
    from condinit_jax.models import MODELS

    methods = ["default", *METHODS]
    paths = {path for model in MODELS for method in methods for path in schema(model, method)}
    matches = [path for path in paths if _leaf(path) == name]
    if name in paths:
        return name
    return matches[0] if len(matches) == 1 else None


def _abbreviated(path: str, fields: Mapping[str, Field]) -> list[str]:
    """Fields that abbreviate the name or that it abbreviates, its own group's first."""
    initials = "".join(word[:1] for word in _leaf(path).split("_"))
    matches = [
        known
        for known in fields
        if _leaf(known) == initials != _leaf(path)
        or _leaf(path) == "".join(word[:1] for word in _leaf(known).split("_")) != _leaf(known)
    ]
    return sorted(matches, key=lambda known: _group(known) != _group(path))


def _leaf(path: str) -> str:
    return path.rpartition(".")[2]


def _group(path: str) -> str:
    return path.rpartition(".")[0]


def _prefixed(group: str, fields: Mapping[str, Field]) -> dict[str, Field]:
    return {f"{group}.{name}": field for name, field in fields.items()}


def _documented(entry: dataclasses.Field) -> Field:
    return Field(entry.type, entry.default, entry.metadata["doc"], entry.metadata["limits"])


def _default(entry: dataclasses.Field) -> Any:
    factory = entry.default_factory
    return entry.default if factory is dataclasses.MISSING else factory()


def _dataclass_fields(group: type) -> dict[str, Field]:
    return {entry.name: _documented(entry) for entry in dataclasses.fields(group)}


def _model_fields(name: str) -> dict[str, Field]:
    from condinit_jax.models import MODELS

    model = MODELS[name]
    hints, meanings = typing.get_type_hints(model), documented(model)
    fields = {
        entry.name: Field(hints[entry.name], _default(entry), meanings.get(entry.name, ""))
        for entry in dataclasses.fields(model)
        if entry.init and entry.name not in _GIVEN_BY_TASK
    }
    return {name: field for name, field in fields.items() if field.settable}


def _method_fields(name: str) -> dict[str, Field]:
    from condinit_jax.methods import METHODS

    return {} if name == "default" else _argument_fields(METHODS[name])


def _refinement_fields(name: str) -> dict[str, Field]:
    from condinit_jax.refine import REFINERS

    return {} if name == "none" else _argument_fields(REFINERS[name])


def _argument_fields(factory: Callable[..., Any]) -> dict[str, Field]:
    hints, meanings = typing.get_type_hints(factory), documented(factory)
    fields = {}
    for name, parameter in inspect.signature(factory).parameters.items():
        missing = parameter.default is inspect.Parameter.empty
        default = dataclasses.MISSING if missing else parameter.default
        annotation = hints.get(name, Any if missing else type(parameter.default))
        field = Field(annotation, default, meanings.get(name, ""))
        if field.settable and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            fields[name] = field
    return fields
