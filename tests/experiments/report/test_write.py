"""Reports on disk: all files or none, the same for the same runs."""

import os

import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import Comparison
from condinit_jax.experiments.report import _write, write_report
from tests.experiments.report.comparisons import make_comparison

NAMES = ["report.html", "report.md", "runs.csv", "methods.csv"]


@pytest.fixture
def small():
    return make_comparison(("a", "b"), seeds=2, probes=False)


def test_four_files_are_written_into_a_new_directory(tmp_path, small):
    paths = write_report(small, ("so",), tmp_path / "new" / "place")
    assert [path.name for path in paths] == NAMES
    assert sorted(os.listdir(tmp_path / "new" / "place")) == sorted(NAMES)


def test_the_same_comparison_gives_the_same_bytes(tmp_path, small):
    first = [path.read_bytes() for path in write_report(small, ("so",), tmp_path)]
    again = [path.read_bytes() for path in write_report(small, ("so",), str(tmp_path))]
    assert first == again


@pytest.mark.parametrize("broken", range(4))
def test_a_failing_write_leaves_the_former_report(tmp_path, monkeypatch, broken):
    empty = Comparison("old", "", "accuracy", (), (), (), (), (), {}, {}, ())
    former = {path: path.read_bytes() for path in write_report(empty, (), tmp_path)}
    name = NAMES[broken] + ".tmp"
    write = _write.Path.write_text

    def full(path, text, **options):
        if path.name == name:
            write(path, text[: len(text) // 2], **options)
            raise OSError(28, "No space left on device")
        return write(path, text, **options)

    monkeypatch.setattr(_write.Path, "write_text", full)
    new = Comparison("new", "", "accuracy", (), (), (), (), (), {}, {}, ())
    with pytest.raises(UserError, match=rf"{name}: No space left on device; give a directory"):
        write_report(new, (), tmp_path)
    assert {path: path.read_bytes() for path in sorted(tmp_path.iterdir())} == former


def test_an_error_while_drawing_writes_nothing(tmp_path, monkeypatch, small):
    def fail(document):
        raise RuntimeError

    monkeypatch.setattr(_write, "page", fail)
    with pytest.raises(RuntimeError):
        write_report(small, (), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_in_place_of_the_directory_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    empty = Comparison("t", "", "accuracy", (), (), (), (), (), {}, {}, ())
    with pytest.raises(UserError, match=r"file: .*give a directory to write to"):
        write_report(empty, (), tmp_path / "file")


def test_the_files_are_utf8_whatever_the_locale(tmp_path):
    made = Comparison("κ", "", "accuracy", (), (), (), (), (), {}, {}, ("±",))
    for path in write_report(made, ("ß",), tmp_path)[:2]:
        assert "κ" in path.read_text(encoding="utf-8")


def test_a_directory_in_place_of_a_file_is_named_before_anything_is_written(tmp_path):
    (tmp_path / "methods.csv").mkdir()
    empty = Comparison("t", "", "accuracy", (), (), (), (), (), {}, {}, ())
    with pytest.raises(UserError, match=r"methods\.csv: is a directory"):
        write_report(empty, (), tmp_path)
    assert os.listdir(tmp_path) == ["methods.csv"]


def test_a_path_that_is_no_text_is_shown_all_the_same(tmp_path):
    made = make_comparison(("a\udcff",), seeds=1)
    page, *_ = write_report(made, ("so",), tmp_path)
    assert "runs/compare/<wbr>a?," in page.read_text(encoding="utf-8").replace(
        "runs/<wbr>", "runs/"
    )
