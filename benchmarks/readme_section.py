"""Where benchmarks put their tables: between markers of a page; none is typed by hand."""

import pathlib

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def replace_section(name: str, text: str, page: pathlib.Path = README) -> None:
    """Puts text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` of a page.

    Args:
        name: The section's name in its markers.
        text: Markdown to put there.
        page: The file.
    """
    start, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found_start, rest = page.read_text().partition(start)
    _, found_end, after = rest.partition(end)
    if not (found_start and found_end):
        raise SystemExit(f"{page.name} has no section between {start} and {end}")
    page.write_text(f"{before}{start}\n{text}\n{end}{after}")
