"""The border: changed configs come in, checked and typed ones come out."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from condinit_jax.config._checks import check
from condinit_jax.config._fields import Config
from condinit_jax.config._schema import SELECTORS, flatten, schema, selector, unknown, wrong
from condinit_jax.config._values import Field, describe_type
from condinit_jax.errors import UserError


def default() -> ConfigDict:
    """The default of every field, to be changed by a recipe or in a notebook.

    The result takes any change; `parse` judges them all at once. `model` and `init` hold only what
    differs from the defaults of the model and method they name.

    Returns:
        Nested fields; a fresh copy each time.

    Example:
        >>> config = default()
        >>> config.optimizer.lr = 3e-3
        >>> config.model = {"name": "vit", "width": 64, "num_heads": 4}
    """
    return ConfigDict(dataclasses.asdict(Config()), type_safe=False)


def parse(config: Config | ConfigDict | Mapping[str, Any]) -> Config:
    """Check every field of a config and complete it.

    Args:
        config: from `default`, a recipe, `to_dict` or a notebook; absent fields take their default.

    Returns:
        The run, typed; `model` and `init` hold every field of the model, method and refinement
        they name.

    Raises:
        UserError: one line with the first field that is unknown, of the wrong type, out of range or
            in contradiction to another, its value, and what would be right.

    Example:
        >>> parse({"steps": 10, "batch_size": 0})
        Traceback (most recent call last):
        condinit_jax.errors.UserError: config.batch_size = 0: must be at least 1
    """
    given = dict(flatten(as_mapping(config)))
    fields = schema(*(accepted(given, path, selector(path)) for path in SELECTORS))
    for path, value in given.items():
        if path not in fields:
            raise unknown(path, value, fields)
    run = _assemble(Config, {path: accepted(given, path, field) for path, field in fields.items()})
    check(run)
    return run


def to_dict(config: Config) -> dict[str, Any]:
    """A config as JSON holds it: nested dictionaries, tuples as lists; `parse` takes it back."""
    return _listed(dataclasses.asdict(config))


def as_mapping(config: Config | ConfigDict | Mapping[str, Any]) -> Mapping[str, Any]:
    """Any form of a config as nested mappings."""
    if isinstance(config, Config):
        return to_dict(config)
    if isinstance(config, ConfigDict):
        return config.to_dict()
    if isinstance(config, Mapping):
        return config
    raise UserError(f"config = {config!r}: must be a ConfigDict, a Config or a dictionary")


def accepted(given: Mapping[str, Any], path: str, field: Field) -> Any:
    """The value of a field in flat settings, or its default.

    Raises:
        UserError: the field has to be given and is not, or its value is not possible.
    """
    value = given.get(path, field.default)
    if value is dataclasses.MISSING:
        raise UserError(f"config.{path}: has to be set, to {describe_type(field.annotation)}")
    try:
        return field.accept(value)
    except ValueError as error:
        raise wrong(path, value, error) from None


def _assemble(group: type, values: Mapping[str, Any], prefix: str = "") -> Any:
    """Flat settings as nested dataclasses; `model` and `init` as dictionaries."""
    arguments = {}
    for entry in dataclasses.fields(group):
        path = f"{prefix}{entry.name}"
        if isinstance(entry.type, type) and dataclasses.is_dataclass(entry.type):
            arguments[entry.name] = _assemble(entry.type, values, f"{path}.")
        elif path in values:
            arguments[entry.name] = values[path]
        else:
            arguments[entry.name] = _nested(values, f"{path}.")
    return group(**arguments)


def _nested(values: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """Flat settings below a prefix as nested dictionaries."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        if path.startswith(prefix):
            *groups, name = path.removeprefix(prefix).split(".")
            node = tree
            for group in groups:
                node = node.setdefault(group, {})
            node[name] = value
    return tree


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _listed(inner) for name, inner in value.items()}
    return [_listed(inner) for inner in value] if isinstance(value, list | tuple) else value
