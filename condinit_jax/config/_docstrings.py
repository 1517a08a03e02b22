"""The meaning of a model's or method's fields, read from where it is documented: its docstring."""

import inspect
import re

_SECTION = re.compile(r"^(Args|Attributes):\n((?:    .*\n|\n)+)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+)(?: \([^)]*\))?: ((?:.+\n?)(?:     +.+\n?)*)", re.MULTILINE)


def documented(documented_object: object) -> dict[str, str]:
    """The entries of the sections ``Args`` and ``Attributes`` of a Google-style docstring.

    Args:
        documented_object: a class or function.

    Returns:
        Meaning by name, each on one line without the full stop; empty without a docstring.

    Example:
        >>> documented(documented)
        {'documented_object': 'a class or function'}
    """
    text = (inspect.getdoc(documented_object) or "") + "\n"
    return {
        name: " ".join(meaning.split()).removesuffix(".")
        for _, section in _SECTION.findall(text)
        for name, meaning in _ENTRY.findall(section)
    }
