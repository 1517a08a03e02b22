"""docs/methods.md says what the methods are now."""

import importlib.util
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from condinit_jax import config as configs
from condinit_jax import methods, spectra, tasks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "methods.md").read_text()


@pytest.fixture(scope="module")
def script():
    """benchmarks/methods_table.py as a module."""
    path = ROOT / "benchmarks" / "methods_table.py"
    specification = importlib.util.spec_from_file_location("methods_table", path)
    module = importlib.util.module_from_spec(specification)
    sys.path.insert(0, str(path.parent))
    sys.modules["methods_table"] = module  # where its dataclass looks for its own annotations
    try:
        specification.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules["methods_table"]


@pytest.fixture(scope="module")
def table():
    """The table's cells by method and title."""
    text = PAGE.partition("<!-- methods: begin -->")[2].partition("<!-- methods: end -->")[0]
    titles, _, *rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.strip().splitlines()
    ]
    return {row[0]: dict(zip(titles, row, strict=True)) for row in rows}


def test_the_table_has_a_row_for_every_method(table):
    assert list(table) == [methods.DEFAULT, *methods.METHODS]
    assert (ROOT / "docs" / "images" / "methods.png").stat().st_size > 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in methods.METHODS if name != "weight_selection"])
def test_a_row_says_what_the_method_touches_needs_and_does_to_its_kernels(script, table, name):
    recipe = configs.load(str(ROOT / "configs/vit.py:ti,bundled"))
    config = configs.parse(configs.override(recipe, ["init.method=default", "model.depth=2"]))
    task = tasks.build(config)
    method = script.method_of(name, {"rows": 4, "columns": 4}, None)
    plain, state = script.draw(task, None), script.draw(task, method)
    row = table[name]
    after = script.effective(state)
    assert row["touches"] == ", ".join(script.touched(plain.params, after)) or "nothing"
    assert row["needs"] == script.needs(name, method)

    shown = row["kappa per head: W_Q / W_K / W_V"].split(" / ")
    found = []
    for role in ("query", "key", "value"):
        kernel = np.asarray(after["blocks"]["attention"][role]["kernel"], np.float64)
        heads = np.moveaxis(kernel, 2, 1).reshape(-1, *kernel.shape[1::2])
        found.append(np.median([spectra.condition_number(head, rtol=1e-6).kappa for head in heads]))
    for value, text in zip(found, shown * 3 if len(shown) == 1 else shown, strict=len(shown) == 3):
        assert value == pytest.approx(float(text), rel=0.1)
    jax.clear_caches()
