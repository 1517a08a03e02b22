"""Can the bound of Theorem 3.1 be violated? A random search, then a climb from the worst cases.

    python benchmarks/bound_search.py [--draws 1500] [--steps 120] [--seed 0]

Small heads are drawn in float64 from several distributions of kernels and tokens, kappa(J) comes
from the SVD of the dense Jacobian, B(J) from `condinit_jax.spectra.bound` with effective kappas.
"Full" ranks satisfy what the theorem supposes: J and X of full row rank, P and the kernels of full
rank; only Lambda(P), which always has null vectors, is taken by its effective kappa. "Common"
scale means that the three kernels are drawn alike, as initializers draw them; "separate" that each
is multiplied by a factor of its own. Draws whose kappa(J) is not known to 1e-3 (it passes 1e12) are
left out. The last table takes heads as initializers draw them and
rescales W_Q by g and W_K by 1/g, which changes neither the output of the head nor B(J). Takes two
to four minutes.
"""

import argparse
import dataclasses
import time
from collections.abc import Iterable

import jax
import numpy as np

from condinit_jax.spectra import Head, condition_number, head_output
from condinit_jax.spectra._bound import Bound, bound
from condinit_jax.spectra._dense import attention_jacobian

SHAPES = [
    (2, 2, 1), (2, 4, 2), (3, 4, 2), (3, 6, 4), (4, 8, 2), (4, 8, 6), (5, 12, 4), (8, 16, 8),
    (6, 4, 2), (8, 6, 3), (9, 4, 3),
]  # fmt: skip
KERNELS = ["normal", "uniform", "nearly low rank", "semi-orthogonal", "identity", "conditioned"]
TOKENS = ["normal", "layer norm", "nearly equal", "one-hot", "orthogonal"]
SCALES = ["common", "separate"]


@dataclasses.dataclass(frozen=True)
class Draw:
    """A head, where it comes from and what the bound says of it."""

    head: Head
    labels: dict[str, str]
    result: Bound

    @property
    def slack(self) -> float:
        """B(J) / kappa(J)."""
        return self.result.slack

    @property
    def ranks(self) -> str:
        """How far this is from what the theorem supposes, Lambda(P) aside."""
        result, (count, width) = self.result, self.head.tokens.shape
        factors = (result.tokens, result.weights, result.query, result.key, result.value)
        rows = count * self.head.value.shape[1]
        if result.measured.rank < rows or any(record.dropped for record in factors):
            return "deficient"
        return "full" if count <= width else "full, but N > D"

    @property
    def full_rank(self) -> bool:
        """What the theorem supposes, but for Lambda(P)."""
        return self.ranks == "full"


def judge(head: Head, labels: dict[str, str]) -> Draw:
    jacobian = attention_jacobian(jax.tree_util.Partial(output), head.kernels, head.tokens)
    return Draw(head, labels, bound(head, jacobian=condition_number(jacobian)))


def output(kernels, tokens):
    return head_output(Head(tokens, *kernels))


def draw_tokens(kind: str, count: int, width: int, generator: np.random.Generator) -> np.ndarray:
    tokens = generator.standard_normal((count, width))
    if kind == "nearly equal":
        tokens = tokens[:1] + 10 ** generator.uniform(-3, -1) * tokens
    if kind == "layer norm":
        tokens -= tokens.mean(axis=1, keepdims=True)
        tokens /= tokens.std(axis=1, keepdims=True)
    if kind == "one-hot":
        tokens = np.eye(width)[generator.permutation(max(count, width))[:count] % width]
    if kind == "orthogonal":
        tokens = orthonormal(tokens) * np.sqrt(width)
    return tokens


def orthonormal(matrix: np.ndarray) -> np.ndarray:
    """The matrix with every singular value 1: its polar factor."""
    left, _, right = np.linalg.svd(matrix, full_matrices=False)
    return left @ right


def draw_kernels(kind: str, width: int, dim: int, generator: np.random.Generator):
    kernels = list(generator.standard_normal((3, width, dim)))
    if kind == "uniform":
        kernels = list(generator.uniform(-1, 1, (3, width, dim)))
    if kind == "nearly low rank":
        decay = np.geomspace(1, 10 ** generator.uniform(-3, -1), dim)
        kernels = [orthonormal(kernel) * decay[:, None].T for kernel in kernels]
    if kind in ("semi-orthogonal", "conditioned"):
        kernels = [orthonormal(kernel) for kernel in kernels]
    if kind == "identity":
        kernels = [np.eye(width, dim)] * 3
    if kind == "conditioned":
        kernels[2] = np.eye(width, dim)
    return kernels


def draw(generator: np.random.Generator) -> Draw:
    shape, kernel_kind, token_kind, scale_kind = (
        choices[generator.integers(len(choices))] for choices in (SHAPES, KERNELS, TOKENS, SCALES)
    )
    count, width, dim = shape
    tokens = draw_tokens(token_kind, count, width, generator)
    kernels = draw_kernels(kernel_kind, width, dim, generator)
    scales = np.exp(generator.uniform(np.log(0.02), np.log(10), 3))
    if scale_kind == "common":
        scales[:] = scales[0]
    kernels = [scale * kernel for scale, kernel in zip(scales, kernels, strict=True)]
    labels = {
        "N, D, d": str(shape), "kernels": kernel_kind, "tokens": token_kind, "scale": scale_kind,
    }  # fmt: skip
    return judge(Head(tokens, *kernels), labels)


def climb(start: Draw, steps: int, common: bool, generator: np.random.Generator) -> Draw:
    """Random steps that are kept where B / kappa falls and the ranks stay full.

    With `common`, the spectral norms of the three kernels are kept equal.
    """
    best, size = start, 0.3
    for _ in range(steps):
        arrays = [
            array * np.exp(size * generator.standard_normal())
            + size * generator.standard_normal(array.shape) * np.abs(array).mean()
            for array in (best.head.tokens, *best.head.kernels)
        ]
        if common:
            norms = [np.linalg.norm(kernel, 2) for kernel in arrays[1:]]
            norm = np.prod(norms) ** (1 / 3)
            arrays[1:] = [k * norm / n for k, n in zip(arrays[1:], norms, strict=True)]
        candidate = judge(Head(*arrays), start.labels)
        better = candidate.slack < best.slack and candidate.full_rank
        better = better and not candidate.result.measured.warning
        best = candidate if better else best
        size = min(size * 1.5, 1.0) if better else max(size * 0.95, 1e-3)
    return best


def table(rows: list[dict[str, object]]) -> str:
    def cell(value: object) -> str:
        return f"{value:.3g}" if isinstance(value, float) else str(value)

    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    return "\n".join(lines + [f"| {' | '.join(map(cell, row.values()))} |" for row in rows])


def distribution(name: dict[str, str], draws: list[Draw]) -> dict[str, object]:
    slack = np.array([draw.slack for draw in draws])
    quantiles = np.quantile(slack, [0.0, 0.01, 0.1, 0.5]) if len(slack) else [np.nan] * 4
    return name | {
        "draws": len(draws),
        "violations": int((slack < 1).sum()),
        **dict(zip(["least B/kappa", "1 %", "10 %", "median"], map(float, quantiles), strict=True)),
    }


def search(count: int, seed: int) -> tuple[list[Draw], list[dict[str, object]]]:
    draws = [draw(np.random.default_rng([seed, index])) for index in range(count)]
    draws = [
        dataclasses.replace(d, labels=d.labels | {"draw": f"{i}"}) for i, d in enumerate(draws)
    ]
    draws = [d for d in draws if not d.result.measured.warning]
    rows = []
    for ranks in ("full", "full, but N > D", "deficient"):
        for scale in SCALES:
            chosen = [d for d in draws if d.ranks == ranks and d.labels["scale"] == scale]
            rows.append(distribution({"ranks": ranks, "scale": scale}, chosen))
    for kind in KERNELS:
        chosen = [
            d for d in draws
            if d.full_rank and d.labels["kernels"] == kind and d.labels["scale"] == "common"
        ]  # fmt: skip
        rows.append(distribution({"ranks": "full", "scale": f"common, {kind}"}, chosen))
    return draws, rows


def climbs(draws: list[Draw], steps: int, seed: int) -> tuple[Draw, list[dict[str, object]]]:
    """From the worst full-rank draw of several shapes; the end of the first, and a row for each.

    Starts are those in which queries and keys matter: kappa(J) is not that of the value part alone,
    which is at most kappa(X) kappa(P), the last term of B(J).
    """
    rows, ends = [], []
    for shape in ("(2, 4, 2)", "(4, 8, 2)", "(4, 8, 6)", "(8, 16, 8)"):
        of_shape = [
            d for d in draws
            if d.full_rank and d.labels["N, D, d"] == shape
            and d.result.measured.kappa > 1.5 * d.result.mixed.kappa
        ]  # fmt: skip
        for common in (True, False):
            starts = [d for d in of_shape if d.labels["scale"] == "common" or not common]
            start = min(starts, key=lambda d: d.slack)
            end = climb(start, steps, common, np.random.default_rng([seed, len(rows)]))
            ends.append(end)
            rows.append(
                start.labels
                | {
                    "norms kept equal": "yes" if common else "no",
                    "B/kappa at the start": start.slack,
                    "at the end": end.slack,
                    "kappa(J)": end.result.measured.kappa,
                    "B(J)": end.result.limit,
                    "proven limit": end.result.proven_limit,
                }
            )
    return ends[0], rows


def rescaled(seed: int) -> list[dict[str, object]]:
    """Heads as initializers draw them, and where a change of scales that B does not see ends."""
    rows = []
    for count, width, dim in ((8, 16, 8), (17, 48, 16)):
        for name, deviation in (
            ("normal 0.02", 0.02),
            ("LeCun", width**-0.5),
            ("conditioned", 1.0),
        ):
            kind = "conditioned" if name == "conditioned" else "normal"

            def at(gauge, seed, sizes=(count, width, dim), kind=kind, deviation=deviation):
                generator = np.random.default_rng(seed)
                tokens = draw_tokens("layer norm", *sizes[:2], generator)
                kernels = draw_kernels(kind, *sizes[1:], generator)
                query, key, value = (deviation * kernel for kernel in kernels)
                return judge(Head(tokens, gauge * query, key / gauge, value), {})

            draws = [at(1.0, seed + index) for index in range(8)]
            power = next(power for power in range(1, 60) if at(2.0**power, seed).slack < 1)
            rows.append(
                {
                    "N, D, d": f"{count}, {width}, {dim}",
                    "kernels": name,
                    "kappa(J), median of 8": median(d.result.measured.kappa for d in draws),
                    "B(J)": median(d.result.limit for d in draws),
                    "proven limit": median(d.result.proven_limit for d in draws),
                    "least B/kappa": min(d.slack for d in draws),
                    "first draw violates from g =": 2.0**power,
                }
            )
    return rows


def median(values: Iterable[float]) -> float:
    return float(np.median(list(values)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1500)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    start = time.perf_counter()
    draws, rows = search(arguments.draws, arguments.seed)
    print(table(rows), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
    for scale in SCALES:
        worst = min(
            (d for d in draws if d.full_rank and d.labels["scale"] == scale), key=lambda d: d.slack
        )
        print(f"worst full-rank draw at {scale} scale, np.random.default_rng([seed, draw]):")
        print(worst.labels, worst.result, sep="\n", end="\n\n", flush=True)
    above = [d.result.measured.kappa / d.result.proven_limit - 1 for d in draws]
    print(f"largest kappa(J) / proven limit - 1: {max(above):.1e}\n", flush=True)
    end, rows = climbs(draws, arguments.steps, arguments.seed)
    print(table(rows), f"\n{time.perf_counter() - start:.0f} s\n", flush=True)
    print("the first of them ends at", end.result)
    for name in ("tokens", "query", "key", "value"):
        print(f"{name} = {np.round(getattr(end.head, name), 5).tolist()}")
    print("\n" + table(rescaled(arguments.seed)), f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
