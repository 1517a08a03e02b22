"""`probe_run`: what the command does with `--workdir`, from Python."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.probe._arguments import ALL, LAST, RECIPE, Request
from condinit_jax.probe._command import measured
from condinit_jax.probe._subjects import subjects
from condinit_jax.spectra import Probe


def probe_run(
    workdir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    steps: int | Sequence[int] | str = LAST,
    examples: int = 1,
    **options: Any,
) -> Probe:
    """The condition numbers of a run's attention, out of its checkpoints.

    What attention reads comes from the first examples of the run's evaluation split. The run is not
    changed, and may be going on.

    Args:
        workdir: Directory of a run, or several.
        steps: Steps of its checkpoints: one, several, "last" or "all".
        examples: Examples to probe.
        **options: Of `condinit_jax.spectra.probe_blocks` and, through it, of `jacobian_spectrum`.

    Returns:
        The probe: a row for each run, step, layer, head and example.

    Raises:
        UserError: If a run or a step is not there, or see `probe_blocks`.

    Example:
        >>> from condinit_jax.probe import probe_run
        >>> probe_run("runs/nowhere")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        condinit_jax.errors.UserError: --workdir = 'runs/nowhere': holds no run ...
    """
    several = [workdir] if isinstance(workdir, str | os.PathLike) else workdir
    wanted: Any = steps
    if not isinstance(steps, str):
        wanted = tuple(int(step) for step in np.atleast_1d(steps))
    if isinstance(wanted, str) and wanted not in (LAST, ALL):
        raise UserError(f"steps = {wanted!r}: must be numbers, {LAST!r} or {ALL!r}")
    request = Request(
        recipe=RECIPE,
        assignments=[],
        inits=(),
        workdirs=tuple(Path(run).expanduser() for run in several),
        steps=wanted,
        out=None,
        examples=examples,
        options={"tokens": None, **options},
    )
    return Probe.concat(measured(subject, request) for subject in subjects(request))
