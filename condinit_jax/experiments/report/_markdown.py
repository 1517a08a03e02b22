"""The report as Markdown, with all that the page has but its pictures."""

import re
from collections.abc import Callable
from typing import Any

from condinit_jax.experiments.report._document import (
    Block,
    Command,
    Document,
    Folded,
    Items,
    Pictures,
    Section,
    Text,
)
from condinit_jax.experiments.report._tables import Cell, Table

SPECIAL = re.compile(r"[\\`*|~#$]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|!(?=\[)")
"""Signs that Markdown would read; underscores within words and lone brackets are none."""


def markdown(document: Document) -> str:
    """The text of a report.

    Args:
        document: What it says.

    Returns:
        Content of the file.
    """
    parts = [f"# {escape(document.title)}\n", f"{escape(document.extent)}.\n"]
    if document.headline:
        parts += ["## Verdict\n", f"**{escape(document.headline)}**\n"]
    if document.verdict:
        parts.append(_list(document.verdict))
    parts += [text for section in document.sections if (text := _section(section))]
    return "\n".join(parts)


def escape(text: str) -> str:
    r"""Text that Markdown, and HTML within it, shows as it is.

    Args:
        text: It; line breaks become spaces.

    Returns:
        The text, also for cells of tables.

    Example:
        >>> escape("a|b <b> truncated_normal [1, 2]")
        'a\\|b &lt;b&gt; truncated_normal [1, 2]'
    """
    text = " ".join(text.split())
    text = SPECIAL.sub(lambda found: "\\" + found.group(), text)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _section(section: Section) -> str:
    blocks = "\n".join(filter(None, map(_block, section.blocks)))
    return f"## {escape(section.heading)}\n\n{blocks}" if blocks else ""


def _block(block: Block) -> str:
    written: dict[type, Callable[[Any], str]] = {
        Text: lambda block: escape(block.text) + "\n",
        Items: _items,
        Pictures: lambda block: "",
        Command: _command,
        Folded: _folded,
        Table: _table,
    }
    return written[type(block)](block)


def _items(block: Items) -> str:
    return _list(block.items)


def _list(items: tuple[str, ...]) -> str:
    return "".join(f"- {escape(item)}\n" for item in items)


def _command(block: Command) -> str:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", block.text)), default=0))
    return f"{fence}sh\n{block.text}\n{fence}\n"


def _folded(block: Folded) -> str:
    """Folded on GitHub; the blank lines make it read the table as Markdown."""
    summary = f"<summary>{escape(block.summary)}</summary>"
    return f"<details>\n{summary}\n\n{_table(block.table)}\n</details>\n"


def _table(table: Table) -> str:
    rules = [":--" if place in table.words else "--:" for place in range(len(table.head))]
    lines = [list(map(escape, table.head)), rules, *(map(_cell, row) for row in table.rows)]
    return f"{escape(table.caption)}:\n\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    if cell.strong:
        text = f"**{text}**"
    return text + (f" {escape(cell.note)}" if cell.note else "")
