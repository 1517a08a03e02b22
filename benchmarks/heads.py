"""Heads in turn against all heads in one program: what does `jacobian_spectra` lose?

    python benchmarks/heads.py [--repeats 5] [--large]

Every singular value of J for each head of a block, in float64, in one process on the CPU:

- "in turn" is `jacobian_spectra(values="all", method="qr")`, one head after the other;
- "lax.map" and "vmap" are one compiled program over the stack: the same reduction of the width on
  the host, then the same columns, QR decomposition and singular values for every head.

"first call" includes compilation, "later calls" is the median of the others. Kernels are drawn by
the conditioned method; tokens are Gaussian and LayerNormed, and the same for every head. --large
adds three heads of 65 tokens, for which an SVD takes about a minute.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from condinit_jax import spectra
from condinit_jax.kernels import AttentionKernels
from condinit_jax.methods import METHODS
from condinit_jax.spectra._factors import factors
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._score_columns import score_columns
from condinit_jax.spectra._width_reduction import reduce_width

CASES = [(4, 17, 64, 16), (12, 17, 192, 64)]
LARGE = [(3, 65, 192, 64)]

Values = Callable[[spectra.Head], list[np.ndarray]]


def heads_of(count: int, tokens: int, width: int, dim: int) -> spectra.Head:
    """A stack of heads as they are drawn."""
    read = np.random.default_rng(0).normal(size=(tokens, width))
    read = (read - read.mean(1, keepdims=True)) / read.std(1, keepdims=True)
    empty = AttentionKernels(*[jnp.zeros((width, count, dim))] * 3)
    drawn = METHODS["conditioned"]()(jax.random.key(0), empty)
    kernels = AttentionKernels(*(np.asarray(kernel, np.float64) for kernel in drawn[:3]))
    return spectra.attention_heads(kernels, read)


def in_turn(heads: spectra.Head) -> list[np.ndarray]:
    """What the package does."""
    records = spectra.jacobian_spectra(heads, values="all", method="qr")
    return [record.singular_values for record in records]


def together(batched: Callable) -> Values:
    """One compiled program over all heads, `batched` being `jax.vmap` or the like."""

    def one(head: spectra.Head) -> jax.Array:
        columns = jnp.concatenate(score_columns(head, factors(head)), axis=1)
        tall = columns if columns.shape[0] >= columns.shape[1] else columns.T
        return jnp.linalg.svd(jnp.linalg.qr(tall, mode="r"), compute_uv=False)

    compiled = jax.jit(batched(one))

    def values(heads: spectra.Head) -> list[np.ndarray]:
        count = len(heads.query)
        singles = [jax.tree.map(lambda a, n=number: a[n], heads) for number in range(count)]
        reduced = [reduce_width(head) for head in singles]
        with float64():
            return list(np.asarray(compiled(jax.tree.map(lambda *a: np.stack(a), *reduced))))

    return values


def seconds(values: Values, heads: spectra.Head, repeats: int) -> tuple[float, float, list]:
    """Of the first call and, by median, of later ones; and what came out."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        found = values(heads)
        times.append(time.perf_counter() - start)
    return times[0], statistics.median(times[1:]), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5, help="later calls")
    parser.add_argument("--large", action="store_true", help="add the heads of 65 tokens")
    flags = parser.parse_args()
    print("| heads | way | first call, s | later calls, s | in turn / this |")
    print("|---|---|---|---|---|")
    for count, tokens, width, dim in CASES + LARGE * flags.large:
        heads = heads_of(count, tokens, width, dim)
        ways = {
            "in turn": in_turn,
            "lax.map": together(lambda one: lambda stack: jax.lax.map(one, stack)),
            "vmap": together(jax.vmap),
        }
        expected, usual = None, 0.0
        for way, values in ways.items():
            first, later, found = seconds(values, heads, flags.repeats)
            if expected is None:
                expected, usual = found, later
            for one, other in zip(expected, found, strict=True):
                np.testing.assert_allclose(one, other[: len(one)], atol=1e-12 * one[0])
            name = f"{count} heads, N {tokens}, D {width}, d {dim}"
            print(
                f"| {name} | {way} | {first:.3g} | {later:.3g} | {usual / later:.2f} |", flush=True
            )


if __name__ == "__main__":
    main()
