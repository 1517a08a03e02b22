"""A command's arguments: its own flags, and `--config.FIELD=VALUE` for fields of the config."""

import argparse
import difflib
from collections.abc import Sequence

from condinit_jax.config._schema import find_field
from condinit_jax.errors import UserError


def read_arguments(
    parser: argparse.ArgumentParser, argv: Sequence[str]
) -> tuple[argparse.Namespace, list[str]]:
    """The flags that a parser knows, and the assignments to fields of the config.

    Args:
        parser: of the command; made with `exit_on_error=False` and `allow_abbrev=False`. A flag
            that it has as ``--config.FIELD`` stands there for its help only.
        argv: the command line without the program's name.

    Returns:
        The flags, and assignments that `override` takes, such as ``optimizer.lr=1e-3``.

    Raises:
        UserError: a flag is unknown or lacks its value.

    Example:
        >>> parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
        >>> _ = parser.add_argument("--out")
        >>> read_arguments(parser, ["--config.optimizer.lr", "1e-3", "--out", "x"])
        (Namespace(out='x'), ['optimizer.lr=1e-3'])
    """
    assignments, plain, words = [], [], list(argv)
    while words:
        word = words.pop(0)
        if not word.startswith("--config."):
            plain.append(word)
            continue
        if "=" not in word and words and not words[0].startswith("--"):
            word += f"={words.pop(0)}"
        assignments.append(word.removeprefix("--config."))
    try:
        flags, left = parser.parse_known_args(plain)
    except argparse.ArgumentError as error:
        raise UserError(f"{error}; see --help") from None
    if left:
        near = _nearest(left[0].partition("=")[0], parser)
        guess = f"; did you mean {near[0]}?" if near else ""
        raise UserError(f"{left[0]}: unknown argument{guess}; see --help")
    return flags, assignments


def _nearest(flag: str, parser: argparse.ArgumentParser) -> list[str]:
    """The flag of the config's field that an unknown flag names, or a flag spelt like it."""
    path = find_field(flag.lstrip("-").replace("-", "_"))
    if path:
        return [f"--config.{path}"]
    known = [name for action in parser._actions for name in action.option_strings]
    known = [name for name in known if name.startswith("--") and not name.startswith("--config.")]
    return difflib.get_close_matches(flag.partition(".")[0], known, 1)
