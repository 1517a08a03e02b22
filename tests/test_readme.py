"""The README's Python runs as it stands there, and its output is what it shows."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```(\n\n```text\n(.*?)```)?", README, re.DOTALL)
SNIPPETS = [block[1:] for block in BLOCKS if block[0] == "python"]


def test_there_is_a_snippet_for_each_kind_of_reader():
    text = "".join(code for code, *_ in SNIPPETS)
    for call in (
        "kernel_init=condinit_jax.conditioned()",
        "reinitialize(",
        "train(",
        "jacobian_spectra(",
        "probe_model(",
    ):
        assert call in text


@pytest.mark.parametrize("index", range(len(SNIPPETS)))
def test_snippet_runs_and_prints_what_it_shows(index, tmp_path):
    code, has_output, shown = SNIPPETS[index]
    (tmp_path / "configs").symlink_to(ROOT / "configs")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if has_output:
        assert done.stdout
        assert done.stdout == shown


def test_its_two_commands_are_what_continuous_integration_runs():
    script = (ROOT / ".ci/run").read_text()
    commands = re.findall(r"```bash\npip install (.*?) && (.*?)\n```", README)
    assert len(commands) == 2
    (_, train_command), (install, test_command) = commands
    assert f"pip install -q {install}\n" in script
    assert f"\n{test_command}\n" in script
    assert f"\n{train_command} " in script


def test_every_config_that_it_names_exists():
    for file in re.findall(r"configs/\w+\.py", README):
        assert (ROOT / file).is_file()
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (ROOT / picture).is_file()
