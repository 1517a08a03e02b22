"""The command with runs that take no time."""

import pytest

from condinit_jax.compare import _command
from tests.experiments.conftest import RECIPE
from tests.experiments.faking import fake_command


@pytest.fixture
def recipe_file(tmp_path):
    path = tmp_path / "small.py"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def behaviours():
    """How runs behave, by their place; a test adds to it."""
    return {}


@pytest.fixture
def command(monkeypatch, tmp_path, recipe_file, behaviours):
    """Calls the command in an empty directory, with fake runs of a small recipe."""
    monkeypatch.chdir(tmp_path)
    fake = fake_command(tmp_path / "runs", behaviours)
    monkeypatch.setattr(_command, "local_command", lambda cell, recipe, directory: fake(cell))

    def call(*argv):
        return _command.main([str(word) for word in argv])

    return call
