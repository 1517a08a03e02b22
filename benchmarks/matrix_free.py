"""Extreme singular values of a head's Jacobian by products alone, with and without preconditioner.

    python benchmarks/matrix_free.py [--tokens 64,128,197,512,1024] [--iterations 500]

One head, float64, for kernel initializations and kinds of tokens: "gauss" are LayerNormed Gaussian
ones, "equal" the same with the second half of them nearly one token (1e-2 apart), as the blank
patches of an image are. Every line runs in a process of its own, so that peak memory is its own;
seconds include compilation. From 512 tokens on, the Jacobian at width 192 has no fewer rows than
columns, and the column preconditioner is the one measured; `--width 768` keeps to rows, and
`--tokens 120 --width 24 --dim 8` is a small example of columns. The residual is that of the
smallest triplet, relative to sigma_min.
"""

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from condinit_jax.kernels import AttentionKernels
from condinit_jax.methods import METHODS
from condinit_jax.spectra import Head
from condinit_jax.spectra._matrix_free_head import BLOCK, head_extremes
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._width_reduction import reduce_width

METHOD_NAMES = ("conditioned", "xavier_uniform", "truncated_normal")


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table."""

    count: int
    width: int
    dim: int
    method: str
    tokens: str
    preconditioned: bool
    iterations: int


def make_head(case: Case) -> Head:
    """Head 0 of a freshly initialized block."""
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((case.count, case.width))
    if case.tokens == "equal":
        half = case.count // 2
        tokens[half:] = tokens[half] + 1e-2 * tokens[half:]
    tokens -= tokens.mean(axis=1, keepdims=True)
    tokens /= np.sqrt((tokens**2).mean(axis=1, keepdims=True) + 1e-6)
    empty = jnp.zeros((case.width, case.width // case.dim, case.dim))
    drawn = METHODS[case.method]()(jax.random.key(0), AttentionKernels(empty, empty, empty))
    return Head(tokens, *(np.asarray(kernel[:, 0], np.float64) for kernel in drawn[:3]))


def measure(case: Case) -> dict:
    """Runs one case in this process."""
    head = reduce_width(make_head(case))
    start = time.perf_counter()
    with float64():
        found = head_extremes(
            head, tolerance=1e-6, iterations=case.iterations, key=None, rtol=1e-12, block=BLOCK,
            preconditioned=case.preconditioned,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    largest, smallest = found.largest, found.smallest
    rows = case.count * case.dim
    return {
        "N": case.count,
        "D": case.width,
        "d": case.dim,
        "kernels": case.method,
        "tokens": case.tokens,
        "side": "rows" if found.dim == rows else "columns",
        "preconditioner": "yes" if case.preconditioned else "no",
        "sigma_max": float(largest.sigma),
        "sigma_min": float(smallest.sigma),
        "kappa": float(largest.sigma / smallest.sigma),
        "residual": float(smallest.residual),
        "iterations": int(smallest.steps),
        "converged": "yes" if smallest.error <= 1e-6 and not smallest.exhausted else "no",
        "seconds": round(seconds, 1),
        "peak, GB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    }


def in_own_process(case: Case) -> dict:
    """`measure` in a fresh process."""
    command = [sys.executable, __file__, "--case", json.dumps(dataclasses.asdict(case))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def cell(value: object) -> str:
    """A figure to four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", default="64,128,197,512,1024", help="numbers of tokens")
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--dim", type=int, default=64, help="width of a head")
    parser.add_argument("--iterations", type=int, default=500)
    parser.add_argument("--methods", default=",".join(METHOD_NAMES))
    parser.add_argument("--kinds", default="gauss,equal", help="kinds of tokens")
    parser.add_argument("--preconditioner", default="yes,no")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.case:
        print(json.dumps(measure(Case(**json.loads(arguments.case)))))
        return
    lines: list[str] = []
    for count in map(int, arguments.tokens.split(",")):
        for method in arguments.methods.split(","):
            for tokens in arguments.kinds.split(","):
                for choice in arguments.preconditioner.split(","):
                    case = Case(
                        count, arguments.width, arguments.dim, method, tokens, choice == "yes",
                        arguments.iterations,
                    )  # fmt: skip
                    row = in_own_process(case)
                    if not lines:
                        lines = [f"| {' | '.join(row)} |", f"|{'---|' * len(row)}"]
                        print("\n".join(lines), flush=True)
                    lines.append(f"| {' | '.join(map(cell, row.values()))} |")
                    print(lines[-1], flush=True)


if __name__ == "__main__":
    main()
