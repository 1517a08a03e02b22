"""The report as one HTML file that needs nothing else: no script, no address, no other file."""

import base64
import html
import re
from collections.abc import Callable
from typing import Any

from condinit_jax.experiments.report._css import MAIN, style_sheet
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
from condinit_jax.experiments.report._figures import Picture
from condinit_jax.experiments.report._tables import Cell, Table
from condinit_jax.experiments.report._theme import LIGHT, dash

PARTS = re.compile(r"(?<=[/:,=+_.])(?=\w)")
"""Where long names may be broken."""

SHOWN = 16
"""Sentences of the verdict that stand open; of dozens nobody reads the first."""

MANY = 6
"""Sentences that stand in one column."""

PAGE = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<p class="kind">Comparison of initializations</p>
<h1>{heading}</h1>
<p class="extent">{extent}</p>
</header>
<main>
{sections}
</main>
</body>
</html>
"""


def page(document: Document) -> str:
    """The page of a report.

    Args:
        document: What it says.

    Returns:
        Content of the file.
    """
    parts = [_verdict(document), *(_section(section) for section in document.sections)]
    return PAGE.format(
        title=escape(document.title),
        heading=breakable(document.title),
        style=style_sheet(),
        extent=escape(document.extent),
        sections="\n".join(filter(None, parts)),
    )


def escape(text: str) -> str:
    """Text that no browser takes for markup.

    Args:
        text: It.

    Returns:
        The text for elements and quoted attributes, without control characters.

    Example:
        >>> escape('<script>alert("a")</script>')
        '&lt;script&gt;alert(&quot;a&quot;)&lt;/script&gt;'
    """
    shown = "".join(letter if letter >= " " or letter in "\n\t" else "�" for letter in text)
    return html.escape(shown)


def breakable(text: str) -> str:
    """The name of a method, file or field, which may be broken where its parts meet.

    Args:
        text: It.

    Returns:
        The escaped text; copied from the page, it is the same as ever.

    Example:
        >>> breakable("a/b<c")
        'a/<wbr>b&lt;c'
    """
    return "<wbr>".join(map(escape, PARTS.split(text)))


def _verdict(document: Document) -> str:
    if not document.headline:
        return ""
    first, rest = document.verdict[:SHOWN], document.verdict[SHOWN:]
    others = _list(first) if first else ""
    if rest:
        summary = f"<summary>{len(rest)} more findings</summary>\n"
        others += f"<details>\n{summary}{_list(rest)}</details>\n"
    return (
        '<section aria-labelledby="verdict">\n<h2 id="verdict">Verdict</h2>\n'
        f'<p class="headline">{escape(document.headline)}</p>\n{others}</section>'
    )


def _section(section: Section) -> str:
    blocks = "".join(_block(block) for block in section.blocks)
    name = section.anchor
    return (
        f'<section aria-labelledby="{name}">\n<h2 id="{name}">{escape(section.heading)}</h2>\n'
        f"{blocks}</section>"
    )


def _block(block: Block) -> str:
    written: dict[type, Callable[[Any], str]] = {
        Text: _text,
        Items: _items,
        Pictures: _pictures,
        Command: _command,
        Folded: _folded,
        Table: _table,
    }
    return written[type(block)](block)


def _text(block: Text) -> str:
    kind = ' class="small"' if block.small else ""
    return f"<p{kind}>{escape(block.text)}</p>\n"


def _items(block: Items) -> str:
    return _list(block.items)


def _list(items: tuple[str, ...]) -> str:
    kind = ' class="long"' if len(items) > MANY else ""
    return f"<ul{kind}>\n" + "".join(f"<li>{escape(item)}</li>\n" for item in items) + "</ul>\n"


def _command(block: Command) -> str:
    return f"<pre><code>{escape(block.text)}</code></pre>\n"


def _folded(block: Folded) -> str:
    summary = f"<summary>{escape(block.summary)}</summary>\n"
    return f"<details>\n{summary}{_table(block.table)}</details>\n"


def _pictures(block: Pictures) -> str:
    return '<div class="pictures">\n' + "".join(map(_picture, block.pictures)) + "</div>\n"


def _picture(picture: Picture) -> str:
    width, height = picture.size
    return (
        f"<figure>\n<h3>{escape(picture.title)}</h3>\n<picture>\n"
        f'<source media="{MAIN} and (prefers-color-scheme: dark)" srcset="{_uri(picture.dark)}">\n'
        f'<img src="{_uri(picture.light)}" alt="{escape(picture.alt)}" '
        f'width="{width}" height="{height}">\n</picture>\n'
        # Browsers do not choose again when they print, and paper is white.
        f'<img class="paper" src="{_uri(picture.light)}" alt="">\n'
        f"<figcaption>{escape(picture.caption)}</figcaption>\n</figure>\n"
    )


def _uri(svg: str) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


def _table(table: Table) -> str:
    """A table in a box of its own that scrolls, by keyboard too, where the screen is narrow."""
    caption = escape(table.caption)
    kinds = ["words" if place in table.words else "figures" for place in range(len(table.head))]
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>'
        for name, kind in zip(table.head, kinds, strict=True)
    )
    rows = []
    for first, *others in table.rows:
        named = " named" if first.method is not None else ""
        cells = [f'<th scope="row" class="{kinds[0]}{named}">{_cell(first, 0 in table.words)}</th>']
        cells += [
            f'<td class="{kind}">{_cell(cell, kind == "words")}</td>'
            for cell, kind in zip(others, kinds[1:], strict=True)
        ]
        rows.append(f"<tr>{''.join(cells)}</tr>\n")
    return (
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0">\n<table>\n'
        f"<caption>{caption}</caption>\n<thead>\n<tr>{head}</tr>\n</thead>\n"
        f"<tbody>\n{''.join(rows)}</tbody>\n</table>\n</div>\n"
    )


def _cell(cell: Cell, words: bool) -> str:
    text = breakable(cell.text) if words else escape(cell.text)
    if cell.strong:
        text = f"<strong>{text}</strong>"
    if cell.method is not None:
        color = f"var(--method-{cell.method % len(LIGHT.methods)})"
        text = (
            f'<span class="key" style="border-top: 3px {dash(cell.method)} {color}"></span>{text}'
        )
    return text + (f' <span class="note">{escape(cell.note)}</span>' if cell.note else "")
