"""The files of a probe: its table and its pictures, all of them or none."""

import math
import tempfile
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from condinit_jax.errors import UserError
from condinit_jax.spectra import Probe, plot_depth, plot_spectra, plot_steps, save_figure

PICTURES = tuple(
    f"{stem}.{kind}" for stem in ("depth", "steps", "spectra") for kind in ("png", "svg")
)
"""What this command may draw; a picture of another probe must not stand beside a new table."""


def write(probe: Probe, out: Path) -> list[Path]:
    """Writes `probe.csv`, and PNG and SVG of what the probe holds enough for.

    `depth` shows kappa(J) over the layers, `steps` over several steps, `spectra` all singular
    values where they were kept.

    Args:
        probe: What was measured.
        out: Directory; made if absent. Files of these names are replaced, and pictures of an
            earlier probe that this one has no figures for are removed; others stay.

    Returns:
        The files.

    Raises:
        UserError: If the directory cannot be made or written.
    """
    made = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out, prefix=".unfinished-") as name:
            unfinished = Path(name)
            probe.to_csv(unfinished / "probe.csv")
            for stem, draw in _plots(probe).items():
                save_figure(draw(probe), unfinished / stem)
            files = [file.replace(out / file.name) for file in sorted(unfinished.iterdir())]
        for stale in {out / name for name in PICTURES} - set(files):
            stale.unlink(missing_ok=True)
        return files
    except OSError as error:
        raise UserError(f"--out = {str(out)!r}: cannot be written ({error.strerror})") from error
    finally:
        if made and out.is_dir() and not any(out.iterdir()):
            out.rmdir()


def _plots(probe: Probe) -> dict[str, Callable[[Probe], Figure]]:
    """The pictures that a probe has the figures for, by name."""
    measured = [row for row in probe.rows if math.isfinite(row["kappa"] or math.inf)]
    plots: dict[str, Callable[[Probe], Figure]] = {}
    if measured:
        plots["depth"] = plot_depth
    if len({row["step"] for row in measured}) > 1:
        plots["steps"] = plot_steps
    if probe.spectra:
        plots["spectra"] = plot_spectra
    return plots
