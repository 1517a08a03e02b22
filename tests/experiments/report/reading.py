"""A report read back: its tables, pictures and text, by the parsers of the standard library."""

import base64
import dataclasses
import html
import html.parser

VOID = {"meta", "img", "source", "wbr", "br", "hr", "link", "input"}


@dataclasses.dataclass
class Page:
    tables: dict = dataclasses.field(default_factory=dict)  # caption -> rows of cells
    images: list = dataclasses.field(default_factory=list)  # attributes
    sources: list = dataclasses.field(default_factory=list)
    tags: list = dataclasses.field(default_factory=list)  # (tag, attributes)
    headings: list = dataclasses.field(default_factory=list)
    text: str = ""


class _Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.page, self.open, self.words, self.rows = Page(), [], [], []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.page.tags.append((tag, attributes))
        if tag == "img":
            self.page.images.append(attributes)
        if tag == "source":
            self.page.sources.append(attributes)
        if tag in VOID:
            return
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("th", "td", "caption", "h1", "h2"):
            self.words = []

    def handle_startendtag(self, tag, attributes):
        raise AssertionError(f"<{tag}/> is no HTML")

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"
        text = " ".join("".join(self.words).split())
        if tag in ("th", "td"):
            self.rows[-1].append(text)
        if tag == "caption":
            self.caption = text
        if tag in ("h1", "h2"):
            self.page.headings.append(text)
        if tag == "table":
            self.page.tables[self.caption], self.rows = self.rows, []

    def handle_data(self, data):
        self.words.append(data)
        if self.open and self.open[-1] != "style":
            self.page.text += data


def read_page(text):
    """The page, checked for elements that are not closed in turn."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    return reader.page


def decoded(uri):
    """The document in a data URI."""
    head, _, body = uri.partition(",")
    assert head == "data:image/svg+xml;base64"
    return base64.b64decode(body).decode()


def read_markdown(text):
    """Tables by caption, their cells as GitHub shows them but for escaped signs."""
    tables, caption, rows = {}, "", []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            cells = [cell.strip().replace("**", "") for cell in line.strip("|").split(" | ")]
            rows.append([html.unescape(cell) for cell in cells])
        elif rows:
            assert len({len(row) for row in rows}) == 1, f"ragged: {caption}"
            assert {cell.strip("-") for cell in rows.pop(1)} <= {":"}
            tables[caption], rows = rows, []
        elif line.endswith(":"):
            caption = line[:-1]
    return tables
