"""The README's two commands in a fresh clone with fresh virtual environments, timed.

    python benchmarks/clean_clone.py [--python python3.12] [--write]

Clones the committed state of this repository into a temporary directory, makes one new virtual
environment for each command, and runs the commands exactly as README.md has them. `--write` puts
the times into README.md. Fails if a command fails.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from readme_section import README, replace_section

SECTIONS = ("time_train", "time_test")


def commands() -> list[str]:
    """The two commands at the top of README.md."""
    return re.findall(r"```bash\n(pip install .*? && .*?)\n```", README.read_text())


def timed(command: str, clone: pathlib.Path, python: str, venv: pathlib.Path) -> dict[str, float]:
    """Seconds that each half of `install && run` takes in a new virtual environment."""
    subprocess.run([python, "-m", "venv", str(venv)], check=True)
    environment = os.environ | {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    seconds = {}
    for part, line in zip(("install", "run"), command.split(" && "), strict=True):
        start = time.perf_counter()
        subprocess.run(line, shell=True, cwd=clone, env=environment, check=True)
        seconds[part] = time.perf_counter() - start
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter of the environments")
    parser.add_argument("--write", action="store_true", help="put the times into README.md")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        clone = pathlib.Path(directory) / "clone"
        subprocess.run(["git", "clone", "-q", str(README.parent), str(clone)], check=True)
        for section, command in zip(SECTIONS, commands(), strict=True):
            venv = pathlib.Path(directory) / section
            seconds = timed(command, clone, arguments.python, venv)
            text = (
                f"takes {seconds['run']:.0f} s on {os.cpu_count()} CPU cores, after "
                f"{seconds['install']:.0f} s of installing."
            )
            print(f"{command}: {text}", flush=True)
            if arguments.write:
                replace_section(section, text)


if __name__ == "__main__":
    main()
