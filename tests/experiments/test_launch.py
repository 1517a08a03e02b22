"""Runs made by processes: all of them, whatever one does."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import (
    FAILED,
    FINISHED,
    UNFINISHED,
    Slot,
    launch,
    make_display,
    make_grid,
    read_run,
    read_variants,
)
from tests.experiments.faking import fake_command

INITS = ("default", "conditioned", "tied")
ONE = (Slot("0"),)


@pytest.fixture
def grid(recipe):
    return make_grid(recipe, read_variants(INITS), (0,))


@pytest.fixture
def heard():
    """Signals do what they do on a terminal, also where these tests run in the background."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def made(grid, directory, behaviours=None, slots=ONE):
    display = make_display(len(grid), len(slots))
    failed = launch(grid, directory, fake_command(directory, behaviours), slots, display)
    return failed, {cell.label: read_run(directory / cell.place, cell.label) for cell in grid}


def test_all_runs_are_made_and_each_is_told_in_one_line(grid, tmp_path, capsys):
    failed, runs = made(grid, tmp_path)
    assert failed == 0
    assert {run.state for run in runs.values()} == {FINISHED}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines] == [
        f"{place}/3 {label}" for place, label in enumerate(INITS, 1)
    ]
    assert "accuracy 0.7" in lines[0]
    assert " left" in lines[0]
    assert " left" not in lines[-1]


def test_a_failed_run_is_named_and_the_rest_is_made(grid, tmp_path, capsys):
    behaviours = {grid[0].place: "fails", grid[1].place: "killed"}
    failed, runs = made(grid, tmp_path, behaviours)
    assert failed == 2
    assert [runs[label].state for label in INITS] == [FAILED, FAILED, FINISHED]
    assert runs["default"].reason == "config.optimizer.lr = 9.0: the loss is NaN"
    assert runs["conditioned"].reason.startswith("killed by SIGKILL")
    said = capsys.readouterr().out
    assert "1/3 default, seed 0: FAILED: config.optimizer.lr = 9.0: the loss is NaN" in said


def test_a_run_that_failed_and_then_ends_is_no_failure_any_more(grid, tmp_path):
    made(grid, tmp_path, {grid[0].place: "fails"})
    failed, runs = made(grid, tmp_path)
    assert failed == 0
    assert runs["default"].state == FINISHED


def test_a_run_that_cannot_be_started_does_not_stop_the_others(grid, tmp_path, capsys):
    (tmp_path / "default").write_text("a file where a directory should be")
    failed, _ = made(grid[1:], tmp_path)
    assert failed == 0
    failed = launch(grid, tmp_path, fake_command(tmp_path), ONE, make_display(len(grid), 1))
    assert failed == 1
    assert "default, seed 0: FAILED: cannot be started: " in capsys.readouterr().out


PARENT = """
import pathlib, sys
from condinit_jax.experiments import Cell, Slot, launch, make_display

cell = Cell("default", 0, 1e-3, "a", (), {})
words = ["sh", "-c", "echo $$; exec sleep 60"]
launch([cell], pathlib.Path(sys.argv[1]), lambda cell: words, [Slot("0")], make_display(1, 1))
"""


def test_a_directory_whose_runs_outlived_their_parent_is_refused(grid, tmp_path):
    """A parent killed by SIGKILL stops nobody: a second one must not write beside its runs."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)])
    output = tmp_path / "a" / "output.txt"
    for _ in range(1200):
        if output.exists() and output.read_text().endswith("\n"):
            break
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    with pytest.raises(UserError, match=r"are at work here; wait for them or stop them$"):
        made(grid, tmp_path)
    os.kill(int(output.read_text()), signal.SIGKILL)
    time.sleep(0.2)
    assert made(grid, tmp_path)[0] == 0


def test_runs_beside_one_another_have_cores_of_their_own(grid, tmp_path):
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("needs two cores")
    slots = [Slot("0", (cores[0],)), Slot("1", (cores[1],))]
    made(grid, tmp_path, slots=slots)
    used = [json.loads((tmp_path / cell.place / "cores").read_text()) for cell in grid]
    assert {tuple(found) for found in used} == {(cores[0],), (cores[1],)}
    assert sorted(os.sched_getaffinity(0)) == cores


def test_a_slots_variables_reach_its_run(grid, tmp_path):
    words = ["sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $JAX_COMPILATION_CACHE_DIR"']
    slot = Slot("7", (), {"CUDA_VISIBLE_DEVICES": "3"})
    launch(grid[:1], tmp_path, lambda cell: words, [slot], make_display(1, 1))
    said = (tmp_path / grid[0].place / "output.txt").read_text()
    assert said == f"3 {tmp_path / 'compiled' / '7'}\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupt_stops_every_run_and_waits_for_it(grid, tmp_path, number, heard):
    behaviours = {cell.place: "waits" for cell in grid}
    slots = [Slot(str(place)) for place in range(2)]
    waiting = [tmp_path / cell.place / "waiting" for cell in grid[:2]]

    def interrupt():
        for _ in range(1200):
            if all(file.exists() for file in waiting):
                break
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        made(grid, tmp_path, behaviours, slots)
    thread.join()
    states = [read_run(tmp_path / cell.place, cell.label) for cell in grid]
    assert [run.state for run in states] == [UNFINISHED] * 3
    assert [run.reason for run in states[:2]] == ["stopped at step 2 of 4"] * 2
    assert not (tmp_path / grid[2].place).exists()
    # And the same call goes on.
    failed, runs = made(grid, tmp_path, behaviours | {grid[2].place: "done"})
    assert failed == 0
    assert {run.state for run in runs.values()} == {FINISHED}


def test_a_comparison_under_nohup_outlives_its_terminal(grid, tmp_path, heard):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    words = ["sh", "-c", f"kill -HUP {os.getpid()}"]
    assert launch(grid[:1], tmp_path, lambda cell: words, ONE, make_display(1, 1)) == 0
