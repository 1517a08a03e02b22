import json
import math

import numpy as np
import pytest

from condinit_jax.training.probe_rows import as_json, layer_kappas, summary


def rows(*kappas, layer=0, **others):
    return [{"layer": layer, "kappa": kappa, "size": 4, **others} for kappa in kappas]


@pytest.mark.parametrize(
    ("given", "medians"),
    [
        (rows(1.0, 3.0, 100.0), {0: 3.0}),
        (rows(1.0, 3.0), {0: 2.0}),
        (rows(1.0, None, None), {}),
        (rows(1.0, 2.0, None) + rows(5.0, layer=7), {0: 2.0, 7: 5.0}),
        ([{"layer": 0, "kappa": None, "size": None, "kappa_query": 2.0}], {}),
        ([], {}),
    ],
)
def test_a_layer_has_the_median_over_its_heads_and_examples(given, medians):
    assert layer_kappas(given) == medians


def test_a_line_shows_few_layers_one_by_one_and_many_as_a_range():
    few = rows(1e5) + rows(2.5e7, layer=1)
    assert summary(few) == {"kappa": "1e+05,2.5e+07"}
    many = [row for layer in range(12) for row in rows(10.0**layer, layer=layer)]
    assert summary(many) == {"kappa": "1..5.5e+05..1e+11"}


def test_a_line_counts_figures_with_a_warning_and_rows_without_a_jacobian():
    assert summary(rows(2.0, 2.0, warning="no")) == {"kappa": "2", "warnings": 2}
    assert summary([{"layer": 0, "kappa": None, "size": None}]) == {"rows": 1}


def test_rows_are_json_whatever_numbers_are_in_them():
    row = {"kappa": math.inf, "error": np.float32("nan"), "rank": np.int64(3), "path": "a", "x": 1}
    text = json.dumps(as_json({"run": "r", "step": 3, **row}), allow_nan=False)
    assert json.loads(text) == {"kappa": None, "error": None, "rank": 3, "path": "a", "x": 1}
