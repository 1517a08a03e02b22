import dataclasses
import io

import pytest
from rich.console import Console

from condinit_jax.training.progress import (
    BarProgress,
    PlainProgress,
    clock_text,
    default_progress,
    result_text,
    row_text,
)
from condinit_jax.training.result import Result

TRAIN = {
    "step": 50,
    "kind": "train",
    "loss": 0.123456,
    "accuracy": 0.5,
    "images_per_second": 12345.6,
}
EVAL = {"step": 50, "kind": "eval", "loss": 0.2, "accuracy": 0.25, "count": 1000}
RESULT = Result(
    steps=100,
    metrics={"loss": 0.5, "accuracy": 0.875, "count": 1000},
    best_metric="accuracy",
    best_value=0.9,
    best_step=50,
    seconds=61.0,
    images_per_second=2000.0,
    corrupt=0,
    workdir="/runs/a",
)


def _follow(progress):
    progress.say("hello")
    progress.begin(0, 100)
    progress.advance(50)
    progress.row(TRAIN, 3600.0)
    progress.row(EVAL, 3600.0)
    progress.result(RESULT)
    progress.close()


def test_a_result_says_what_its_probes_took():
    assert " images/s=2000 probes=1.2s " in result_text(
        dataclasses.replace(RESULT, probe_seconds=1.234)
    )


def test_a_log_gets_one_plain_line_per_event(capsys):
    _follow(PlainProgress())
    assert capsys.readouterr().out.splitlines() == [
        "hello",
        "train step=50/100 loss=0.1235 accuracy=0.5000 images/s=12346 left=1:00:00",
        "eval step=50/100 loss=0.2 accuracy=0.2500 examples=1000 left=1:00:00",
        "result steps=100 loss=0.5 accuracy=0.8750 examples=1000 best_accuracy=0.9000 "
        "best_step=50 seconds=0:01:01 images/s=2000 corrupt=0 workdir=/runs/a",
    ]


def test_a_terminal_gets_a_bar_with_the_figures_and_a_table():
    out = io.StringIO()
    _follow(BarProgress(Console(file=out, force_terminal=True, width=110)))
    text = out.getvalue()
    for part in ("hello", "step 50/100", "loss=0.1235", "accuracy=0.5000", "left=1:00:00"):
        assert part in text
    assert "eval step=50/100 loss=0.2" in text
    assert "best_accuracy" in text


def test_output_that_is_no_terminal_gets_plain_lines(capsys):
    assert type(default_progress()) is PlainProgress


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (59.6, "0:01:00"), (360000, "100:00:00")]
)
def test_durations(seconds, text):
    assert clock_text(seconds) == text


def test_an_unknown_time_left_is_left_out():
    assert "left" not in row_text(EVAL, 100, float("inf"))


def test_a_workdir_with_spaces_and_brackets_is_shown_as_it_is(capsys):
    result = dataclasses.replace(RESULT, workdir="/home/me/my runs [/b]")
    out = io.StringIO()
    BarProgress(Console(file=out, force_terminal=True, width=110)).result(result)
    assert "/home/me/my runs [/b]" in out.getvalue()
    PlainProgress().result(result)
    assert capsys.readouterr().out.endswith(" workdir=/home/me/my runs [/b]\n")
