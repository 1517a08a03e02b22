"""Runs read back from their directories."""

import json
import shutil

import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import (
    FAILED,
    FINISHED,
    UNFINISHED,
    Plan,
    find_runs,
    gather,
    make_grid,
    read_run,
    read_variants,
)
from tests.experiments import fake_run

INITS = ("default", "conditioned:value=joint")


@pytest.fixture
def plan(recipe):
    variants = read_variants(INITS)
    cells = make_grid(recipe, variants, (0, 1), (1e-3, 1e-2))
    return Plan("small.py", INITS, (), (), tuple(cells))


@pytest.fixture
def directory(plan, tmp_path):
    for number, cell in enumerate(plan.cells):
        file = tmp_path / f"{number}.json"
        file.write_text(json.dumps(cell.config))
        fake_run.main(file, tmp_path / "runs" / cell.place)
    return tmp_path / "runs"


def change(file, **entries):
    file.write_text(json.dumps(json.loads(file.read_text()) | entries))


def test_a_run_is_what_its_files_say(plan, directory):
    run = gather(plan, directory)[1]
    assert (run.label, run.seed, run.rate, run.state) == (INITS[1], 0, 1e-3, FINISHED)
    assert [step for step, _ in run.curve] == [2, 4]
    assert run.losses == ((2, 1.0), (4, 0.5))
    assert run.kappas == {0: {0: 1e5}}
    assert (run.metric, run.steps, run.seconds, run.examples) == ("accuracy", 4, 12.5, 20)
    assert run.versions["jax"] == "0.10.2"


def test_directories_alone_give_the_same_runs(plan, directory, tmp_path):
    """Wherever they were made: half of them are moved to another place."""
    other = tmp_path / "elsewhere" / "deep"
    other.mkdir(parents=True)
    shutil.move(directory / "default", other / "a")
    found = find_runs([directory, tmp_path / "elsewhere"])
    cells = {(run.label, run.seed, run.rate): run.curve for run in found}
    shutil.move(other / "a", directory / "default")
    assert cells == {(run.label, run.seed, run.rate): run.curve for run in gather(plan, directory)}


def test_what_was_not_begun_or_not_ended_is_unfinished(plan, directory):
    shutil.rmtree(directory / plan.cells[0].place)
    (directory / plan.cells[1].place / "result.json").unlink()
    runs = gather(plan, directory)
    assert [run.state for run in runs[:3]] == [UNFINISHED, UNFINISHED, FINISHED]
    assert [run.reason for run in runs[:2]] == ["not started", "stopped at step 4 of 4"]


def test_a_loss_that_became_nan_is_a_failure_with_its_reason(plan, directory):
    workdir = directory / plan.cells[0].place
    (workdir / "result.json").unlink()
    with (workdir / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": 3, "kind": "failed", "reason": "loss is nan"}) + "\n")
    run = gather(plan, directory)[0]
    assert (run.state, run.reason) == (FAILED, "loss is nan")


@pytest.mark.parametrize("name", ["config.json", "result.json", "versions.json"])
@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_half_written_file_is_named_and_the_others_are_read(plan, directory, name, text):
    (directory / plan.cells[0].place / name).write_text(text)
    for runs in (gather(plan, directory), find_runs([directory])):
        broken = [run for run in runs if run.state != FINISHED]
        assert [run.state for run in broken] == [FAILED]
        assert f"{name}: cannot be read" in broken[0].reason


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("result.json", "{}"),
        ("result.json", '{"best_metric": "accuracy"}'),
        ("config.json", '{"optimizer": 3}'),
        ("metrics.jsonl", '{"step": 2}\n'),
        ("metrics.jsonl", "3\n"),
    ],
)
def test_files_that_no_run_writes_are_named_and_the_others_are_read(plan, directory, name, text):
    (directory / plan.cells[0].place / name).write_text(text)
    run, *others = gather(plan, directory) if name != "config.json" else find_runs([directory])
    broken = [run for run in (run, *others) if run.state != FINISHED]
    assert [run.state for run in broken] == [FAILED]
    assert str(directory / plan.cells[0].place) in broken[0].reason


def test_a_last_line_cut_short_is_left_out(plan, directory):
    with (directory / plan.cells[0].place / "metrics.jsonl").open("a") as file:
        file.write('{"step": 6, "kind": "ev')
    assert gather(plan, directory)[0].curve[-1][0] == 4


def test_a_run_with_another_config_in_its_place_is_named(plan, directory):
    workdir = directory / plan.cells[2].place
    change(workdir / "config.json", batch_size=16)
    message = rf"^{workdir}/config\.json: config\.batch_size: 8 -> 16 .*use another --workdir$"
    with pytest.raises(UserError, match=message):
        gather(plan, directory)


def test_runs_that_do_not_belong_together_are_named(plan, directory):
    workdir = directory / plan.cells[2].place
    change(workdir / "config.json", batch_size=16)
    message = r"^config\.batch_size: .*differs.*; these runs do not belong into one comparison$"
    with pytest.raises(UserError, match=message):
        find_runs([directory])


def test_how_a_machine_was_used_may_differ(plan, directory):
    change(directory / plan.cells[2].place / "config.json", mesh={"data": 8, "fsdp": 1})
    assert len(gather(plan, directory)) == len(find_runs([directory])) == len(plan.cells)


def test_the_same_run_twice_is_named(directory, plan):
    shutil.copytree(directory / plan.cells[0].place, directory / "copy")
    with pytest.raises(UserError, match=r"is the same run as .*leave one of them out$"):
        find_runs([directory])


def test_a_directory_without_runs_is_named(tmp_path):
    with pytest.raises(UserError, match=r"holds no run; give --init to make some$"):
        find_runs([tmp_path])
    with pytest.raises(UserError, match=r"no such directory$"):
        find_runs([tmp_path / "nowhere"])


def test_a_run_of_epochs_says_where_it_stands(tmp_path):
    tmp_path.joinpath("config.json").write_text(json.dumps({"steps": 0, "seed": 3}))
    run = read_run(tmp_path, "a")
    assert (run.state, run.reason, run.seed) == (UNFINISHED, "stopped at step 0", 3)
