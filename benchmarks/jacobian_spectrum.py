"""Time, memory and error of kappa(J) of a head: ours against `jax.jacfwd` and an SVD.

    python benchmarks/jacobian_spectrum.py [--repeats 3] [--quick] [--write]

Every row is measured in a fresh process, so that the peak of its resident memory is its own; rows
of one head follow each other, dense last. "first call" includes compilation; the other times are
medians of repeated calls, ours including the transfer to the host, width reduction and the record.
The floor is that of the cheapest exact way known to us, the two products of the Gram matrix and its
Cholesky decomposition, at the speed of a float64 matrix product in the same process. Kernels are
drawn by the named method, tokens are Gaussian and LayerNormed, unless they are "images": the
bundled images, cut into patches, through a patch embedding and position embedding at their initial
values, and LayerNormed. Dense at N = 33 takes two minutes and 12 GB; --quick leaves it and the
largest head out.
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from readme_section import replace_section

from condinit_jax import spectra
from condinit_jax.kernels import AttentionKernels
from condinit_jax.methods import METHODS


class Case(NamedTuple):
    """One head, or several, and the ways to compute it.

    Attributes:
        tokens: N.
        width: D.
        dim: d.
        heads: H.
        init: a name in `METHODS`.
        source: "gaussian" or "images".
        ways: "dense" or a method of `jacobian_spectrum`.
        slow: whether --quick leaves it out.
    """

    tokens: int
    width: int
    dim: int
    heads: int
    init: str
    source: str
    ways: tuple[str, ...]
    slow: bool = False


CASES = [
    Case(17, 48, 16, 1, "truncated_normal", "gaussian", ("qr", "gram", "dense")),
    Case(17, 48, 16, 1, "conditioned", "gaussian", ("qr", "gram", "dense")),
    Case(16, 64, 16, 1, "conditioned", "images", ("qr", "gram", "dense")),
    Case(33, 192, 64, 1, "truncated_normal", "gaussian", ("gram", "qr", "dense"), slow=True),
    Case(33, 192, 64, 1, "conditioned", "gaussian", ("gram", "qr")),
    Case(65, 192, 64, 12, "conditioned", "gaussian", ("auto",)),
    Case(197, 768, 64, 1, "conditioned", "gaussian", ("auto",), slow=True),
    Case(197, 768, 64, 1, "truncated_normal", "gaussian", ("auto",), slow=True),
]


def head_of(case: Case) -> spectra.Head:
    """The stack of heads of a case."""
    rng = np.random.default_rng(0)
    if case.source == "images":
        tokens = image_tokens(case.tokens, case.width)
    else:
        tokens = rng.normal(size=(case.tokens, case.width))
    tokens = (tokens - tokens.mean(1, keepdims=True)) / tokens.std(1, keepdims=True)
    empty = AttentionKernels(*[jnp.zeros((case.width, case.heads, case.dim))] * 3)
    kernels = METHODS[case.init]()(jax.random.key(0), empty)
    return spectra.attention_heads(
        AttentionKernels(*(np.asarray(kernel, np.float64) for kernel in kernels[:3])), tokens
    )


def image_tokens(count: int, width: int) -> np.ndarray:
    """Tokens of the first bundled image that enter the first attention block of a fresh ViT."""
    from condinit_jax.config import DataConfig
    from condinit_jax.data import open_source
    from condinit_jax.models.vit import PatchEmbed

    side = round(count**0.5)
    image = np.asarray(open_source(DataConfig(), "test")[0]["image"], np.float64) / 255.0 - 0.5
    patch = image.shape[0] // side
    embed = PatchEmbed(patch, width)
    variables = embed.init(jax.random.key(1), image[None])
    tokens = np.asarray(embed.apply(variables, image[None]), np.float64)[0]
    return tokens + 0.02 * np.random.default_rng(1).normal(size=tokens.shape)


def attention(kernels: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """A head as anyone would write it."""
    query, key, value = (tokens @ kernel for kernel in kernels)
    return jax.nn.softmax(query @ key.T / query.shape[-1] ** 0.5) @ value


@jax.jit
def dense_values(kernels: tuple[jax.Array, ...], tokens: jax.Array) -> jax.Array:
    """Every singular value of J by `jax.jacfwd` and an SVD."""
    parts = jax.jacfwd(attention)(kernels, tokens)
    rows = parts[0].shape[0] * parts[0].shape[1]
    jacobian = jnp.concatenate([part.reshape(rows, -1) for part in parts], axis=1)
    return jnp.linalg.svd(jacobian, compute_uv=False)


def dense_kappa(head: spectra.Head) -> float:
    """Kappa from them, with the tolerance of ours."""
    values = np.asarray(dense_values(tuple(jnp.asarray(k) for k in head.kernels), head.tokens))
    longest = max(len(values), sum(kernel.size for kernel in head.kernels))
    kept = values[values > longest * np.finfo(values.dtype).eps * values[0]]
    return float(kept[0] / kept[-1])


def measure(case: Case, way: str, repeats: int) -> dict:
    """Seconds, memory and kappa of one way; runs in a process of its own."""
    heads = head_of(case)
    before = peak_gb()
    seconds = []
    for _ in range(1 if way == "dense" and case.slow else repeats + 1):
        start = time.perf_counter()
        if way == "dense":
            with jax.enable_x64(True):
                kappa = dense_kappa(jax.tree.map(lambda leaf: leaf[0], heads))
            record = None
        else:
            record = spectra.jacobian_spectra(heads, method=way)[0]
            kappa = record.kappa
        seconds.append(time.perf_counter() - start)
    peak = peak_gb()
    return {
        "kappa": kappa,
        "record": record and {"method": record.method, "error": record.error},
        "first": seconds[0],
        "seconds": statistics.median(seconds[1:] or seconds),
        "peak": peak,
        "before": before,
        "floor": floor_seconds(case),
    }


def peak_gb() -> float:
    """Peak of this process's resident memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def floor_seconds(case: Case) -> float:
    """Time of the flops of the lower half of J J^T and its Cholesky factor, for all heads."""
    size, width = case.tokens * case.dim, min(case.tokens, case.width)
    flops = case.heads * (size**2 * (case.dim + width) + size**3 / 3)
    with jax.enable_x64(True):
        matrix = jnp.ones((2048, 2048))
        product = jax.jit(lambda a: a @ a)
        product(matrix).block_until_ready()
        start = time.perf_counter()
        product(matrix).block_until_ready()
        rate = 2 * 2048**3 / (time.perf_counter() - start)
    return flops / rate


def rows_of(number: int, repeats: int) -> list[dict]:
    """The table's rows of one case."""
    case = CASES[number]
    found = {}
    for way in case.ways:
        child = subprocess.run(
            [sys.executable, __file__, "--measure", str(number), way, str(repeats)],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        )
        found[way] = json.loads(child.stdout.splitlines()[-1])
    dense = found.get("dense")
    rows = []
    for way, result in found.items():
        record = result["record"]
        several = f", {case.heads} heads" if case.heads > 1 else ""
        rows.append(
            {
                "head": f"N {case.tokens}, D {case.width}, d {case.dim}{several}",
                "kernels, tokens": f"{case.init}, {case.source}",
                "way": f"{way}: {record['method']}" if way == "auto" else way,
                "kappa(J)": f"{result['kappa']:.6g}",
                "from dense": "" if dense is None or way == "dense"
                else f"{abs(result['kappa'] / dense['kappa'] - 1):.0e}",
                "error said": f"{record['error']:.0e}" if record else "",
                "first call, s": f"{result['first']:.3g}",
                "seconds": f"{result['seconds']:.3g}",
                "floor, s": f"{result['floor']:.2g}",
                "peak memory, GB": f"{result['peak']:.2f}",
                "dense / this, time": "" if dense is None
                else f"{dense['seconds'] / result['seconds']:.3g}",
                "dense / this, memory": "" if dense is None
                else f"{dense['peak'] / result['peak']:.3g}",
            }
        )  # fmt: skip
    return rows


def table(rows: list[dict]) -> str:
    """Markdown."""
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return "\n".join(lines + ["| " + " | ".join(row.values()) + " |" for row in rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="leave out what takes minutes")
    parser.add_argument("--write", action="store_true", help="put the table into README.md")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.measure:
        number, way, repeats = flags.measure
        print(json.dumps(measure(CASES[int(number)], way, int(repeats))))
        return
    rows = []
    for number, case in enumerate(CASES):
        if not (flags.quick and case.slow):
            rows += rows_of(number, flags.repeats)
            print(rows[-1], file=sys.stderr)
    text = table(rows)
    print(text)
    if flags.write:
        replace_section("jacobian_spectrum", text)


if __name__ == "__main__":
    main()
