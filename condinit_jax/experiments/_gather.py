"""Runs of a comparison read back from their directories, wherever they were made."""

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from condinit_jax.config import diff
from condinit_jax.errors import UserError
from condinit_jax.experiments._plan import Plan
from condinit_jax.experiments._run import FAILED, FINISHED, UNFINISHED, Run
from condinit_jax.methods import DEFAULT, METHODS, REFINE
from condinit_jax.refine import NONE, REFINERS
from condinit_jax.training.files import METRICS, read_rows
from condinit_jax.training.probe_rows import layer_kappas

FAILURE = "failure.json"
"""What the process that made the run leaves where it failed."""

METRIC = "accuracy"
"""What is compared where no run ended, and so none says."""

FREE = ("mesh.", "checkpoint.", "log_every", "data.workers")
"""Fields that may differ between machines: they change no figure of a run but its seconds."""


def gather(plan: Plan, directory: Path) -> list[Run]:
    """The runs of a plan.

    Args:
        plan: What was to be run.
        directory: Where.

    Returns:
        A run for every cell; one that was not begun is unfinished.

    Raises:
        UserError: If a directory holds a run with another config.
    """
    runs = []
    for cell in plan.cells:
        workdir = directory / cell.place
        run = read_run(workdir, cell.label, cell.config)
        lines = [line for line in diff(cell.config, run.config) if not line.startswith(FREE)]
        if lines:
            raise UserError(
                f"{workdir / 'config.json'}: config.{lines[0]} (of the comparison -> of this run); "
                "move it away or use another --workdir"
            )
        runs.append(run)
    return _same_metric(runs)


def find_runs(directories: Sequence[Path]) -> list[Run]:
    """All runs below some directories, named by what their configs say of the initialization.

    Args:
        directories: Where to look, at any depth.

    Returns:
        The runs by path.

    Raises:
        UserError: If there is none, if two are the same, or if they differ in a field that is not
            of the initialization, the seed or the learning rate.
    """
    for directory in directories:
        if not directory.is_dir():
            raise UserError(f"--workdir = {str(directory)!r}: no such directory")
    files = [file for directory in directories for file in sorted(directory.rglob("config.json"))]
    places = dict.fromkeys(file.parent for file in files if not _inside_run(file.parent))
    if not places:
        shown = ", ".join(map(str, directories))
        raise UserError(f"--workdir = {shown!r}: holds no run; give --init to make some")
    runs = [read_run(place) for place in places]
    _check_alike(runs)
    return _same_metric(runs)


def read_run(
    workdir: Path, label: str | None = None, planned: Mapping[str, Any] | None = None
) -> Run:
    """One run as its directory tells it.

    Args:
        workdir: The directory; it may hold half a run or nothing.
        label: Its name; None for one made of its config.
        planned: The config that it was to have, for what its directory does not tell.

    Returns:
        The run; one with a file that cannot be read, or that no run writes, counts as failed and
        names it.
    """
    try:
        return _read_run(workdir, label, planned)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = " ".join(f"{type(error).__name__} {error}".split())
        return Run(
            label=label or workdir.name,
            seed=_number((planned or {}).get("seed")),
            rate=float("nan") if planned is None else planned["optimizer"]["lr"],
            workdir=workdir,
            state=FAILED,
            reason=f"{workdir}: holds files that no run writes ({what}); move it away",
            steps=0,
            metric=METRIC,
            curve=(),
            losses=(),
            kappas={},
            seconds=0.0,
            config=planned or {},
            versions={},
        )


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _read_run(workdir: Path, label: str | None, planned: Mapping[str, Any] | None) -> Run:
    broken: list[str] = []
    config = _json(workdir / "config.json", broken) or planned or {}
    result = _json(workdir / "result.json", broken)
    versions = _json(workdir / "versions.json", broken) or {}
    failure = _json(workdir / FAILURE, broken) or {}
    rows = read_rows(workdir / METRICS)
    metric = result["best_metric"] if result is not None else METRIC
    evals = [row for row in rows if row["kind"] == "eval"]
    curve = {row["step"]: row[metric] for row in evals if metric in row}
    losses = {row["step"]: row["loss"] for row in rows if row["kind"] == "train" and "loss" in row}
    probes: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        if row["kind"] == "probe":
            probes.setdefault(row["step"], []).append(row)
    state, reason = _state(workdir, result, rows, config)
    if failure and result is None:
        state, reason = FAILED, str(failure.get("reason", "it says no reason"))
    if broken:
        state, reason = FAILED, f"{broken[0]}; move the run away and make it again"
    return Run(
        label=label or (label_of(config) if config else workdir.name),
        seed=config.get("seed", 0),
        rate=config.get("optimizer", {}).get("lr", float("nan")),
        workdir=workdir,
        state=state,
        reason=reason,
        steps=result["steps"] if result is not None else config.get("steps", 0),
        metric=metric,
        curve=tuple(sorted(curve.items())),
        losses=tuple(sorted(losses.items())),
        kappas={step: found for step, held in probes.items() if (found := layer_kappas(held))},
        seconds=result["seconds"] if result is not None else 0.0,
        config=config,
        versions=versions,
        examples=max((row.get("count", 0) for row in evals), default=0),
    )


def label_of(config: Mapping[str, Any]) -> str:
    """What a run is called that no plan names: its method, and arguments that are not as usual.

    Args:
        config: As `config.json` holds it.

    Returns:
        A label as `--init` reads it.

    Example:
        >>> label_of({"init": {"method": "conditioned", "kernels": ["query", "key"]}})
        'conditioned:kernels=query+key'
        >>> label_of({"init": {"method": "tied", "refine": {"name": "nio", "steps": 9}}})
        'tied:refine.name=nio:refine.steps=9'
    """
    init = dict(config.get("init", {}))
    refine = dict(init.pop(REFINE, None) or {})
    method, refiner = init.pop("method", DEFAULT), refine.pop("name", NONE)
    parts = [method, *_unusual(METHODS.get(method), init, "")]
    if refiner != NONE:
        named = _unusual(REFINERS.get(refiner), refine, f"{REFINE}.")
        parts += [f"{REFINE}.name={refiner}", *named]
    return ":".join(parts)


def _unusual(
    factory: Callable[..., Any] | None, arguments: Mapping[str, Any], prefix: str
) -> list[str]:
    """The arguments that differ from the factory's defaults, as a label has them."""
    known = inspect.signature(factory).parameters if factory else {}
    defaults = {name: parameter.default for name, parameter in known.items()}
    return [
        f"{prefix}{name}={_text(value)}"
        for name, value in arguments.items()
        if _text(value) != _text(defaults.get(name))
    ]


def _text(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _state(
    workdir: Path,
    result: Mapping[str, Any] | None,
    rows: Sequence[Mapping[str, Any]],
    config: Mapping[str, Any],
) -> tuple[Any, str]:
    if result is not None:
        return FINISHED, ""
    if rows and rows[-1]["kind"] == "failed":
        return FAILED, str(rows[-1]["reason"])
    if not workdir.exists():
        return UNFINISHED, "not started"
    step = max((row["step"] for row in rows), default=0)
    steps = config.get("steps", 0)
    return UNFINISHED, f"stopped at step {step}" + (f" of {steps}" if steps else "")


def _json(path: Path, broken: list[str]) -> dict[str, Any] | None:
    """A JSON document; None where there is no such file, and where it adds itself to `broken`."""
    try:
        held = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        broken.append(f"{path}: cannot be read ({getattr(error, 'strerror', None) or 'no JSON'})")
        return None
    if not isinstance(held, dict):
        broken.append(f"{path}: cannot be read (no object)")
        return None
    return held


def _inside_run(place: Path) -> bool:
    """Whether this is a directory of a run's own, such as one of its checkpoints."""
    return any((parent / METRICS).exists() for parent in place.parents)


def _check_alike(runs: Sequence[Run]) -> None:
    whole = [run for run in runs if run.config]
    first = (whole or runs)[0]
    same: dict[tuple[str, int, float], Path] = {}
    for run in whole:
        for line in diff(first.config, run.config):
            path = line.partition(":")[0]
            varied = path.startswith(("init.", *FREE)) or path in ("seed", "optimizer.lr")
            if not varied:
                raise UserError(
                    f"config.{line}: in which {run.workdir} differs from {first.workdir}; "
                    "these runs do not belong into one comparison"
                )
        cell = (run.label, run.seed, run.rate)
        if cell in same:
            raise UserError(
                f"{run.workdir}: is the same run as {same[cell]} ({run.label}, seed {run.seed}); "
                "leave one of them out"
            )
        same[cell] = run.workdir


def _same_metric(runs: list[Run]) -> list[Run]:
    """The runs, refused where those that ended were judged by different metrics."""
    metrics = dict.fromkeys(run.metric for run in runs if run.state == FINISHED)
    if len(metrics) > 1:
        raise UserError(f"these runs are judged by different metrics: {', '.join(metrics)}")
    return runs
