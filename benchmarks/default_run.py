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
EARLY = (100, 300)  # evaluated steps


def run_cells(seeds: int, workdir: pathlib.Path) -> dict[str, list[Result]]:
    """Results by method, one per seed; seeds outermost, so that slow hours fall on all methods."""
    recipe = configs.load(str(ROOT / "configs/vit.py"))
    results: dict[str, list[Result]] = {method: [] for method in METHODS}
    for seed in range(seeds):
        for method in METHODS:
            config = configs.override(recipe, [f"init.method={method}", f"seed={seed}"])
            results[method].append(train(configs.parse(config), workdir / f"{method}-{seed}"))
    return results


def rows(result: Result, kind: str) -> list[dict]:
    """The rows of one kind that a run wrote."""
    lines = (pathlib.Path(result.workdir) / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


def steps_to_reach(result: Result, accuracy: float) -> int | None:
    """First evaluated step at which a run was at least so accurate; None if it never was."""
    reached = (row["step"] for row in rows(result, "eval") if row["accuracy"] >= accuracy)
    return next(reached, None)


def spread(values: list[float], digits: int) -> str:
    """Mean and standard deviation."""
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def table(results: dict[str, list[Result]]) -> str:
    """The comparison in Markdown."""
    titles = [
        "query, key and value kernels",
        *(f"test accuracy at step {step}, %" for step in EARLY),
        "at the end, %",
        "training loss at the end",
        f"share of the steps to the same seed's final {BASELINE} accuracy",
    ]
    lines = [f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}"]
    for method, runs in results.items():
        accuracy = [{row["step"]: 100 * row["accuracy"] for row in rows(r, "eval")} for r in runs]
        reached = [
            steps_to_reach(run, base.metrics["accuracy"])
            for run, base in zip(runs, results[BASELINE], strict=True)
        ]
        cells = [
            method,
            *(spread([seen[step] for seen in accuracy], 1) for step in EARLY),
            spread([100 * run.metrics["accuracy"] for run in runs], 1),
            spread([rows(run, "train")[-1]["loss"] for run in runs], 3),
            ", ".join(
                "never" if step is None else f"{100 * step / run.steps:.0f} %"
                for step, run in zip(reached, runs, strict=True)
            ),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    seeds = len(results[BASELINE])
    return "\n".join([*lines, "", f"Mean ± standard deviation over {seeds} seeds."])


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
