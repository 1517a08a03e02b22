"""Rows survive files and sums, and the table for terminals says what they say."""

import csv
import io
import math

import numpy as np
import pytest
from rich.console import Console

from condinit_jax.errors import UserError
from condinit_jax.spectra._probe_table import COLUMNS, Place, Probe

ROW = {
    "run": "a, \"b\"", "step": 3, "layer": 1, "path": "blocks/attention", "head": 2, "example": 0,
    "tokens": 17, "kappa": 1 / 3 * 1e17, "sigma_max": math.pi, "sigma_min": 5e-324, "rank": 270,
    "size": 272, "dropped": 2, "rtol": 3.4e-13, "method": "qr", "dtype": "float64", "error": 1e-9,
    "converged": False, "warning": "near the limit, see \"error\"", "kappa_query": 1.0,
    "kappa_key": math.inf, "kappa_value": 2.5, "bound": 1e300, "bound_note": "",
}  # fmt: skip
UNKNOWN = dict.fromkeys(COLUMNS) | {
    "run": "", "step": 0, "layer": 0, "path": "", "head": 0, "example": 0, "tokens": 5,
    "warning": "", "bound_note": "",
}  # fmt: skip


def shown(probe, width=100):
    console = Console(file=io.StringIO(), width=width)
    console.print(probe.table())
    return console.file.getvalue()


def test_rows_are_read_back_bit_for_bit(tmp_path):
    assert set(ROW) == set(COLUMNS)
    probe = Probe([ROW, UNKNOWN])
    probe.to_csv(tmp_path / "probe.csv")
    assert Probe.from_csv(tmp_path / "probe.csv").rows == probe.rows
    assert [path.name for path in tmp_path.iterdir()] == ["probe.csv"]


def test_the_file_is_plain_csv_with_the_columns_in_order(tmp_path):
    Probe([ROW]).to_csv(tmp_path / "probe.csv")
    with open(tmp_path / "probe.csv", newline="") as file:
        header, values = csv.reader(file)
    assert header == list(COLUMNS)
    assert float(values[header.index("kappa")]) == ROW["kappa"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "No such file"),
        ("a,b\n1,2\n", "has no column 'run'"),
        ("", "has no column 'run'"),
        (",".join(COLUMNS) + "\n" + "," * 5 + "x" + "," * (len(COLUMNS) - 6) + "\n", "line 2: .*x"),
        (",".join(COLUMNS) + "\nrun,1\n", "line 2"),
    ],
)
def test_a_file_that_is_no_table_is_one_error(tmp_path, text, message):
    path = tmp_path / "probe.csv"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UserError, match=rf"probe\.csv.*{message}"):
        Probe.from_csv(path)


def test_probes_add_up_with_their_spectra():
    one = Probe([ROW], {Place("a", 3, 1, 2, 0): np.ones(3)})
    other = Probe([ROW | {"step": 4}], {Place("a", 4, 1, 2, 0): np.zeros(3)})
    both = one + other
    assert both.rows == one.rows + other.rows
    assert len(both.spectra) == 2
    assert len(one.rows) == 1
    assert Probe.concat([]).rows == []


def test_the_table_gives_median_and_maximum_over_heads():
    rows = [ROW | {"head": n, "kappa": kappa} for n, kappa in enumerate((1e5, 3e5, 2e9))]
    text = shown(Probe(rows))
    assert "3e5" in text
    assert "2e9" in text
    assert "270 of 272" in text
    assert "3 of 3 rows: near the limit" in text
    assert "step" not in text


def test_the_table_of_several_runs_with_every_quantity_fits_a_terminal():
    rows = [
        ROW | {"run": run, "step": step, "layer": layer, "kappa": 1.2345e-17, "bound": 1.234e100}
        for run in ("truncated_normal", "conditioned")
        for step in (0, 3000)
        for layer in range(12)
    ]
    text = shown(Probe(rows), width=80)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80
    assert "truncated_normal" in text


def test_a_name_with_brackets_is_shown_as_it_is():
    rows = [ROW | {"run": run, "warning": "[bold]odd[/]"} for run in ("lr[1e-3]", "[red]b")]
    text = shown(Probe(rows))
    assert all(part in text for part in ("lr[1e-3]", "[red]b", "[bold]odd[/]"))


def test_a_directory_that_is_absent_is_made(tmp_path):
    Probe([ROW]).to_csv(tmp_path / "a/b/probe.csv")
    assert (tmp_path / "a/b/probe.csv").exists()


def test_what_was_not_asked_for_is_left_out_of_the_table():
    text = shown(Probe([UNKNOWN]))
    assert "W_Q" not in text
    assert "bound" not in text
