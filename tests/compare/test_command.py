"""`python -m condinit_jax.compare`: runs, a report, and one line with exit code 2 for a mistake."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from condinit_jax.compare import _command

ROOT = Path(_command.__file__).parents[2]
REPORT = ["methods.csv", "report.html", "report.md", "runs.csv"]


def files(directory):
    return sorted(path.name for path in directory.glob("[!.]*") if path.is_file())


def asked(recipe_file, *more):
    return ["--config", recipe_file, "--init", "default,conditioned", "--workdir", "runs", *more]


def test_runs_are_made_and_reported(command, recipe_file, tmp_path, capsys):
    assert command(*asked(recipe_file, "--seeds", 2)) == 0
    said = capsys.readouterr().out
    assert "4 runs to make, " in said
    assert "4/4 conditioned, seed 1: accuracy " in said
    assert said.rstrip().endswith("report: runs/report.html")
    assert files(tmp_path / "runs") == sorted(["compare.json", *REPORT])
    assert "conditioned" in (tmp_path / "runs" / "report.md").read_text()


def test_finished_runs_are_not_made_again_and_more_seeds_are_added(
    command, recipe_file, tmp_path, capsys
):
    command(*asked(recipe_file, "--seeds", 1))
    before = (tmp_path / "runs/default/seed=0/result.json").stat().st_mtime_ns
    capsys.readouterr()
    assert command(*asked(recipe_file, "--seeds", 3)) == 0
    assert "4 runs to make, 2 are there, " in capsys.readouterr().out
    assert (tmp_path / "runs/default/seed=0/result.json").stat().st_mtime_ns == before
    assert command(*asked(recipe_file, "--seeds", 3)) == 0
    assert "all 6 runs are there already" in capsys.readouterr().out


def test_a_failed_run_is_in_the_report_and_the_exit_code(
    command, behaviours, recipe_file, tmp_path, capsys
):
    behaviours["conditioned/seed=1"] = "fails"
    assert command(*asked(recipe_file, "--seeds", 2)) == 1
    captured = capsys.readouterr()
    assert "1 of 4 runs failed; see the report" in captured.err
    for name in ("report.html", "report.md", "runs.csv"):
        assert "the loss is NaN" in (tmp_path / "runs" / name).read_text()
    behaviours.clear()
    assert command(*asked(recipe_file, "--seeds", 2)) == 0
    assert "the loss is NaN" not in (tmp_path / "runs" / "report.md").read_text()


def test_a_report_needs_the_directories_alone(command, recipe_file, tmp_path, capsys):
    command(*asked(recipe_file, "--seeds", 2))
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    shutil.move(tmp_path / "runs" / "default", moved / "default")
    shutil.move(tmp_path / "runs" / "conditioned", moved / "other")
    capsys.readouterr()
    assert command("--report", "--workdir", moved, "--against", "conditioned") == 0
    assert f"report: {moved}/report.html" in capsys.readouterr().out
    assert files(moved) == REPORT


def test_a_dry_run_prints_commands_and_leaves_nothing(command, recipe_file, tmp_path, capsys):
    assert command(*asked(recipe_file, "--seeds", 2, "--dry-run")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.startswith("python train.py --config ") for line in lines)
    assert [path.name for path in tmp_path.iterdir()] == [recipe_file.name]


def test_a_cluster_gets_a_script_and_a_report_afterwards(command, recipe_file, tmp_path, capsys):
    assert command(*asked(recipe_file, "--slurm", "jobs/array.sh")) == 0
    assert "submit it with: sbatch jobs/array.sh" in capsys.readouterr().out
    assert os.access(tmp_path / "jobs" / "array.sh", os.X_OK)
    assert command("--report", "--workdir", "runs") == 0
    assert "not started" in (tmp_path / "runs" / "report.md").read_text()


def test_another_recipe_in_the_same_directory_is_refused(command, recipe_file, tmp_path, capsys):
    command(*asked(recipe_file))
    capsys.readouterr()
    assert command(*asked(recipe_file, "--config.batch_size=4")) == 2
    said = capsys.readouterr().err
    assert said.startswith("python -m condinit_jax.compare: config.batch_size: 8 -> 4: runs")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--init", "conditiond"], "--init = 'conditiond': unknown method"),
        (["--init", "default", "--config", "no.py"], "no.py: no such config file"),
        (["--init", "default", "--config.stpes=3"], "config.stpes = '3': unknown field"),
        (["--report"], "--workdir = 'runs/compare': no such directory"),
        (["--init", "default", "--jobs", "99999"], "--jobs = 99999"),
        (["--init", "default", "--workdir", "small.py/x"], "--workdir = 'small.py/x'"),
        (["--init", "default", "--slurm", "small.py/x"], "--slurm = 'small.py/x'"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(command, tmp_path, capsys, argv, message):
    before = sorted(tmp_path.iterdir())
    assert command(*argv) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"python -m condinit_jax.compare: {message}")
    assert captured.err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_help_names_every_flag():
    done = subprocess.run(
        [sys.executable, "-m", "condinit_jax.compare", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    for flag in ("--init", "--seeds", "--lr", "--against", "--jobs", "--dry-run", "--slurm"):
        assert flag in done.stdout


@pytest.mark.slow
def test_real_runs_end_and_a_stopped_comparison_goes_on(recipe_file, tmp_path):
    """The command itself, as a person calls it, with training runs of four steps."""
    argv = [sys.executable, "-m", "condinit_jax.compare", *map(str, asked(recipe_file))]
    done = subprocess.run(
        [*argv, "--seeds", "2"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert files(tmp_path / "runs") == sorted(["compare.json", *REPORT])
    for place in ("default/seed=0", "conditioned/seed=1"):
        run = tmp_path / "runs" / place
        assert json.loads((run / "result.json").read_text())["steps"] == 4
        assert "result steps=4" in (run / "output.txt").read_text()
