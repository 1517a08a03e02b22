"""The notebook is a clean file, and runs from top to bottom."""

import itertools
import os
from pathlib import Path

import nbclient
import nbformat
import pytest

PATH = Path(__file__).parents[2] / "notebooks" / "jacobian_spectra.ipynb"


@pytest.fixture
def notebook():
    return nbformat.read(PATH, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_the_file_is_valid_and_without_outputs(notebook):
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert cell.outputs == []
        assert cell.execution_count is None
    assert set(notebook.metadata.kernelspec.values()) == {"Python 3", "python", "python3"}


def test_only_the_first_cell_installs_and_only_where_the_package_is_missing(notebook):
    install, *others = code_cells(notebook)
    condition = 'if importlib.util.find_spec("condinit_jax") is None:\n    %pip install'
    assert condition in install.source
    assert not any("pip install" in cell.source for cell in others)


def test_text_and_code_take_turns(notebook):
    kinds = [cell.cell_type for cell in notebook.cells]
    assert set(kinds) == {"markdown", "code"}
    assert kinds[0] == kinds[-1] == "markdown"
    stretches = [(kind, len(list(cells))) for kind, cells in itertools.groupby(kinds)]
    assert all(length <= {"markdown": 1, "code": 3}[kind] for kind, length in stretches)
    assert len(stretches) > 10
    assert "κ" in "".join(cell.source for cell in code_cells(notebook))
    for said in ("small against fan-in scaling", "Not how fast a model trains", "`rtol`"):
        assert any(said in cell.source for cell in notebook.cells)


@pytest.mark.slow
def test_it_runs_and_draws(notebook, tmp_path):
    # The flags with which tests compile make its numbers slow.
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {"JAX_PLATFORMS": "cpu"}
    client = nbclient.NotebookClient(
        notebook, timeout=900, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=environment)
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 5
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "rank 12608 of 12608" in printed
    assert "144 rows" in printed
