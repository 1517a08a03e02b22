"""Where benchmarks put their tables: between markers in README.md; none is typed by hand."""

import pathlib

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"


def replace_section(name: str, text: str) -> None:
    """Puts text between `<!-- NAME: begin -->` and `<!-- NAME: end -->` in README.md.

    Args:
        name: The section's name in its markers.
        text: Markdown to put there.
    """
    start, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, found_start, rest = README.read_text().partition(start)
    _, found_end, after = rest.partition(end)
    if not (found_start and found_end):
        raise SystemExit(f"README.md has no section between {start} and {end}")
    README.write_text(f"{before}{start}\n{text}\n{end}{after}")
