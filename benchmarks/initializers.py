"""Time to draw one attention kernel: per-head semi-orthogonal against what people use now.

    python benchmarks/initializers.py [--repeats 25] [--write]

For each kernel shape, `jax.random.normal` through `normal()`, JAX's own flat `orthogonal()` and
`semi_orthogonal(num_heads)` are compiled once (timed apart) and then run in turn, so that noise of
the machine falls on all three alike; medians and ratios of medians are printed. The floor is the
time of `normal()`, which every random initializer must at least spend, and the flops of the two
Gram matrices and two products that turn a Gaussian into a semi-orthogonal matrix. The last table
initialises 1 and 60 layers of the same shape and compares their compile times.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
from readme_section import replace_section

from condinit_jax import initializers, methods, surgery
from condinit_jax.kernels import head_shape

SHAPES = [(768, 12, 64), (1024, 16, 64), (4096, 32, 128), (192, 3, 64), (1024, 1, 1024)]


def compiled(init: Callable, shape: tuple[int, int]) -> tuple[Callable, float]:
    """The compiled initializer and the seconds it took to compile."""
    start = time.perf_counter()
    run = jax.jit(lambda key: init(key, shape)).lower(jax.random.key(0)).compile()
    return run, time.perf_counter() - start


def orthogonality_error(kernel: jax.Array, num_heads: int) -> float:
    """Largest entry of |W^T W - I| over the heads."""
    width, heads, head_dim = head_shape(kernel.shape, num_heads)
    per_head = kernel.reshape(width, heads, head_dim)
    gram = jnp.einsum("dhi,dhj->hij", per_head, per_head, precision="highest")
    return float(jnp.abs(gram - jnp.eye(head_dim)).max())


def kernel_rows(repeats: int) -> list[dict]:
    """One row per shape: medians in milliseconds, ratios, compile times and errors."""
    rows = []
    for width, heads, head_dim in SHAPES:
        contenders = {
            "normal": initializers.normal(1.0),
            "flat": jax.nn.initializers.orthogonal(),
            "per_head": initializers.semi_orthogonal(heads),
        }
        shape = (width, heads * head_dim)
        runs = {name: compiled(init, shape) for name, init in contenders.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for repeat in range(repeats + 1):
            key = jax.random.key(repeat)
            for name, (run, _) in runs.items():
                start = time.perf_counter()
                run(key).block_until_ready()
                if repeat:  # the first call warms caches and allocators
                    times[name].append(1e3 * (time.perf_counter() - start))
        median = {name: statistics.median(values) for name, values in times.items()}
        kernel = runs["per_head"][0](jax.random.key(1))
        rows.append(
            {
                "kernel": f"({width}, {heads} x {head_dim})",
                "normal, ms": median["normal"],
                "flat orthogonal, ms": median["flat"],
                "per head, ms": median["per_head"],
                "flat / per head": median["flat"] / median["per_head"],
                "per head / normal": median["per_head"] / median["normal"],
                "compile flat, s": runs["flat"][1],
                "compile per head, s": runs["per_head"][1],
                "largest error": orthogonality_error(kernel, heads),
                "Gflop above normal": 8 * width * heads * head_dim**2 / 1e9,
            }
        )
    return rows


def layer_rows() -> list[dict]:
    """Compile time of `reinitialize` on 1 and 60 separate (not scanned) layers."""
    rows = []
    for layers in (1, 60):
        kernel = jax.ShapeDtypeStruct((256, 4, 64), jnp.float32)
        block = {role: {"kernel": kernel} for role in ("query", "key", "value")}
        params = {f"layer_{index}": {"attention": block} for index in range(layers)}
        method = methods.conditioned()
        start = time.perf_counter()
        jax.jit(
            lambda key, params=params, method=method: surgery.reinitialize(
                jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), params), key, method
            )
        ).lower(jax.random.key(0)).compile()
        rows.append(
            {"layers": f"{layers}", "reinitialize, compile, s": time.perf_counter() - start}
        )
    return rows


def number(value: object) -> str:
    """A cell: text as it is, errors as powers of ten, other figures to three digits."""
    if isinstance(value, str):
        return value
    return f"{value:.1e}" if isinstance(value, float) and value < 1e-3 else f"{value:.3g}"


def markdown(rows: list[dict]) -> str:
    """Rows as a Markdown table."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{'---|' * len(rows[0])}"]
    lines += [f"| {' | '.join(number(value) for value in row.values())} |" for row in rows]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=25)
    parser.add_argument("--write", action="store_true", help="put the tables into README.md")
    arguments = parser.parse_args()
    text = "\n\n".join(markdown(rows) for rows in (kernel_rows(arguments.repeats), layer_rows()))
    print(text)
    if arguments.write:
        replace_section("initializers", text)


if __name__ == "__main__":
    main()
