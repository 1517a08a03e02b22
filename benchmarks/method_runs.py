"""The default run with every initialization method over some seeds: a table in docs/methods.md.

    python benchmarks/method_runs.py [--seeds 3] [--jobs 2] [--workdir runs/methods] [--write]

Each cell is `python train.py --config.init.method=M --config.seed=S` and what `CELLS` lists beside
it, such as the residual wiring that a method's paper trains with; probes are off. Within a seed the
data order is the same for all, and so are parameters that a method does not touch. `--jobs` cells
run at once, each on cores of its own. Finished cells are not run again, interrupted ones go on. The
teacher of weight selection is a run of twice the width, the "default" one of seed 100.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

from readme_section import replace_section

from condinit_jax.methods import METHODS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "methods.md"
BASELINE = "truncated_normal"
EARLY = 100
TEACHER = ["init.method=default", "model.width=128", "model.num_heads=8"]
GRID = ("model.pool=gap", "model.positions=sincos2d")
HYBRID = ("init.query_key=conditioned", "init.value=mimetic", "init.out=mimetic")


class Cell(NamedTuple):
    """One row of the table.

    Attributes:
        name: What the row is called.
        flags: Assignments to the config.
    """

    name: str
    flags: tuple[str, ...]


def cells(teacher: pathlib.Path) -> list[Cell]:
    """Every method with its defaults, then the ablations and what needs another model."""
    others = ("weight_selection", "impulse", "hybrid")
    found = [Cell(name, (f"init.method={name}",)) for name in METHODS if name not in others]
    found.append(
        Cell("weight_selection", ("init.method=weight_selection", f"init.teacher={teacher}"))
    )

    def more(name: str, *flags: str) -> None:
        found.append(Cell(name, flags))

    more("conditioned, joint value", "init.method=conditioned", "init.value=joint")
    more("conditioned, Q and K only", "init.method=conditioned", "init.kernels=query,key")
    more("conditioned, V only", "init.method=conditioned", "init.kernels=value")
    more("conditioned Q and K, mimetic V and O", "init.method=hybrid", *HYBRID)
    for method in (BASELINE, "conditioned", "mimetic", "impulse"):
        more(f"{method}; mean pooling, fixed positions", f"init.method={method}", *GRID)
    for method in (BASELINE, "deepnorm"):
        more(f"{method}; DeepNorm's residuals", f"init.method={method}", "model.residual=deepnorm")
    for method in (BASELINE, "t_fixup"):
        flags = (f"init.method={method}", "model.norm=none", "schedule.warmup_steps=0")
        more(f"{method}; no norms, no warm-up", *flags)
    for method in (BASELINE, "conditioned", "skipless"):
        more(f"{method}; no skips", f"init.method={method}", "model.residual=skipless")
    for switch in ("gray_svd", "gray_dct", "embedded"):
        flags = (f"init.method={BASELINE}", f"model.token_conditioning={switch}")
        more(f"{BASELINE}; tokens {switch}", *flags)
    return found


def run(flags: list[str], workdir: pathlib.Path, cores: set[int]) -> bool:
    """One run on some cores; True if it ended well.

    Programs that XLA compiled are kept for the runs that share these cores (two processes that
    write one cache can read half a file).
    """
    if (workdir / "result.json").exists():
        return True
    workdir.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(ROOT / "train.py"), "--workdir", str(workdir)]
    command += [f"--config.{flag}" for flag in ["probe.every=0", *flags]]
    cache = workdir.parent / f"compiled-{min(cores)}"
    with open(workdir.with_suffix(".log"), "w") as log:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": str(cache)},
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
    return done.returncode == 0


def run_all(rows: list[Cell], seeds: int, workdir: pathlib.Path, jobs: int) -> None:
    """Every cell, seeds outermost, so that slow hours fall on all methods."""
    cores = sorted(os.sched_getaffinity(0))
    free: queue.SimpleQueue[set[int]] = queue.SimpleQueue()
    for job in range(jobs):
        free.put(set(cores[job::jobs]) or set(cores))
    todo = [(cell, seed) for seed in range(seeds) for cell in rows]
    began, done = time.perf_counter(), 0

    def one(cell: Cell, seed: int) -> tuple[str, bool]:
        own = free.get()
        try:
            flags = [*cell.flags, f"seed={seed}"]
            return f"{cell.name}, seed {seed}", run(flags, place(workdir, cell, seed), own)
        finally:
            free.put(own)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, *item) for item in todo]):
            name, good = future.result()
            done += 1
            left = (time.perf_counter() - began) / done * (len(todo) - done) / 60
            state = "" if good else " FAILED"
            print(f"{done}/{len(todo)} {name}{state}; {left:.0f} min left", flush=True)


def place(workdir: pathlib.Path, cell: Cell, seed: int) -> pathlib.Path:
    """The directory of one run."""
    words = "".join(c if c.isalnum() else "_" for c in cell.name)
    return workdir / f"{words}-{seed}"


def accuracies(run: pathlib.Path) -> dict[int, float] | None:
    """Test accuracy by evaluated step; None where the run did not end."""
    if not (run / "result.json").exists():
        return None
    rows = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {row["step"]: row["accuracy"] for row in rows if row["kind"] == "eval"}


def spread(values: list[float]) -> str:
    """Mean and standard deviation in per cent."""
    values = [100 * value for value in values]
    deviation = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{deviation}"


def table(rows: list[Cell], seeds: int, workdir: pathlib.Path) -> str:
    """The comparison in Markdown, best final accuracy first."""
    base = Cell(BASELINE, (f"init.method={BASELINE}",))
    goals = [accuracies(place(workdir, base, seed)) for seed in range(seeds)]
    lines = []
    for cell in rows:
        runs = [accuracies(place(workdir, cell, seed)) for seed in range(seeds)]
        ended = [found for found in runs if found]
        if not ended:
            lines.append((-1.0, f"| {cell.name} | 0 | | | |"))
            continue
        shares = []
        for found, goal in zip(runs, goals, strict=True):
            if not found or not goal:
                continue
            last = max(goal)
            step = next((step for step, value in found.items() if value >= goal[last]), None)
            shares.append("never" if step is None else f"{100 * step / last:.0f} %")
        final = [found[max(found)] for found in ended]
        early = [found[EARLY] for found in ended]
        text = (
            f"| {cell.name} | {len(ended)} | {spread(early)} | {spread(final)} | "
            f"{', '.join(shares)} |"
        )
        lines.append((statistics.mean(final), text))
    titles = (
        f"| method | runs that ended | test accuracy at step {EARLY}, % | at the end, % | "
        f"share of the steps to the same seed's final {BASELINE} accuracy |"
    )
    body = [text for _, text in sorted(lines, key=lambda line: -line[0])]
    note = "Mean ± standard deviation over the seeds of the runs that ended; best first."
    return "\n".join([titles, "|---|---|---|---|---|", *body, "", note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once")
    parser.add_argument("--workdir", type=pathlib.Path, default=ROOT / "runs" / "methods")
    parser.add_argument("--write", action="store_true", help="update docs/methods.md")
    flags = parser.parse_args()
    workdir = flags.workdir.absolute()
    teacher = workdir / "teacher"
    rows = cells(teacher)
    if not run([*TEACHER, "seed=100"], teacher, os.sched_getaffinity(0)):
        raise SystemExit(f"the teacher's run failed: see {teacher}.log")
    run_all(rows, flags.seeds, workdir, flags.jobs)
    text = table(rows, flags.seeds, workdir)
    print(text)
    if flags.write:
        replace_section("runs", text, PAGE)


if __name__ == "__main__":
    main()
