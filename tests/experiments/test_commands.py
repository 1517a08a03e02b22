"""The commands that a person copies, and what a cluster's script makes of them."""

import os
import shlex
import subprocess

import pytest

from condinit_jax import config as configs
from condinit_jax.experiments import ROOT, make_grid, read_variants, shell_line, slurm_script

INITS = ["default", "conditioned:kernels=query+key", "deepnorm:model.residual=deepnorm"]


@pytest.fixture
def grid(recipe):
    return make_grid(recipe, read_variants(INITS), (0, 1), (1e-3,), ("batch_size=4",))


def test_a_printed_command_makes_the_run_that_is_compared(grid, recipe_file, tmp_path):
    for cell in grid:
        words = shlex.split(shell_line(cell, str(recipe_file), tmp_path / "a b"))
        assert words[:3] == ["python", "train.py", "--config"]
        fields = [word.removeprefix("--config.") for word in words if word.startswith("--config.")]
        run = configs.parse(configs.override(configs.load(words[3]), fields))
        assert configs.to_dict(run) == cell.config
        assert words[-1] == str(tmp_path / "a b" / cell.place)


def test_each_task_of_the_array_runs_its_own_command(grid, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "array.sh"
    script.write_text(slurm_script(grid, "configs/it's.py", tmp_path / "a b", script))

    def task(number):
        variables = {"PATH": f"{python.parent}:{os.environ['PATH']}"}
        variables |= {"SLURM_ARRAY_TASK_ID": str(number)}
        return subprocess.run(
            ["bash", script], env=variables, cwd="/", capture_output=True, text=True, check=False
        )

    assert f"#SBATCH --array=0-{len(grid) - 1}\n" in script.read_text()
    for number, cell in enumerate(grid):
        here, *words = task(number).stdout.splitlines()
        assert here == str(tmp_path)
        assert words[:3] == [str(ROOT / "train.py"), "--config", "configs/it's.py"]
        assert words[-1] == str(tmp_path / "a b" / cell.place)
    beyond = task(len(grid))
    assert (beyond.returncode, beyond.stdout) == (2, "")
    assert beyond.stderr == f"no run has the number {len(grid)}\n"
