"""The table of runs in docs/methods.md: every method is in it, trained with three seeds."""

import pathlib
import re

import pytest

from condinit_jax.experiments import read_variant
from condinit_jax.methods import METHODS

ROOT = pathlib.Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()
TABLE = re.search(r"<!-- runs: begin -->\n(.*?)<!-- runs: end -->", PAGE, re.DOTALL)[1]
CELLS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TABLE.splitlines()
    if line.startswith("| `")
]
ROWS = {name.strip("`"): row for name, *row in CELLS if name != "`--init`"}
WITH_MORE = ("hybrid", "impulse")
"""Methods that need more than their name."""


@pytest.mark.parametrize("method", METHODS)
def test_every_method_was_trained_with_three_seeds(method):
    rows = [row for name, row in ROWS.items() if name == method]
    if method in WITH_MORE:
        rows = [row for name, row in ROWS.items() if name.startswith(f"{method}:")]
    assert rows
    assert max(int(row[0]) for row in rows) >= 3


def test_rows_are_called_as_the_command_reads_them():
    for name in ROWS:
        assert read_variant(name).label == name


def test_the_best_comes_first():
    finals = [float(row[2].split()[0]) for row in ROWS.values() if row[2]]
    assert finals == sorted(finals, reverse=True)
