"""The default run under several initializations and seeds: the table and the picture in README.md.

    python benchmarks/default_run.py [--seeds 3] [--workdir runs/default_run] [--write]

Each cell is `python train.py --config.init.method=M --config.seed=S`, nothing else changed: the
methods rewrite query, key and value kernels only, so within a seed all other parameters and the
order of the data are the same. Finished cells are not run again. `--write` puts the table between
the markers in README.md and the curves of the first conditioned run into docs/images/.
"""

import argparse
import json
import pathlib
import shutil
import statistics

from readme_section import replace_section

from condinit_jax import config as configs
from condinit_jax.training import Result, train

ROOT = pathlib.Path(__file__).resolve().parent.parent
METHODS = ("conditioned", "xavier_uniform", "truncated_normal")
BASELINE = "truncated_normal"


def run_cells(seeds: int, workdir: pathlib.Path) -> dict[str, list[Result]]:
    """Results by method, one per seed; seeds outermost, so that slow hours fall on all methods."""
    recipe = configs.load(str(ROOT / "configs/vit.py"))
    results: dict[str, list[Result]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        for method in METHODS:
            config = configs.override(recipe, [f"init.method={method}", f"seed={seed}"])
            results[method].append(train(configs.parse(config), workdir / f"{method}-{seed}"))
    return results


def evaluations(result: Result) -> list[tuple[int, float]]:
    """(step, accuracy) of every evaluation of a run."""
    lines = (pathlib.Path(result.workdir) / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["step"], row["accuracy"]) for row in rows if row["kind"] == "eval"]


def steps_to_reach(result: Result, accuracy: float) -> int | None:
    """First evaluated step at which a run was at least so accurate; None if it never was."""
    return next((step for step, seen in evaluations(result) if seen >= accuracy), None)


def table(results: dict[str, list[Result]]) -> str:
    """The comparison in Markdown."""
    seeds = len(results[BASELINE])
    rows = [
        f"| attention kernels | test accuracy, % (mean ± sd of {seeds} seeds) | each seed "
        f"| share of the steps to the same seed's final {BASELINE} accuracy | seconds a run |",
        "|---|---|---|---|---|",
    ]
    for method, runs in results.items():
        accuracies = [100 * run.metrics["accuracy"] for run in runs]
        reached = [
            steps_to_reach(run, base.metrics["accuracy"])
            for run, base in zip(runs, results[BASELINE], strict=True)
        ]
        shares = [
            "never" if step is None else f"{100 * step / run.steps:.0f} %"
            for step, run in zip(reached, runs, strict=True)
        ]
        rows.append(
            f"| {method} | {statistics.mean(accuracies):.1f} ± {statistics.stdev(accuracies):.1f} "
            f"| {', '.join(f'{value:.1f}' for value in accuracies)} | {', '.join(shares)} "
            f"| {statistics.median(run.seconds for run in runs):.0f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="at least 2")
    parser.add_argument("--workdir", type=pathlib.Path, default=pathlib.Path("runs/default_run"))
    parser.add_argument("--write", action="store_true", help="update README.md and its picture")
    arguments = parser.parse_args()
    results = run_cells(arguments.seeds, arguments.workdir)
    text = table(results)
    print(text)
    if arguments.write:
        replace_section("default_run", text)
        images = ROOT / "docs/images"
        images.mkdir(parents=True, exist_ok=True)
        shown = pathlib.Path(results["conditioned"][0].workdir) / "curves.png"
        shutil.copyfile(shown, images / "default_run.png")


if __name__ == "__main__":
    main()
