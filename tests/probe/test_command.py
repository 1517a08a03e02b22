"""`python -m condinit_jax.probe`: a table, files, and one line with exit code 2 for a mistake."""

import os
import shutil
import subprocess
import sys

import flax.linen as nn
import pytest

from condinit_jax.errors import UserError
from condinit_jax.models import ViT
from condinit_jax.probe import _command
from condinit_jax.spectra import Probe
from condinit_jax.tasks import _classification
from condinit_jax.training.files import read_rows

PROGRAM = "python -m condinit_jax.probe"


@pytest.fixture
def command(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def call(*argv):
        return _command.main([str(word) for word in argv])

    return call


def table(directory):
    return Probe.from_csv(directory / "probe.csv").rows


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def measured_in(run, step):
    """kappa and rank by layer and head, as the run wrote them."""
    rows = [row for row in read_rows(run / "metrics.jsonl") if row["kind"] == "probe"]
    return {
        (row["layer"], row["head"]): (pytest.approx(row["kappa"], rel=1e-6), row["rank"])
        for row in rows
        if row["step"] == step
    }


def measured(rows, **where):
    return {
        (row["layer"], row["head"]): (row["kappa"], row["rank"])
        for row in rows
        if all(row[name] == value for name, value in where.items())
    }


def test_initializations_are_drawn_as_a_run_draws_them(command, recipe, run, tmp_path, capsys):
    assert command("--config", recipe, "--init", "conditioned,xavier", "--out", "out") == 0
    rows = table(tmp_path / "out")
    assert list(dict.fromkeys(row["run"] for row in rows)) == ["conditioned", "xavier_uniform"]
    assert measured(rows, run="conditioned") == measured_in(run, 0)
    assert measured(rows, run="xavier_uniform") != measured_in(run, 0)
    assert names(tmp_path / "out") == ["depth.png", "depth.svg", "probe.csv"]
    captured = capsys.readouterr()
    assert "probing conditioned, xavier_uniform\n" in captured.out
    assert captured.out.endswith("wrote depth.png, depth.svg, probe.csv in out\n")
    assert captured.err == ""


def test_the_configs_own_method_and_another_seed(command, recipe, run, tmp_path):
    argv = ["--config", recipe, "--config.init.value", "joint", "--seed", 1]
    assert command(*argv, "--layers", "-1,0", "--heads", -1, "--out", "out") == 0
    rows = table(tmp_path / "out")
    assert [(row["run"], row["layer"], row["head"]) for row in rows] == [
        ("conditioned", 2, 1), ("conditioned", 0, 1)
    ]  # fmt: skip
    before = measured_in(run, 0)
    assert all(before[place] != found for place, found in measured(rows).items())


def test_all_values_all_quantities_and_fewer_tokens(command, recipe, tmp_path):
    argv = ["--config", recipe, "--layers", 1, "--heads", 0, "--examples", 2, "--tokens", 3]
    argv += ["--values", "all", "--quantities", "jacobian,kernels,bound", "--method", "qr"]
    argv += ["--rtol", "1e-9"]
    assert command(*argv, "--out", "a/b") == 0
    rows = table(tmp_path / "a/b")
    assert [(row["example"], row["tokens"], row["method"]) for row in rows] == [
        (0, 3, "qr"), (1, 3, "qr")
    ]  # fmt: skip
    assert all(row["rtol"] == 1e-9 for row in rows)
    assert all(row["kappa_value"] == pytest.approx(1.0) for row in rows)
    assert all(row["bound"] > row["kappa"] for row in rows)
    assert {"spectra.png", "spectra.svg"} <= set(names(tmp_path / "a/b"))


def test_checkpoints_have_the_figures_that_their_run_measured_there(command, run, tmp_path, capsys):
    other = tmp_path / "other"
    shutil.copytree(run, other)
    before = {path: path.stat().st_mtime_ns for path in other.rglob("*")}
    argv = ["--workdir", run, "--workdir", other, "--step", "all"]
    assert command(*argv, "--out", "out") == 0
    rows = table(tmp_path / "out")
    for name in ("small", "other"):
        for step in (2, 4):
            assert measured(rows, run=name, step=step) == measured_in(run, step)
    assert "probing small at step 2, small at step 4, other at step 2" in capsys.readouterr().out
    assert {"steps.png", "steps.svg", "depth.png"} <= set(names(tmp_path / "out"))
    # A run's directory is read and nothing else: it may belong to a process that goes on.
    assert {path: path.stat().st_mtime_ns for path in other.rglob("*")} == before


def test_the_last_checkpoint_is_taken_where_no_step_is_named(command, run, tmp_path):
    assert command("--workdir", run, "--heads", 0, "--out", "out") == 0
    rows = table(tmp_path / "out")
    assert {row["step"] for row in rows} == {4}
    assert measured(rows).items() <= measured_in(run, 4).items()


CONFIG = "--config={recipe}"


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        ([CONFIG, "--init", "qqq"], "--init = 'qqq': unknown method; there are default, "
         "conditioned, "),
        ([CONFIG, "--init", "xavier,conditoned"], "--init = 'conditoned': unknown method; did you "
         "mean conditioned? There are default, "),
        (["--workdir", "none"], "--workdir = 'none': holds no run (config.json: No such file or "
         "directory)"),
        (["--workdir", "{run}", "--step", "3"], "--step = 3: {run} has checkpoints of steps 2, 4"),
        (["--workdir", "{run}", "--step", "two"], "argument --step: 'two': must be numbers such as "
         "0,500, last or all; see --help"),
        (["--workdir", "{run}", "--config.model.num_heads=4"], "--config.model.num_heads: is what "
         "a run began with; leave it out beside --workdir"),
        (["--workdir", "{run}", "--init", "default"], "--init: is for a model at initialization; "
         "leave it out beside --workdir"),
        ([CONFIG, "--step", "3"], "--step: is for a run's checkpoints; give the run as --workdir"),
        ([CONFIG, "--out", "{recipe}"], "--out = '{recipe}': {recipe} is a file; give a directory"),
        ([CONFIG, "--out", "{recipe}/x"], "--out = '{recipe}/x': {recipe} is a file; give a "
         "directory"),
        ([CONFIG, "--layers", "7"], "layers = 7: there are 3, counted from 0"),
        ([CONFIG, "--heads", "x"], "argument --heads: 'x': must be numbers such as 0,5,-1, or all; "
         "see --help"),
        ([CONFIG, "--examples", "0"], "argument --examples: '0': must be a number of at least 1; "
         "see --help"),
        ([CONFIG, "--memory", "-1"], "argument --memory: '-1': must be a number above 0; see "
         "--help"),
        ([CONFIG, "--quantities", "kappa"], "--quantities = 'kappa': must be among jacobian, "
         "kernels, bound"),
        ([CONFIG, "--values", "some"], "argument --values: invalid choice: 'some' (choose from "),
        ([CONFIG, "--seed", "x"], "argument --seed: invalid int value: 'x'; see --help"),
        ([CONFIG, "--config.model.width=15"], "config.model.num_heads = 2: must divide "
         "config.model.width = 15"),
        (["--config", "none.py"], "none.py: no such config file; there are "),
        ([CONFIG, "--layer", "0"], "--layer: unknown argument; did you mean --layers?; see --help"),
        ([CONFIG, "--lr=1"], "--lr=1: unknown argument; did you mean --config.optimizer.lr?; see "
         "--help"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(command, recipe, run, tmp_path, capsys, argv, line):
    filled = [word.format(recipe=recipe, run=run) for word in argv]
    out = [] if "--out" in argv else ["--out", "out"]
    assert command(*filled, *out) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{PROGRAM}: {line.format(recipe=recipe, run=run)}")
    assert error.count("\n") == 1
    assert names(tmp_path) == []


class Linear(ViT):
    """What a config of a ViT may build, but without attention."""

    @nn.compact
    def __call__(self, images, *, train=False):
        return nn.Dense(self.num_classes)(images.reshape(len(images), -1))


@pytest.mark.parametrize(
    ("init", "line"),
    [
        ("default", "Linear: has no attention block; looked for a module that calls children "
         "named query, key and value\n"),
        ("conditioned", "no attention block in the parameter tree: "),
    ],
)  # fmt: skip
def test_a_model_without_attention_is_a_mistake(
    command, recipe, monkeypatch, capsys, tmp_path, init, line
):
    monkeypatch.setattr(_classification, "MODELS", {"vit": Linear})
    assert command("--config", recipe, "--init", init, "--out", "out") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{PROGRAM}: {line}")
    assert error.count("\n") == 1
    assert names(tmp_path) == []


def test_pictures_of_an_earlier_probe_do_not_stay_beside_a_new_table(command, recipe, tmp_path):
    out = tmp_path / "out"
    one = ["--config", recipe, "--layers", 0, "--heads", 0, "--out", "out"]
    assert command(*one, "--values", "all") == 0
    assert {"spectra.png", "spectra.svg"} <= set(names(out))
    for mine in ("notes.txt", "other.png", "spectra.pdf"):
        (out / mine).write_text("mine")
    # A call that fails leaves what is there.
    assert command(*one[:-2], "--memory", "1e-9", "--out", "out") == 2
    assert "spectra.png" in names(out)
    assert command(*one) == 0
    assert names(out) == [
        "depth.png", "depth.svg", "notes.txt", "other.png", "probe.csv", "spectra.pdf"
    ]  # fmt: skip


def test_a_damaged_checkpoint_is_named(command, run, tmp_path, capsys):
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    for file in (damaged / "checkpoints/4/state").rglob("*"):
        if file.is_file():
            file.write_bytes(file.read_bytes()[:10])
    assert command("--workdir", "damaged") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{PROGRAM}: damaged/checkpoints/4: cannot be read (")
    assert error.count("\n") == 1


@pytest.mark.parametrize("exists", [False, True])
def test_nothing_half_written_is_left(command, recipe, tmp_path, monkeypatch, exists):
    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(_command._outputs, "save_figure", fail)
    if exists:
        (tmp_path / "out").mkdir()
        (tmp_path / "out/probe.csv").write_text("old")
    assert command("--config", recipe, "--layers", 0, "--heads", 0, "--out", "out") == 130
    assert names(tmp_path) == (["out"] if exists else [])
    if exists:
        assert names(tmp_path / "out") == ["probe.csv"]
        assert (tmp_path / "out/probe.csv").read_text() == "old"


def test_who_stops_reading_the_table_has_the_files(command, recipe, tmp_path, monkeypatch):
    def closed(*_, **__):
        raise BrokenPipeError

    monkeypatch.setattr(_command.Probe, "table", closed)
    monkeypatch.setattr(_command.os, "dup2", lambda *_: None)
    assert command("--config", recipe, "--layers", 0, "--heads", 0, "--out", "out") == 1
    assert names(tmp_path / "out") == ["depth.png", "depth.svg", "probe.csv"]


def test_debug_shows_where_a_mistake_was_found(command, recipe):
    with pytest.raises(UserError, match="unknown method"):
        command("--config", recipe, "--init", "nothing", "--debug")


def _called(*argv):
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "condinit_jax.probe", *argv],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )


def test_the_module_is_a_command_with_help():
    done = _called("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--config.FIELD VALUE" in done.stdout
    assert f"{PROGRAM} --workdir" in done.stdout


def test_the_module_gives_the_exit_code():
    done = _called("--init", "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{PROGRAM}: --init = 'none': unknown method; there are ")
