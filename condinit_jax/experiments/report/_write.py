"""The files of a report, all of them or none."""

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path

from condinit_jax.errors import UserError
from condinit_jax.experiments._comparison import Comparison
from condinit_jax.experiments.report._csv import methods_csv, runs_csv
from condinit_jax.experiments.report._document import make_document
from condinit_jax.experiments.report._html import page
from condinit_jax.experiments.report._markdown import markdown


def write_report(
    comparison: Comparison, verdict: Sequence[str], directory: str | os.PathLike[str]
) -> list[Path]:
    """Writes the report of a comparison.

    The same comparison gives the same files.

    Args:
        comparison: Its figures.
        verdict: Its words, the most important sentence first.
        directory: Where; made if absent. Files of an earlier report are replaced.

    Returns:
        Paths of `report.html` (one file with its pictures, for a browser), `report.md` (the same
        without pictures), `runs.csv` (a row per run) and `methods.csv` (a row per method and
        reference).

    Raises:
        UserError: If the files cannot be written; then those of an earlier report are left.

    Example:
        >>> import tempfile
        >>> from condinit_jax.experiments import Comparison
        >>> from condinit_jax.experiments.report import write_report
        >>> nothing = Comparison("vit", "", "accuracy", (), (), (), (), (), {}, {}, ())
        >>> with tempfile.TemporaryDirectory() as directory:
        ...     [path.name for path in write_report(nothing, ["No run yet."], directory)]
        ['report.html', 'report.md', 'runs.csv', 'methods.csv']
    """
    document = make_document(comparison, verdict)
    texts = {
        "report.html": page(document),
        "report.md": markdown(document),
        "runs.csv": runs_csv(comparison),
        "methods.csv": methods_csv(comparison),
    }
    directory = Path(directory)
    paths = [directory / name for name in texts]
    besides = [path.with_name(path.name + ".tmp") for path in paths]
    for path in paths:
        if path.is_dir():
            raise UserError(
                f"{path}: is a directory, and the report has a file there; move it away"
            )
    at = directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for at, text in zip(besides, texts.values(), strict=True):
            # Paths of runs may hold bytes that are no text.
            at.write_text(text, encoding="utf-8", errors="replace")
        for beside, at in zip(besides, paths, strict=True):
            os.replace(beside, at)
    except OSError as error:
        raise UserError(f"{at}: {error.strerror}; give a directory to write to") from error
    finally:
        for beside in besides:
            with contextlib.suppress(OSError):
                beside.unlink()
    return paths
