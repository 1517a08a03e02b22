"""What probes of attention's Jacobian add to the default run, compilation included.

    python benchmarks/probe_cost.py [--repeats 5] [--write]

`python train.py` with the default `config.probe` and with `config.probe.every=0`, each in a fresh
process, in turn, so that slow minutes of the machine fall on both. Wall-clock time of the whole
command varies between equal runs by more than the probes take; therefore the time that the runs
themselves spent in probes (compilation, forward passes and spectra) stands beside it. `--write`
puts the table into README.md.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from readme_section import replace_section

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"with probes": [], "without": ["--config.probe.every=0"]}


def run(flags: list[str], workdir: pathlib.Path) -> tuple[float, dict]:
    """Seconds of the whole command, and the run's result."""
    command = [sys.executable, str(ROOT / "train.py"), "--workdir", str(workdir), *flags]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start, json.loads((workdir / "result.json").read_text())


def probed(workdir: pathlib.Path) -> tuple[int, int]:
    """How many steps were probed, and Jacobians in all."""
    lines = (workdir / "metrics.jsonl").read_text().splitlines()
    steps = [row["step"] for row in map(json.loads, lines) if row["kind"] == "probe"]
    return len(set(steps)), len(steps)


def measure(repeats: int) -> str:
    """The table in Markdown."""
    seconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    shares, own = [], []
    with tempfile.TemporaryDirectory() as directory:
        for repeat in range(repeats):
            for kind, flags in KINDS.items():
                workdir = pathlib.Path(directory) / f"{kind}-{repeat}"
                took, result = run(flags, workdir)
                seconds[kind].append(took)
                if kind == "with probes":
                    own.append(result["probe_seconds"])
                    shares.append(result["probe_seconds"] / took)
                    steps, jacobians = probed(workdir)
                print(f"{kind}: {took:.1f} s, probes {result['probe_seconds']:.2f} s", flush=True)
    lines = ["| `python train.py` | median, s | lowest, s | highest, s |", "|---|---|---|---|"]
    for kind, values in seconds.items():
        lines.append(f"| {kind} | {statistics.median(values):.1f} | {min(values):.1f} | "
                     f"{max(values):.1f} |")  # fmt: skip
    lines.append(f"| spent in probes | {statistics.median(own):.2f} | {min(own):.2f} | "
                 f"{max(own):.2f} |")  # fmt: skip
    text = (
        f"Probes of {steps} steps, {jacobians} Jacobians, took "
        f"{100 * statistics.median(shares):.1f} % of the command's time (median of {repeats} "
        "runs), compilation included."
    )
    return "\n".join([*lines, "", text])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    arguments = parser.parse_args()
    text = measure(arguments.repeats)
    print(text)
    if arguments.write:
        replace_section("probe_cost", text)


if __name__ == "__main__":
    main()
