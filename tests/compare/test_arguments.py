"""What the command line may say."""

from pathlib import Path

import pytest

from condinit_jax.compare._arguments import read
from condinit_jax.errors import UserError


def test_a_command_is_read_whole():
    what = "--config a.py:x --config.steps=9 --init default,xavier,conditioned:value=joint"
    how = "--seeds 5 --lr 1e-3,3e-4 --against default,xavier --workdir runs/a --jobs 2"
    request = read(f"{what} {how}".split())
    assert request.recipe == "a.py:x"
    assert request.assignments == ("steps=9",)
    assert [variant.label for variant in request.variants] == [
        "default",
        "xavier_uniform",
        "conditioned:value=joint",
    ]
    assert request.seeds == (0, 1, 2, 3, 4)
    assert request.rates == (1e-3, 3e-4)
    assert request.against == ("default", "xavier_uniform")
    assert (request.workdirs, request.jobs) == ((Path("runs/a"),), 2)


@pytest.mark.parametrize(
    ("text", "seeds"), [("3", (0, 1, 2)), ("7,", (7,)), ("4,2,4", (4, 2)), ("0,1", (0, 1))]
)
def test_a_number_is_a_count_and_a_list_are_seeds(text, seeds):
    assert read(["--init", "default", "--seeds", text]).seeds == seeds


@pytest.mark.parametrize(
    "argv",
    [
        "--init default,conditioned --seeds 2",
        "--init default --seeds 4,7 --lr 1e-3,0.01 --config b.py",
        "--init default,tied --against tied --config.data.dir 'a' --config.steps=9",
    ],
)
def test_the_command_that_a_report_shows_asks_for_the_same(argv):
    request = read(argv.replace("'", "").split())
    words = request.command().split()
    assert words[:3] == ["python", "-m", "condinit_jax.compare"]
    assert read(words[3:]) == request


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("", r"--init: needed, as in --init default,conditioned, or --report"),
        ("--init", r"--init"),
        ("--init ,", r"needs a name at least"),
        ("--init defualt", r"--init = 'defualt': unknown method; did you mean default\?"),
        ("--init default --seeds 0", r"'0': must be a count such as 5, or seeds such as 0,1,7"),
        ("--init default --seeds x", r"'x': must be a count"),
        ("--init default --seeds=-1,2", r"'-1,2': must be a count"),
        ("--init default --lr 0", r"'0': must be numbers above 0"),
        ("--init default --lr nan", r"'nan': must be numbers above 0"),
        ("--init default --jobs 0", r"'0': must be a number of at least 1"),
        ("--init default --against tied", r"--against = 'tied': is not among --init"),
        ("--init default --against tide", r"--against = 'tide': unknown method; did you mean tied"),
        ("--init default --workdir a --workdir b", r"--workdir: one, where runs are made"),
        ("--init default --config.seed=3", r"--config\.seed: give it as --seeds"),
        ("--init default --config.optimizer.lr=3", r"--config\.optimizer\.lr: give it as --lr"),
        ("--init default --config.init.value=joint", r"give it with its method"),
        ("--init default --dry-run --report", r"--report: does not go with --dry-run"),
        ("--report --seeds 3", r"--seeds: is for runs to make"),
        ("--report --config.steps=3", r"--config\.steps=3: is for runs to make"),
        ("--init default --seed 3", r"--seed: unknown argument"),
    ],
)
def test_mistakes_are_one_line_that_names_the_flag(argv, message):
    with pytest.raises(UserError, match=message) as caught:
        read(argv.split())
    assert "\n" not in str(caught.value)
