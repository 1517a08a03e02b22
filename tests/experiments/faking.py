"""Commands that make fake runs of a grid."""

import json
import pathlib
import sys

SCRIPT = pathlib.Path(__file__).with_name("fake_run.py")


def fake_command(directory, behaviours=None):
    """A command for `launch`; `behaviours` by place, where a run does not simply end."""

    def command(cell):
        file = directory / "configs" / f"{cell.place.replace('/', '-')}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(cell.config))
        behaviour = (behaviours or {}).get(cell.place, "done")
        return [sys.executable, str(SCRIPT), str(file), str(directory / cell.place), behaviour]

    return command
