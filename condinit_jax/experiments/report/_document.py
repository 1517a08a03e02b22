"""What a report says and in which order; HTML and Markdown only set it."""

import dataclasses
from collections.abc import Sequence

from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments._intervals import FEWEST
from condinit_jax.experiments._run import FINISHED
from condinit_jax.experiments.report._figures import (
    Picture,
    curves_picture,
    differences_picture,
    kappas_picture,
    rates_picture,
    shares_picture,
)
from condinit_jax.experiments.report._run_tables import (
    broken_table,
    changes_table,
    config_table,
    runs_table,
    versions_table,
)
from condinit_jax.experiments.report._series_tables import curves_table, kappas_table, rates_table
from condinit_jax.experiments.report._tables import (
    Table,
    correlations_table,
    methods_table,
    pairs_table,
)
from condinit_jax.training.progress import clock_text

READING = (
    "After ± stands the standard deviation over seeds. Brackets hold 95 % intervals, with a round "
    f"bracket at an open end: those of means are Student's t below {FEWEST} seeds and of the "
    "bootstrap from there on. Differences are paired by seed: runs of one seed see "
    "the same batches in the same order. p is of the paired t test after Holm's correction over "
    "all pairs; differences with p < 0.05 are in bold. The share of the reference's steps is the "
    "median over seeds of the steps until a method first reaches the reference's final value, "
    "over the steps until the reference itself first does; runs that never get there are kept, "
    "as censored (Kaplan and Meier). The mean over the steps is the area under the curve over its "
    "length. κ(J) is the condition number of the Jacobian of one "
    "attention head in its query, key and value kernels."
)


@dataclasses.dataclass(frozen=True)
class Text:
    """A paragraph; a small one is read by few."""

    text: str
    small: bool = False


@dataclasses.dataclass(frozen=True)
class Items:
    """A list of sentences."""

    items: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Pictures:
    """Pictures side by side where there is room."""

    pictures: tuple[Picture, ...]


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line to copy."""

    text: str


@dataclasses.dataclass(frozen=True)
class Folded:
    """A table that is shown on request."""

    summary: str
    table: Table


Block = Text | Items | Pictures | Command | Folded | Table


@dataclasses.dataclass(frozen=True)
class Section:
    """A heading, and what stands under it.

    Attributes:
        anchor: Name for links to it.
        heading: Its heading.
        blocks: What follows.
    """

    anchor: str
    heading: str
    blocks: tuple[Block, ...]


@dataclasses.dataclass(frozen=True)
class Document:
    """A report.

    Attributes:
        title: What was compared.
        extent: How many methods, seeds and runs, in a line.
        headline: The verdict's first sentence.
        verdict: Its other sentences.
        sections: The rest, in order, without empty ones.
    """

    title: str
    extent: str
    headline: str
    verdict: tuple[str, ...]
    sections: tuple[Section, ...]


def make_document(comparison: Comparison, verdict: Sequence[str]) -> Document:
    """The report of a comparison.

    Args:
        comparison: Its figures.
        verdict: Its words, the most important sentence first.

    Returns:
        The document.
    """
    several_references = len({pair.reference for pair in comparison.pairs}) > 1
    made = (
        _section(
            "curves",
            "Training",
            _pictures(curves_picture(comparison), kappas_picture(comparison)),
            _folded("The curves as figures", curves_table(comparison)),
            _folded("κ(J) as figures", kappas_table(comparison)),
        ),
        _section("methods", "Methods", methods_table(comparison), Text(READING, small=True)),
        _section(
            "pairs",
            "Against the reference" + ("s" if several_references else ""),
            _pictures(differences_picture(comparison), shares_picture(comparison)),
            _folded("All figures of the paired comparisons", pairs_table(comparison)),
        ),
        _section(
            "rates",
            "Learning rates",
            _pictures(rates_picture(comparison)),
            rates_table(comparison),
        ),
        _section("correlations", "Does κ(J) predict anything?", correlations_table(comparison)),
        _section("notes", "Before you believe this", _items(comparison.notes)),
        _section("unfinished", "Runs that did not finish", broken_table(comparison)),
        _section("differences", "What the methods change", changes_table(comparison)),
        _section("versions", "Versions and hardware", versions_table(comparison)),
        _section("again", "How to run it again", _command(comparison.command)),
        _section(
            "all",
            "Everything else",
            _folded(f"All runs ({len(comparison.runs)})", runs_table(comparison)),
            _folded("The config that all runs share", config_table(comparison)),
        ),
    )
    return Document(
        title=comparison.title,
        extent=_extent(comparison),
        headline=verdict[0] if verdict else "",
        verdict=tuple(verdict[1:]),
        sections=tuple(section for section in made if section),
    )


def _section(anchor: str, heading: str, *blocks: Block | None) -> Section | None:
    filled = tuple(block for block in blocks if block is not None)
    return Section(anchor, heading, filled) if filled else None


def _pictures(*pictures: Picture | None) -> Pictures | None:
    drawn = tuple(picture for picture in pictures if picture)
    return Pictures(drawn) if drawn else None


def _folded(summary: str, table: Table | None) -> Folded | None:
    return Folded(summary, table) if table else None


def _items(sentences: Sequence[str]) -> Items | None:
    return Items(tuple(sentences)) if sentences else None


def _command(command: str) -> Command | None:
    return Command(command) if command else None


def _extent(comparison: Comparison) -> str:
    runs = comparison.runs
    done = [run for run in runs if run.state == FINISHED]
    seeds = {run.seed for run in runs}
    parts = [_count(len(comparison.labels), "method"), _count(len(seeds), "seed")]
    parts.append(_count(len(runs), "run"))
    if len(done) < len(runs):
        parts[-1] += f", of which {len(runs) - len(done)} did not finish"
    seconds = sum(run.seconds for run in done)
    if seconds:
        parts.append(f"{clock_text(seconds)} of computing")
    return "; ".join(parts)


def _count(count: int, name: str) -> str:
    return f"{count} {name}" + ("" if count == 1 else "s")
