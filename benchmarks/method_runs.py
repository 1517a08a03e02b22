"""The default run with every initialization method over some seeds: a table in docs/methods.md.

    python benchmarks/method_runs.py [--seeds 3] [--jobs 2] [--workdir runs/methods] [--write]

It is one call of `python -m condinit_jax.compare`: finished runs are not made again, interrupted
ones go on, and DIR/report.html shows the curves. Beside every method with its defaults there are
the ablations, and what needs another model, such as the residual wiring that a method's paper
trains with; rows are called as `--init` reads them. Probes are off. Within a seed the data order is
the same for all, and so are parameters that a method does not touch. The teacher of weight
selection is a run of twice the width, the "default" one of seed 100.
"""

import argparse
import math
import pathlib
import subprocess
import sys

from readme_section import replace_section

from condinit_jax.compare.__main__ import main as compare
from condinit_jax.experiments import Comparison, Method, Pair, compare_runs, gather, read_plan
from condinit_jax.methods import METHODS

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "methods.md"
BASELINE = "truncated_normal"
EARLY = 100  # an evaluated step
TEACHER = ("init.method=default", "model.width=128", "model.num_heads=8", "seed=100")
APART = ("weight_selection", "impulse", "hybrid")
"""Methods that need more than their name."""

MORE = (
    "conditioned:value=joint",
    "conditioned:kernels=query+key",
    "conditioned:kernels=value",
    "hybrid:query_key=conditioned:value=mimetic:out=mimetic",
    *(
        f"{method}:model.pool=gap:model.positions=sincos2d"
        for method in (BASELINE, "conditioned", "mimetic", "impulse")
    ),
    *(f"{method}:model.residual=deepnorm" for method in (BASELINE, "deepnorm")),
    *(f"{method}:model.norm=none:schedule.warmup_steps=0" for method in (BASELINE, "t_fixup")),
    *(f"{method}:model.residual=skipless" for method in (BASELINE, "conditioned", "skipless")),
    *(
        f"{BASELINE}:model.token_conditioning={switch}"
        for switch in ("gray_svd", "gray_dct", "embedded")
    ),
)


def inits(teacher: pathlib.Path) -> list[str]:
    """Every method with its defaults, the baseline first, then the others."""
    plain = [name for name in METHODS if name not in (*APART, BASELINE)]
    return [BASELINE, *plain, f"weight_selection:teacher={teacher}", *MORE]


def train_teacher(workdir: pathlib.Path) -> None:
    """The run that weight selection takes its weights from; nothing where it is there."""
    if (workdir / "result.json").exists():
        return
    command = [sys.executable, str(ROOT / "train.py"), "--workdir", str(workdir)]
    command += [f"--config.{flag}" for flag in ("probe.every=0", *TEACHER)]
    subprocess.run(command, check=True)


def row(method: Method, pair: Pair | None) -> str:
    """One method's row in Markdown."""
    # Where the teacher is, is this machine's affair.
    name = f"`{method.label.partition(':teacher=')[0]}`"
    if method.final is None or method.curve is None:
        return f"| {name} | 0 | | | | |"
    early = dict(zip(method.curve.steps, method.curve.mean, strict=True))[EARLY]
    final = f"{100 * method.final.value:.1f}"
    final += "" if math.isnan(method.spread) else f" ± {100 * method.spread:.1f}"
    against, speed = "", ""
    if pair is not None and pair.difference is not None:
        against = f"{100 * pair.difference.value:+.1f}"
        if len(pair.seeds) > 1:
            ends = (pair.difference.low, pair.difference.high)
            against += " [{:+.1f}, {:+.1f}]".format(*(100 * end for end in ends))
        shares = [f"{'> ' * late}{100 * share:.0f} %" for _, share, late in pair.speed.ratios]
        speed = ", ".join(shares)
    return f"| {name} | {len(method.seeds)} | {100 * early:.1f} | {final} | {against} | {speed} |"


def table(found: Comparison) -> str:
    """The comparison in Markdown, best final accuracy first."""
    pairs = {pair.label: pair for pair in found.pairs if pair.reference == BASELINE}
    methods = sorted(
        found.methods, key=lambda method: -method.final.value if method.final else math.inf
    )
    titles = (
        f"| `--init` | runs that ended | test accuracy at step {EARLY}, % | at the end, % | "
        f"minus `{BASELINE}`, same seed, points | steps to its final accuracy, of its own steps |"
    )
    note = (
        "Mean ± standard deviation over the runs that ended, best first; differences with their "
        "95 % interval, not corrected for the number of rows. Steps: first evaluation (every 100 "
        "steps) at or above the baseline's final accuracy of the same seed, over the baseline's "
        "own first such evaluation; > where it was never reached."
    )
    begun = [method for method in methods if method.seeds or any(r.curve for r in method.failed)]
    rows = [row(method, pairs.get(method.label)) for method in begun]
    return "\n".join([titles, "|---|---|---|---|---|---|", *rows, "", note])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", default="3", help="how many, or which, as in 0,1")
    parser.add_argument("--jobs", help="runs at once")
    parser.add_argument("--workdir", type=pathlib.Path, default=ROOT / "runs" / "methods")
    parser.add_argument("--report", action="store_true", help="make no runs, take what is there")
    parser.add_argument("--write", action="store_true", help="update docs/methods.md")
    flags = parser.parse_args()
    workdir = flags.workdir.absolute()
    teacher = workdir.with_name(f"{workdir.name}-teacher")
    if not flags.report:
        train_teacher(teacher)
    argv = ["--init", ",".join(inits(teacher)), "--seeds", flags.seeds, "--workdir", str(workdir)]
    argv += ["--config.probe.every=0", *(["--jobs", flags.jobs] if flags.jobs else [])]
    argv += ["--report"] if flags.report else []
    if (code := compare(argv)) not in (0, 1):
        raise SystemExit(code)
    plan = read_plan(workdir)
    found = compare_runs(gather(plan, workdir), title="", command="", labels=plan.labels)
    text = table(found)
    print(text)
    if flags.write:
        replace_section("runs", text, PAGE)


if __name__ == "__main__":
    main()
