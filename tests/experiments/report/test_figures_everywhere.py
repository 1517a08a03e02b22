"""Every figure of a comparison stands in HTML, in Markdown and in CSV, in the row it belongs to."""

import csv
import io
import math

import pytest

from condinit_jax.experiments.report._csv import METHOD_FIELDS, RUN_FIELDS, methods_csv, runs_csv
from condinit_jax.experiments.report._document import make_document
from condinit_jax.experiments.report._html import page
from condinit_jax.experiments.report._markdown import markdown
from tests.experiments.report.comparisons import make_comparison
from tests.experiments.report.reading import read_markdown, read_page

METHODS = "Methods, with means over seeds"
DASH, MINUS = "\N{EN DASH}", "\N{MINUS SIGN}"
PAIRS = "All figures of the paired comparisons"


@pytest.fixture(scope="module")
def made():
    labels = ("default", "xavier", "mimetic", "conditioned")
    failed = {("mimetic", 3), ("xavier", 0)}
    return make_comparison(labels, references=4, failed=failed, rates=(1e-3, 3e-3))


@pytest.fixture(scope="module", params=["html", "markdown"])
def tables(request, made):
    document = make_document(made, ("so",))
    if request.param == "html":
        return read_page(page(document)).tables
    return read_markdown(markdown(document))


def percent(value, places=1):
    return f"{100 * value:.{places}f}".replace("-", MINUS)


def bracket(estimate, places=1):
    high = "∞)" if math.isinf(estimate.high) else percent(estimate.high, places) + "]"
    return f"[{percent(estimate.low, places)}, {high}"


def test_methods(made, tables):
    rows = {row[0]: row for row in tables[METHODS]}
    for method in made.methods:
        seeds, failed, rate, final, *_, area, loss, kappa = rows[method.label][1:]
        assert (seeds, failed) == (str(len(method.seeds)), str(len(method.failed)))
        assert rate == "by seed"
        level, spread = percent(method.final.value), percent(method.spread)
        assert final == f"{level} ± {spread} {bracket(method.final)}"
        assert area == f"{percent(method.area.value)} {bracket(method.area)}"
        assert loss == f"{method.loss:.3f}"
        assert float(kappa) == pytest.approx(method.kappa, rel=5e-3)


def test_pairs_beside_their_methods(made, tables):
    head, *rows = tables[METHODS]
    rows = {row[0]: dict(zip(head, row, strict=False)) for row in rows}
    for pair in made.pairs:
        row = rows[pair.label]
        cell = row[f"difference to {pair.reference}, points"]
        sign = "+" if pair.difference.value > 0 else ""
        assert cell == f"{sign}{percent(pair.difference.value)} {bracket(pair.difference)}"
        ratio = pair.speed.ratio
        share = "not reached" if math.isinf(ratio.value) else f"{percent(ratio.value, 0)} %"
        reached = f"{pair.speed.reached} of {pair.speed.count}"
        cell = row[f"share of {pair.reference}'s steps"]
        assert cell == f"{share} {bracket(ratio, 0)}, {reached}"
    assert any(math.isinf(pair.speed.ratio.value) for pair in made.pairs)


def test_pairs_in_full(made, tables):
    rows = {(row[0], row[1]): row for row in tables[PAIRS][1:]}
    for pair in made.pairs:
        row = rows[pair.label, pair.reference]
        assert row[2] == ", ".join(map(str, pair.seeds))
        shown = dict(
            zip((4, 5, 6, 8), (pair.p, pair.p_adjusted, pair.p_sign, pair.p_area), strict=True)
        )
        for place, p in shown.items():
            text = row[place]
            assert text == "< 0.001" if p < 0.001 else float(text) == pytest.approx(p, abs=5e-3)
        assert f"{percent(pair.area.value)} {bracket(pair.area)}" in row[7]
        assert row[10] == f"{pair.speed.reached} of {pair.speed.count}"
        for seed, ratio, bound in pair.speed.ratios:
            more = "> " if bound else ""
            assert f"{seed}: {more}{percent(ratio, 0)} %" in row[11]


def test_curves_rates_and_correlations(made, tables):
    captions = {caption.partition(",")[0].partition(":")[0]: caption for caption in tables}
    head, *rows = tables[captions["Mean accuracy"]]
    for method in made.methods:
        place, curve = head.index(method.label), method.curve
        for row, step, mean in zip(rows, curve.steps, curve.mean, strict=True):
            assert row[0] == str(step)
            assert row[place].startswith(f"{percent(mean)} [")
    head, *rows = tables[captions["κ(J) by step"]]
    for method in made.methods:
        column = [float(row[head.index(method.label)]) for row in rows]
        assert column == pytest.approx(list(method.kappas.values()), rel=6e-3)
    rates = next(table for caption, table in tables.items() if "by learning rate" in caption)
    for row, method in zip(rates[1:], made.methods, strict=True):
        assert row[1:] == [percent(value) for value in method.rates.values()]
    rows = tables["Rank correlation of κ(J) before the first step"][1:]
    for row, found in zip(rows, made.correlations, strict=True):
        assert row[0] == found.outcome
        assert row[2] == f"{found.rho:.2g}".replace("-", MINUS)
        assert row[4] == str(found.count)


def test_runs_config_and_versions(made, tables):
    assert len(tables["All runs"]) == 1 + len(made.runs)
    for row, run in zip(tables["All runs"][1:], made.runs, strict=True):
        final = percent(run.curve[-1][1]) if run.state == "finished" else DASH
        assert row[:2] + row[3:6] == [run.label, str(run.seed), run.state, str(run.steps), final]
        assert row[9] == str(run.workdir)
    broken = next(table for caption, table in tables.items() if "did not finish" in caption)
    lost = [run for run in made.runs if run.state != "finished"]
    assert [row[4] for row in broken[1:]] == [run.reason for run in lost]
    fields = dict(tables["Fields that are the same in all runs"][1:])
    assert fields == {name: str(value) for name, value in made.config.items()}
    versions = dict(tables["Versions and devices of 40 of 40 runs"][1:])
    assert versions["jax"] == "0.10.2"
    changes = tables["Fields of the config that differ from those of default"]
    assert [row[0] for row in changes[1:]] == list(made.labels[1:])


def read_csv(text):
    return list(csv.DictReader(io.StringIO(text)))


def number(text):
    return float(text) if text else math.nan


def same(text, value):
    value = value if math.isfinite(value) else math.nan
    return number(text) == pytest.approx(value, rel=1e-12, nan_ok=True)


def test_methods_csv_has_the_figures_unrounded(made):
    rows = {(row["label"], row["reference"]): row for row in read_csv(methods_csv(made))}
    assert len(rows) == len(made.pairs)
    methods = {method.label: method for method in made.methods}
    for pair in made.pairs:
        row, method = rows[pair.label, pair.reference], methods[pair.label]
        assert (row["seeds"], row["failed"]) == (str(len(method.seeds)), str(len(method.failed)))
        singles = {
            "rate": method.rate, "final_sd": method.spread, "loss": method.loss,
            "kappa_start": method.kappa, "p": pair.p, "p_holm": pair.p_adjusted,
            "p_sign": pair.p_sign, "area_p_holm": pair.p_area, "pairs": float(len(pair.seeds)),
            "reached": pair.speed.reached, "reached_of": pair.speed.count,
        }  # fmt: skip
        estimates = {
            "final": method.final, "area": method.area, "difference": pair.difference,
            "area_difference": pair.area, "steps_share": pair.speed.ratio,
        }  # fmt: skip
        for name, estimate in estimates.items():
            singles |= {
                name: estimate.value,
                f"{name}_low": estimate.low,
                f"{name}_high": estimate.high,
            }
        assert {name for name, value in singles.items() if not same(row[name], value)} == set()
        infinite = math.isinf(pair.speed.ratio.value)
        assert row["median_reached"] == ("no" if infinite else "yes")


def test_runs_csv_has_every_run(made):
    rows = read_csv(runs_csv(made))
    for row, run in zip(rows, made.runs, strict=True):
        assert (row["label"], row["seed"]) == (run.label, str(run.seed))
        assert (row["state"], row["reason"]) == (run.state, run.reason)
        assert row["workdir"] == str(run.workdir)
        ended = run.state == "finished"
        assert same(row["final"], run.curve[-1][1] if ended else math.nan)
        assert same(row["best"], max(value for _, value in run.curve))
        assert same(row["seconds"], run.seconds if ended else math.nan)
        assert same(row["rate"], run.rate)
        assert same(row["kappa_start"], run.kappas[0][0])


def test_csv_fields_are_all_there_even_without_runs():
    nothing = make_comparison([])
    assert runs_csv(nothing) == ",".join(RUN_FIELDS) + "\n"
    assert methods_csv(nothing) == ",".join(METHOD_FIELDS) + "\n"


def test_a_single_seed_has_dashes_and_empty_fields_for_its_intervals():
    made = make_comparison(("default", "tied"), seeds=1)
    table = read_page(page(make_document(made, ()))).tables[METHODS]
    assert table[2][3].endswith(f"± {DASH} [{DASH}]")
    row = read_csv(methods_csv(made))[1]
    assert row["final"]
    assert row["difference"]
    for name in ("final_low", "final_high", "final_sd", "difference_low", "p", "p_holm"):
        assert row[name] == ""
    assert "nan" not in methods_csv(made)
