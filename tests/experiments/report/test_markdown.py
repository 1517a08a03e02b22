"""The Markdown report: the page's content, in a form that GitHub shows as meant."""

import dataclasses
import re

from condinit_jax.experiments.report._document import make_document
from condinit_jax.experiments.report._html import page
from condinit_jax.experiments.report._markdown import escape, markdown
from tests.experiments.report.comparisons import make_comparison
from tests.experiments.report.reading import read_markdown, read_page


def test_it_has_the_headings_and_tables_of_the_page():
    document = make_document(
        make_comparison(("a", "b", "c", "d"), failed={("b", 1)}, rates=(1e-3, 2e-3)),
        ("so.", "and so."),
    )
    text, read = markdown(document), read_page(page(document))
    assert re.findall("^#+ (.*)$", text, re.MULTILINE) == read.headings
    assert list(read_markdown(text)) == list(read.tables)
    assert "**so.**" in text
    assert "- and so.\n" in text


def test_no_sign_of_a_run_is_read_as_markdown_or_html():
    evil = "a|b`*_<i>_[x](y)"
    made = make_comparison(("default", evil), seeds=2, failed={(evil, 0)}, probes=False)
    made = dataclasses.replace(made, notes=(evil,), title=f"{evil}\n# more")
    text = markdown(make_document(made, (evil,)))
    # Every row has as many cells as its head.
    assert read_markdown(text)["Methods, with means over seeds"][2][0].startswith("a\\|b")
    prose = text.replace(made.command, "")
    assert "<i>" not in prose
    assert not re.search(r"(?<!\\)[`*]_", prose)
    assert "](" not in prose.replace("\\](", "")
    assert "\n# more" not in text


def test_ordinary_names_and_intervals_stay_readable():
    plain = "truncated_normal:std=0.02 reaches 57 % [50, 80] of its steps."
    assert escape(plain) == plain


def test_a_command_with_fences_stays_in_its_fence():
    made = dataclasses.replace(make_comparison(("a",), seeds=1), command="echo '```'\n# hi")
    assert "````sh\necho '```'\n# hi\n````\n" in markdown(make_document(made, ()))


def test_there_are_no_pictures_and_no_undefined_figures():
    made = make_comparison(("a", "b"), seeds=1)
    text = markdown(make_document(made, ()))
    assert "<img" not in text
    assert "data:" not in text
    assert not re.search(r"(?i:\b(nan|inf)\b)|\bNone\b", text)
