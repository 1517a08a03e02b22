"""Several seeds of one model: one program over all of them, or processes beside one another?

    python benchmarks/seeds_at_once.py [--seeds 4] [--steps 30] [--config configs/vit.py] [--write]

Training steps of the recipe per second, all seeds together, each way on the same cores:

- "in turn": one process on all cores, one seed at a time;
- "vmap": one process on all cores, `jax.vmap` of the step over the seeds' states and batches;
- "a process per core": as many processes as cores, each on one of them, one seed at a time. This is
  `python -m condinit_jax.compare --jobs CORES`.

Compilation and the making of batches are left out; every seed has its own parameters, batches and
keys. A repetition measures all ways one after the other; the table has the medians.
"""

import argparse
import functools
import os
import pathlib
import statistics
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from readme_section import replace_section

from condinit_jax import config as configs
from condinit_jax import methods, tasks
from condinit_jax.training.optimizer import build_optimizer
from condinit_jax.training.schedule import build_schedule
from condinit_jax.training.state import init_state
from condinit_jax.training.step import train_step

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = sorted(os.sched_getaffinity(0))
READY = "ready"


def measured(recipe: str, seeds: int, steps: int, together: bool, wait: bool) -> float:
    """Steps per second of all seeds together in this process."""
    run = configs.parse(configs.load(recipe, directories=(pathlib.Path(), ROOT)))
    task = tasks.build(run)
    schedule = build_schedule(run.schedule, run.optimizer.lr, 1000)
    optimizer = build_optimizer(run.optimizer, schedule)
    method = methods.build(run.init, task.facts())
    draw = functools.partial(
        init_state, task=task, optimizer=optimizer, method=method, average=run.ema_decay > 0
    )
    draw = jax.jit(draw)
    step = functools.partial(train_step, task=task, optimizer=optimizer, schedule=schedule)
    keys = [jax.random.key(seed) for seed in range(seeds)]
    states = [draw(key) for key in keys]
    stream = task.train_batches(0)
    batches = [jax.tree.map(jnp.asarray, next(stream)) for _ in keys]
    stream.close()
    if together:
        states = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)]
        batches = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)]
        keys = [jnp.stack(keys)]
        step = jax.vmap(step)
    compiled = jax.jit(step, donate_argnums=0)
    for place, state in enumerate(states):
        states[place], _ = compiled(state, batches[place], keys[place])
    jax.block_until_ready(states)
    if wait:
        # All processes measure at the same time.
        print(READY, flush=True)
        sys.stdin.readline()
    began = time.perf_counter()
    for place, state in enumerate(states):
        for _ in range(steps):
            state, figures = compiled(state, batches[place], keys[place])
        jax.block_until_ready((state, figures))
    return seeds * steps / (time.perf_counter() - began)


def processes(count: int, flags: argparse.Namespace) -> float:
    """Steps per second of processes beside one another, each on cores of its own."""
    shares = np.array_split(range(flags.seeds), count)
    command = [sys.executable, __file__, "--child", "--config", flags.config]
    command += ["--steps", str(flags.steps)]
    jobs = []
    for place, share in enumerate(shares):
        # The process inherits the cores of this thread.
        os.sched_setaffinity(0, CORES[place::count])
        words = [*command, "--seeds", str(len(share))]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        jobs += [subprocess.Popen(words, text=True, **pipes)] if len(share) else []
    os.sched_setaffinity(0, CORES)
    for job in jobs:
        while READY not in (line := job.stdout.readline()):
            if not line:
                raise SystemExit("a process failed; see above")
    began = time.perf_counter()
    for job in jobs:
        job.stdin.write("\n")
        job.stdin.flush()
    for job in jobs:
        job.stdin.close()
        # Processes that are over do not compete with the measured rest, as in a real grid's end.
        job.stdout.read()
        job.wait()
    # Each prints as soon as it is done: leaving Python is not part of it.
    return flags.seeds * flags.steps / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default="configs/vit.py")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=30, help="of each seed")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="update docs/comparisons.md")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        measured(flags.config, flags.seeds, flags.steps, together=False, wait=True)
        os._exit(0)

    ways = {
        "in turn": lambda: measured(flags.config, flags.seeds, flags.steps, False, False),
        "vmap": lambda: measured(flags.config, flags.seeds, flags.steps, True, False),
        "a process per core": lambda: processes(len(CORES), flags),
    }
    rates: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(flags.repeats):
        for way, measure in ways.items():
            rates[way].append(measure())
            print(f"{way}: {rates[way][-1]:.3g} steps/s", flush=True)
    middle = {way: statistics.median(found) for way, found in rates.items()}
    first = middle["in turn"]
    lines = [
        "| way | steps per second, all seeds | against in turn |",
        "|---|---|---|",
        *(f"| {way} | {rate:.3g} | {rate / first:.2f} |" for way, rate in middle.items()),
        "",
        f"{flags.config}, {flags.seeds} seeds, {len(CORES)} CPU cores, medians of {flags.repeats}.",
    ]
    print("\n".join(lines))
    if flags.write:
        replace_section("seeds_at_once", "\n".join(lines), ROOT / "docs" / "comparisons.md")


if __name__ == "__main__":
    main()
