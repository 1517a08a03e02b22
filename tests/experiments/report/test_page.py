"""The HTML page: one file that is complete, well-formed and safe, whatever the runs were."""

import dataclasses
import functools
import re
import xml.etree.ElementTree as ElementTree

import pytest

from condinit_jax.experiments.report._document import make_document
from condinit_jax.experiments.report._html import page
from tests.experiments.report.comparisons import make_comparison
from tests.experiments.report.reading import decoded, read_page

SIX = ("default", "xavier", "mimetic", "conditioned", "conditioned:value=joint", "tied")

VERDICT = ("conditioned is sooner.", "xavier ties.", "tied loses.")

CASES = {
    "six methods, two failed runs": lambda: make_comparison(
        SIX, failed={("mimetic", 3), ("tied", 0)}
    ),
    "two references, three rates": lambda: make_comparison(
        SIX[:3], seeds=2, references=2, rates=(3e-4, 1e-3, 3e-3)
    ),
    "one method, one seed": lambda: make_comparison(SIX[:1], seeds=1),
    "no finished run": lambda: make_comparison(
        SIX[:2], seeds=1, failed={("default", 0), ("xavier", 0)}, probes=False
    ),
    "a target never reached": lambda: make_comparison(SIX[:4], references=4, probes=False),
    "twelve methods": lambda: make_comparison(
        [f"method:number={n}" for n in range(12)], seeds=2, probes=False
    ),
}


def html_of(comparison, verdict=VERDICT):
    return page(make_document(comparison, verdict))


@functools.cache
def html_of_case(name):
    return html_of(CASES[name]())


@pytest.fixture(params=CASES)
def text(request):
    return html_of_case(request.param)


@pytest.fixture
def six():
    return html_of_case("six methods, two failed runs")


def test_every_page_is_well_formed_and_accessible(text):
    read = read_page(text)
    tags = [tag for tag, _ in read.tags]
    assert text.startswith("<!DOCTYPE html>")
    assert ("html", {"lang": "en"}) in read.tags
    assert tags.count("h1") == tags.count("main") == tags.count("header") == 1
    assert tags.count("table") == tags.count("caption") == len(read.tables)
    assert all("scope" in attributes for tag, attributes in read.tags if tag == "th")
    names = [attributes["id"] for _, attributes in read.tags if "id" in attributes]
    assert len(set(names)) == len(names)
    used = [attributes.get("aria-labelledby") for tag, attributes in read.tags if tag == "section"]
    assert set(used) <= set(names)


def test_no_page_needs_anything_from_outside(text):
    read = read_page(text)
    assert not {"script", "link", "iframe", "object", "a"} & {tag for tag, _ in read.tags}
    bare = re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "data:", text)
    assert "http" not in bare
    pictures = [image["src"] for image in read.images] + [s["srcset"] for s in read.sources]
    for document in (bare, *map(decoded, pictures)):
        # The names of XML's own vocabularies are the only addresses, and nobody opens those.
        document = re.sub(r'xmlns(:\w+)?="[^"]*"', "", document)
        assert not re.search(r"(?i)://|@import|url\((?!#)|\bsrc=(?!\"data:)|\"//", document)


def test_no_page_shows_a_figure_that_is_none(text):
    read = read_page(text)
    shown = [read.text, *(image["alt"] for image in read.images)]
    for image in read.images:
        shown += ElementTree.fromstring(decoded(image["src"])).itertext()
    for words in shown:
        words = words.replace("loss is NaN at step", "")
        assert not re.search(r"(?i:\b(nan|inf|infinity)\b)|\bNone\b", words)


def test_every_picture_has_two_themes_and_says_what_is_seen(text):
    read = read_page(text)
    pictures = [image for image in read.images if image.get("class") != "paper"]
    papers = [image for image in read.images if image.get("class") == "paper"]
    assert len(pictures) == len(papers) == len(read.sources)
    for image, source in zip(pictures, read.sources, strict=True):
        light, dark = decoded(image["src"]), decoded(source["srcset"])
        ElementTree.fromstring(light)
        ElementTree.fromstring(dark)
        assert light != dark
        assert "prefers-color-scheme: dark" in source["media"]
        assert len(image["alt"]) > 40
        assert int(image["width"]) > 0 < int(image["height"])


def test_a_page_suits_a_phone_and_both_themes(six):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in six
    assert "prefers-color-scheme: dark" in six
    assert "@media print" in six
    # Each table lies in a box of its own that scrolls.
    assert six.count('<div class="scroll"') == six.count("<table>")
    assert ".scroll { overflow-x: auto" in six


def test_the_verdict_comes_first_and_the_rest_in_order(six):
    headings = read_page(six).headings
    assert headings == [
        "configs/vit.py:micro,bundled",
        "Verdict",
        "Training",
        "Methods",
        "Against the reference",
        "Does κ(J) predict anything?",
        "Before you believe this",
        "Runs that did not finish",
        "What the methods change",
        "Versions and hardware",
        "How to run it again",
        "Everything else",
    ]
    text = read_page(six).text
    assert [text.index(sentence) for sentence in VERDICT] == sorted(map(text.index, VERDICT))
    assert '<p class="headline">conditioned is sooner.</p>' in six


def test_learning_rates_have_a_section_where_there_are_several():
    several = read_page(html_of_case("two references, three rates"))
    assert "Learning rates" in several.headings
    alts = [image["alt"] for image in several.images]
    assert any("default best at 0.001 with 55.0" in alt for alt in alts)


def test_a_page_without_a_finished_run_lists_what_failed():
    read = read_page(html_of_case("no finished run"))
    assert not read.images
    assert "loss is NaN at step 100" in read.text
    assert "2 runs, of which 2 did not finish" in read.text


def test_an_empty_comparison_and_no_verdict_give_a_page():
    empty = dataclasses.replace(
        make_comparison([]), command="", notes=(), config={}, differences={}
    )
    assert read_page(html_of(empty, ())).headings == ["configs/vit.py:micro,bundled", "Methods"]


def test_nothing_that_comes_from_runs_is_markup():
    evil = '<script>alert("x")</script>'
    labels = ("default", evil, "a'b&amp;c")
    made = make_comparison(labels, seeds=2, failed={(evil, 0)}, probes=False)
    runs = tuple(dataclasses.replace(run, reason=evil) for run in made.runs)
    broken = dataclasses.replace(
        made,
        title=f'"{evil}',
        command=evil,
        metric=f"{evil}accuracy",
        notes=(evil,),
        runs=runs,
        config={evil: evil},
        differences={evil: (f"{evil}: {evil} -> {evil}",)},
    )
    text = html_of(broken, (evil, evil))
    read = read_page(text)
    assert "<script" not in text
    assert text.count("&lt;script&gt;alert(&quot;") > 15
    assert labels[1] in read.tables["Methods, with means over seeds"][2][0]
    assert labels[2] in read.tables["Methods, with means over seeds"][3][0]
    assert read.headings[0] == f'"{evil}'
    for image in read.images:
        # The picture is XML, where the label is text too.
        assert "<script" not in decoded(image["src"])


def test_control_characters_are_replaced():
    text = html_of(make_comparison(["a\x00b\x1b[0m"], seeds=1, probes=False))
    assert "\x00" not in text
    assert "\x1b" not in text
    for image in read_page(text).images:
        ElementTree.fromstring(decoded(image["src"]))


def test_the_command_is_there_to_copy(six):
    command = CASES["six methods, two failed runs"]().command
    assert f"<pre><code>{command}</code></pre>" in six


def test_of_dozens_of_findings_the_first_stand_open_and_all_are_there(six):
    sentences = [f"finding number {n} of many." for n in range(40)]
    text = html_of(make_comparison(SIX), sentences)
    open_part, _, folded = text.partition("<details>\n<summary>")
    assert "23 more findings" in folded
    assert "finding number 16 of many." in open_part
    assert "finding number 17 of many." not in open_part
    assert all(sentence in text for sentence in sentences)
    assert "more findings" not in six
