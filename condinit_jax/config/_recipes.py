"""Recipes: files that give a config, and changes to it written as on a command line."""

import importlib.util
import inspect
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from ml_collections import ConfigDict

from condinit_jax.config._fields import Config
from condinit_jax.config._parse import accepted, as_mapping
from condinit_jax.config._schema import SELECTORS, flatten, schema, selector, unknown, wrong
from condinit_jax.config._values import Field
from condinit_jax.errors import UserError


def load(recipe: str, directories: Sequence[Path] = (Path(),)) -> ConfigDict:
    """The config that a recipe file gives.

    Args:
        recipe: ``FILE.py`` or ``FILE.py:ARGUMENT``; the file's function ``get_config`` is called
            with the argument, or without one.
        directories: where a relative file is looked for, in order.

    Returns:
        What ``get_config`` returns.

    Raises:
        UserError: there is no such file, it has no ``get_config``, or it fails.
    """
    name, colon, argument = recipe.partition(".py:")
    file = f"{name}.py" if colon else recipe
    found = [directory / file for directory in directories if (directory / file).is_file()]
    if not found:
        raise UserError(f"{file}: no such config file{_recipes_in(directories)}")
    if found[0].suffix != ".py":
        raise UserError(f"{file}: a config file ends in .py")
    # As absolute as the file names in a traceback, whose line is looked for below.
    location = found[0].absolute()
    try:
        get_config = getattr(_module(location), "get_config", None)
        if not callable(get_config):
            raise UserError(f"{file}: a config file defines a function get_config(argument)")
        arguments = [argument] if argument else []
        try:
            inspect.signature(get_config).bind(*arguments)
        except TypeError:
            way = f"no argument; {argument!r} was given" if argument else f"one, as {file}:ARGUMENT"
            raise UserError(f"{file}: get_config takes {way}") from None
        given = get_config(*arguments)
        if not isinstance(given, Config | ConfigDict | Mapping):
            raise UserError(f"{file}: get_config returns a ConfigDict, not {type(given).__name__}")
        return ConfigDict(dict(as_mapping(given)), type_safe=False)
    except UserError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == str(location)]
        if isinstance(error, SyntaxError):
            lines = [error.lineno]
        place = f"line {lines[-1]}: " if lines and lines[-1] else ""
        text = " ".join(str(error).split())
        raise UserError(f"{file}: {place}{type(error).__name__}: {text}") from error


def override(config: ConfigDict, assignments: Iterable[str]) -> ConfigDict:
    """A config with some fields changed by text.

    A changed ``model.name``, ``init.method`` or ``init.refine.name`` takes effect first, wherever
    it stands, and drops what the config held for the model, method or refinement named before.

    Args:
        config: from `default` or `load`; it stays as it is.
        assignments: such as ``optimizer.lr=1e-3`` or ``init.value=joint``; of two for the same
            field the later counts.

    Returns:
        The changed copy.

    Raises:
        UserError: a field does not exist or its text does not read as its type.

    Example:
        >>> from condinit_jax.config import default
        >>> override(default(), ["optimizer.lr=1e-3"]).optimizer.lr
        0.001
    """
    texts = dict(_pair(assignment) for assignment in assignments)
    tree = config.to_dict()
    for path in SELECTORS:
        if path in texts:
            chosen = _read(path, texts.pop(path), selector(path))
            if chosen != accepted(dict(flatten(tree)), path, selector(path)):
                _choose(tree, path, chosen)
    flat = dict(flatten(tree))
    fields = schema(*(accepted(flat, path, selector(path)) for path in SELECTORS))
    for path, text in texts.items():
        if path not in fields:
            raise unknown(path, text, fields)
        group, _, name = path.rpartition(".")
        _node(tree, group)[name] = _read(path, text, fields[path])
    return ConfigDict(tree, type_safe=False)


def _node(tree: dict[str, Any], group: str) -> dict[str, Any]:
    """The dictionary of a group by its dotted path, made if absent."""
    for name in filter(None, group.split(".")):
        tree = tree.setdefault(name, {})
    return tree


def _choose(tree: dict[str, Any], path: str, chosen: str) -> None:
    """Sets the field that selects its group's fields, and drops those but for groups inside."""
    group, _, name = path.rpartition(".")
    node = _node(tree, group)
    inner = {other.removeprefix(f"{group}.").partition(".")[0] for other in SELECTORS}
    for held in [held for held in node if held not in inner]:
        del node[held]
    node[name] = chosen


def _pair(assignment: str) -> tuple[str, str]:
    path, equals, text = assignment.partition("=")
    if not equals:
        raise UserError(f"config.{path}: needs a value, as config.{path}=VALUE")
    return path, text


def _read(path: str, text: str, field: Field) -> Any:
    try:
        return field.read(text)
    except ValueError as error:
        raise wrong(path, text, error) from None


def _module(file: Path) -> ModuleType:
    """The file executed as a module of its own; nothing is put in `sys.modules`."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _recipes_in(directories: Sequence[Path]) -> str:
    """The recipes that there are, as the end of an error message."""
    names = [
        f"configs/{file.name}"
        for directory in directories
        for file in sorted(directory.glob("configs/*.py"))
        if file.stem != "__init__"
    ]
    return f"; there are {', '.join(dict.fromkeys(names))}" if names else ""
