"""`python train.py`: one line and exit code 2 for a mistake, a fresh workdir, a fast --help."""

import importlib.util
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import condinit_jax.training
from condinit_jax.config import Config
from condinit_jax.errors import UserError

ROOT = Path(__file__).parents[1]


@pytest.fixture
def command():
    spec = importlib.util.spec_from_file_location("train_command", ROOT / "train.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*argv):
        try:
            return module.main(argv)
        except SystemExit as stop:
            return stop.code

    return run


@pytest.fixture
def trained(monkeypatch, tmp_path):
    """The calls of `train`, which does nothing; the current directory is a fresh one."""
    calls = []
    monkeypatch.setattr(condinit_jax.training, "train", lambda *call: calls.append(call))
    monkeypatch.chdir(tmp_path)
    for variable in ("JAX_COORDINATOR_ADDRESS", "SLURM_STEP_NODELIST"):
        monkeypatch.delenv(variable, raising=False)
    return calls


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["--workdri", "x"], "--workdri: unknown argument; did you mean --workdir?; see --help"),
        (["--confg.steps=3"], "--confg.steps=3: unknown argument; did you mean --config?; "
         "see --help"),
        (["configs/vit.py"], "configs/vit.py: unknown argument; did you mean --config?; "
         "see --help"),
        (["--steps=20"], "--steps=20: unknown argument; did you mean --config.steps?; see --help"),
        (["--batch-size", "8"], "--batch-size: unknown argument; did you mean "
         "--config.batch_size?; see --help"),
        (["--lr=1"], "--lr=1: unknown argument; did you mean --config.optimizer.lr?; see --help"),
        (["--workdir"], "argument --workdir: expected one argument; see --help"),
        (["--work", "x"], "--work: unknown argument; did you mean --workdir?; see --help"),
        (["--config", "configs/vti.py"], "configs/vti.py: no such config file; there are "
         "configs/vit.py"),
        (["--config", "configs/vit.py:ti"], "configs/vit.py:ti: the argument is VARIANT,DATASET "
         "with a variant of micro, ti, s, b, l and a dataset of bundled, cifar10, cifar100, pets, "
         "flowers, imagenet"),
        (["--config.optimizer.learning_rate=1"], "config.optimizer.learning_rate = '1': unknown "
         "field; did you mean config.optimizer.lr?"),
        (["--config.steps"], "config.steps: needs a value, as config.steps=VALUE"),
        (["--config.steps", "--debugging"], "--debugging: unknown argument; did you mean --debug?; "
         "see --help"),
        (["--config.batch_size", "many"], "config.batch_size = 'many': must be an integer"),
        (["--config.optimizer.lr=-1"], "config.optimizer.lr = '-1': must be at least 0"),
        (["--config.optimizer.lr", "-1"], "config.optimizer.lr = '-1': must be at least 0"),
        (["--config.model.num_heads=5"], "config.model.num_heads = 5: must divide "
         "config.model.width = 64"),
        (["--config.model.patch_size=32"], "config.model.patch_size = 32: must be at most "
         "config.data.image_size = 28"),
        (["--config.epochs=3"], "config.epochs = 3.0: must be 0 where config.steps = 1000, or set "
         "that to 0"),
        (["--workdir", "gs://bucket/run"], "--workdir = 'gs://bucket/run': must be a directory on "
         "a file system that can be made and written"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_and_exit_code_2(command, trained, capsys, argv, line):
    assert command(*argv) == 2
    assert capsys.readouterr().err == f"train.py: {line}\n"
    assert not trained
    assert not Path("runs").exists()


def test_a_workdir_that_is_a_file_is_a_mistake(command, trained, capsys):
    Path("taken").touch()
    assert command("--workdir", "taken") == 2
    assert capsys.readouterr().err == (
        "train.py: --workdir = 'taken': must be a directory on a file system that can be made and "
        "written (File exists)\n"
    )


def test_debug_shows_where_a_mistake_was_found(command, trained):
    with pytest.raises(UserError, match=r"config.steps = 'x'"):
        command("--config.steps=x", "--debug")


def test_without_arguments_the_default_recipe_trains_in_a_fresh_directory(command, trained, capsys):
    assert command() == 0
    ((run, workdir),) = trained
    assert isinstance(run, Config)
    assert run.init["method"] == "conditioned"
    assert workdir.parent == Path("runs")
    assert workdir.name.startswith("vit-2")
    assert workdir.is_dir()
    assert capsys.readouterr().out == f"workdir: {workdir}\n"


def test_starts_in_the_same_second_get_directories_of_their_own(command, trained, monkeypatch):
    monkeypatch.setattr(time, "strftime", lambda text: "now")
    for _ in range(3):
        assert command() == 0
    assert [workdir.name for _, workdir in trained] == ["vit-now", "vit-now-2", "vit-now-3"]


def test_a_file_called_runs_is_a_mistake(command, trained, capsys):
    Path("runs").touch()
    assert command() == 2
    assert "must be a directory on a file system" in capsys.readouterr().err


def test_the_first_run_of_a_newcomer_may_be_shorter_than_the_warm_up(command, trained):
    assert command("--config.steps=20") == 0
    assert trained[0][0].steps == 20


def test_the_fresh_directory_is_named_after_the_recipe_and_its_argument(command, trained):
    assert command("--config", "configs/vit.py:ti,bundled") == 0
    assert trained[0][1].name.startswith("vit-ti-bundled-2")


def test_fields_are_changed_in_both_spellings_and_the_workdir_is_kept(command, trained):
    argv = ["--config.optimizer.lr=1e-2", "--config.mesh.data", "-1", "--config.data.flip", "true"]
    for _ in range(2):
        assert command("--config=configs/vit.py:ti,bundled", *argv, "--workdir", "here/it/is") == 0
        run, workdir = trained.pop()
        assert (run.optimizer.lr, run.mesh.data, run.data.flip) == (0.01, -1, True)
        assert run.model["width"] == 192
        assert workdir == Path("here/it/is")


def test_a_recipe_in_the_current_directory_comes_before_that_of_the_repository(command, trained):
    Path("configs").mkdir()
    text = "def get_config():\n    return {'steps': 3, 'model': {'patch_size': 4}}\n"
    Path("configs/vit.py").write_text(text)
    assert command() == 0
    assert trained[0][0].steps == 3


def test_a_mistake_found_while_training_is_one_line_too(command, trained, monkeypatch, capsys):
    def fail(*_):
        raise UserError("config.batch_size = 3: cannot be split")

    monkeypatch.setattr(condinit_jax.training, "train", fail)
    assert command() == 2
    assert capsys.readouterr().err == "train.py: config.batch_size = 3: cannot be split\n"


def test_an_interrupt_is_one_line_and_exit_code_130(command, trained, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(condinit_jax.training, "train", interrupt)
    assert command("--workdir", "here") == 130
    assert capsys.readouterr().err == (
        "train.py: interrupted; give the run's --workdir to continue it\n"
    )


def test_a_run_that_cannot_start_leaves_no_directory(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    argv = ["--config.data.source=folder", f"--config.data.dir={tmp_path / 'none'}"]
    assert command(*argv) == 2
    assert "is not a directory" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))


def test_help_config_prints_every_field_with_its_value_and_trains_nothing(command, trained, capsys):
    assert command("--help-config", "--config.steps=700") == 0
    out = capsys.readouterr().out
    assert "steps = 700 " in out
    assert "model.patch_size = 7 " in out
    assert not trained


def test_a_workdir_is_needed_where_several_processes_train_as_one(
    command, trained, monkeypatch, capsys
):
    import jax

    given = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **counts: given.update(counts))
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "localhost:1")
    monkeypatch.setenv("JAX_NUM_PROCESSES", "2")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert command() == 2
    assert given == {"num_processes": 2, "process_id": 1}
    assert capsys.readouterr().err == (
        "train.py: --workdir: has to be given where several processes train as one\n"
    )
    assert command("--workdir", "here") == 0
    assert trained[0][1] == Path("here")


@pytest.mark.parametrize(
    ("variables", "joins"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "4"}, False),
        ({"SLURM_NTASKS": "1", "SLURM_STEP_NODELIST": "n1"}, False),
        ({"SLURM_NTASKS": "4", "SLURM_STEP_NODELIST": "n[1-4]"}, True),
        ({"JAX_COORDINATOR_ADDRESS": "localhost:1"}, True),
    ],
)
def test_processes_join_only_where_there_is_a_cluster(
    command, trained, monkeypatch, variables, joins
):
    import jax

    joined = []
    monkeypatch.setattr(jax.distributed, "initialize", lambda **counts: joined.append(counts))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert command("--workdir", "here") == 0
    assert bool(joined) is joins


def test_a_cluster_that_is_not_there_is_one_line(command, trained, monkeypatch, capsys):
    import jax

    def fail(**_):
        raise ValueError("coordinator_address should be defined.")

    monkeypatch.setattr(jax.distributed, "initialize", fail)
    assert command("--distributed", "--workdir", "here") == 2
    assert capsys.readouterr().err == (
        "train.py: --distributed: the processes did not find one another: "
        "coordinator_address should be defined.\n"
    )


def test_help_answers_at_once_and_from_any_directory(tmp_path):
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-X", "importtime", ROOT / "train.py", "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "--config.FIELD VALUE" in done.stdout
    assert "| jax\n" not in done.stderr
    assert time.perf_counter() - start < 20


def test_the_command_works_from_any_directory_with_one_clean_line(tmp_path):
    done = subprocess.run(
        [sys.executable, ROOT / "train.py", "--config.optimzer.lr=1"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        "train.py: config.optimzer.lr = '1': unknown field; did you mean config.optimizer.lr?\n"
    )
