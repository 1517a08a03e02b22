"""Every initialization method in one table and one picture: docs/methods.md.

    python benchmarks/methods_table.py [--methods NAMES] [--repeats 3] [--write]

A ViT-Ti (12 layers, 3 heads of width 64, D = 192) for the bundled images (patches of 7 pixels, a
class token: N = 17) is drawn at seed 0 with each method. "touches" is found by comparing its
parameters with those of `default`, "needs" from the factory. Condition numbers of kernels are
medians over layers, those per head of each layer's median over its heads; kappa(J) and the logits
(root mean square, scaled by 1/sqrt(d)) are medians over all heads of layers 0, 6 and 11, on the
first evaluation image. (The model has learned positions, not those that `impulse` is made for.)
The last column is the median time to rewrite the parameters of a ViT-B/16 (86 million), compiled
beforehand.
The teacher of weight selection is a ViT of twice the width, at its own initialization.
"""

import argparse
import dataclasses
import inspect
import pathlib
import statistics
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from readme_section import replace_section

from condinit_jax import config as configs
from condinit_jax import methods, reinitialize, spectra, tasks, with_offsets
from condinit_jax.kernels import ROLES
from condinit_jax.methods import METHODS, Method, NetworkMethod
from condinit_jax.models.vit import vit
from condinit_jax.training.state import init_state, method_data

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "methods.md"
PICTURE = ROOT / "docs" / "images" / "methods.png"
LAYERS = (0, 6, 11)
PARTS = {
    **{role: f"/{role}/" for role in ROLES},
    "MLP": "/mlp/",
    "norms": "norm",
    "embeddings": "embed",
    "class token": "cls_token",
    "head": "head/",
}
"""What the parts of our models are called, and what their paths contain."""


@dataclasses.dataclass(frozen=True)
class Row:
    """What is known of one method.

    Attributes:
        name: "default" or a name in `METHODS`.
        touches: Parts of the network that it rewrites.
        needs: What it must be given or told.
        per_head: kappa of the query, key and value kernels per head.
        stacked: The same of the stacked kernels.
        rank: Rank of the stacked value kernel, and its size; of all layers.
        kappas: kappa(J) of each head probed.
        logits: Root mean square of each probed head's logits.
        seconds: To rewrite a ViT-B/16; None for default.
    """

    name: str
    touches: tuple[str, ...]
    needs: str
    per_head: tuple[float, ...]
    stacked: tuple[float, ...]
    rank: str
    kappas: tuple[float, ...]
    logits: tuple[float, ...]
    seconds: float | None


def method_of(name: str, facts: dict[str, Any], teacher: Any) -> Method | NetworkMethod | None:
    """The method with its defaults."""
    init = {"method": name} | ({"teacher": teacher} if "teacher" in arguments(name) else {})
    return methods.build(init, facts)


def arguments(name: str) -> list[str]:
    """The arguments of a method's factory."""
    return [] if name == methods.DEFAULT else list(inspect.signature(METHODS[name]).parameters)


def needs(name: str, method: Method | NetworkMethod | None) -> str:
    """What a method must be given or told, in words."""
    found = []
    if "rows" in arguments(name):
        found.append("the grid of tokens")
    if "teacher" in arguments(name):
        found.append("a larger model's parameters")
    elif isinstance(method, NetworkMethod):
        offset = method.offsets is not None
        found.append("a constant in the forward pass" if offset else "the whole network")
    return ", ".join(found) or "-"


def touched(before: Any, after: Any) -> tuple[str, ...]:
    """The parts whose parameters are not the same in two trees."""
    changed = [
        "/".join(str(key.key) for key in path)
        for (path, old), new in zip(
            jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
        )
        if not np.array_equal(old, new)
    ]
    return tuple(
        part for part, mark in PARTS.items() if any(mark in f"/{path}/" for path in changed)
    )


def effective(state: Any) -> Any:
    """The parameters that the forward pass uses."""
    return with_offsets(state.params, state.collections.get(tasks.OFFSETS))


def draw(task: tasks.Task, method: Method | NetworkMethod | None) -> Any:
    """The state before the first step."""

    def init(key: jax.Array, data: Any) -> Any:
        return init_state(
            key, data, task=task, optimizer=optax.identity(), method=method, average=False
        )

    return jax.jit(init)(jax.random.key(0), method_data(method))


def logits(head: spectra.Head) -> float:
    """Root mean square of the scaled logits of one head without maps."""

    def of(tokens: np.ndarray, kernel: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
        return tokens @ kernel + (0 if bias is None else bias)

    query = of(head.tokens, head.query, head.query_bias)
    key = of(head.tokens, head.key, head.key_bias)
    return float(np.sqrt(np.mean(np.square(query @ key.T))) / query.shape[-1] ** 0.5)


def seconds_on_vit_b(name: str, shapes: Any, repeats: int) -> float:
    """Median time to rewrite a ViT-B/16 with a method, compiled."""
    # The values do not matter, their sizes do; zeros would make a teacher's copy look like nothing.
    params = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 0.01, leaf.dtype), shapes)
    teacher = None
    if "teacher" in arguments(name):
        wide = vit("b", width=1024, num_heads=16)
        teacher = jax.eval_shape(wide.init, jax.random.key(0), jnp.zeros((1, 224, 224, 3)))
        teacher = jax.tree.map(lambda leaf: np.full(leaf.shape, 0.01, "float32"), teacher["params"])
    method = method_of(name, {"rows": 14, "columns": 14}, teacher)

    def rewrite(params: Any, key: jax.Array, data: Any) -> Any:
        if not isinstance(method, NetworkMethod):
            assert method is not None
            return reinitialize(params, key, method)
        new = method.rewrite(key, params, data)
        return new if method.offsets is None else method.offsets(params)

    data = method_data(method)
    run = jax.jit(rewrite).lower(params, jax.random.key(0), data).compile()
    times = []
    for repeat in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(run(params, jax.random.key(repeat), data))
        times.append(time.perf_counter() - start)
        if times[0] > 30:
            break
    return statistics.median(times)


def measure(name: str, repeats: int) -> Row:
    """Everything about one method."""
    recipe = configs.load(str(ROOT / "configs/vit.py:ti,bundled"))
    config = configs.parse(configs.override(recipe, ["init.method=default"]))
    task = tasks.build(config)
    teacher = None
    if "teacher" in arguments(name):
        larger = configs.override(recipe, ["model.width=384", "model.num_heads=6"])
        teacher = tasks.build(configs.parse(larger)).init(jax.random.key(1))["params"]
    side = config.data.image_size // config.model["patch_size"]
    method = method_of(name, {"rows": side, "columns": side}, teacher)
    plain, state = draw(task, None), draw(task, method)
    images = next(iter(task.eval_batches()))
    example = {key: np.asarray(value)[:1] for key, value in images.items()}
    recording = jax.jit(task.attention_inputs)(state.params, state.collections, example)
    blocks = spectra.assemble(recording)

    per_head, stacked, ranks = [], [], set()
    for block in blocks:
        found = spectra.kernel_spectra(block.kernels, rtol=1e-6)
        kinds = (found.query, found.key, found.value)
        per_head.append([statistics.median(r.kappa for r in kind.per_head) for kind in kinds])
        stacked.append([kind.stacked.kappa for kind in kinds])
        value = found.value.stacked
        ranks.add(f"{value.rank} of {value.size}")
    probe = spectra.probe_blocks(blocks, layers=LAYERS)
    norms = []
    for layer in LAYERS:
        heads = blocks[layer].heads(0)
        one = [jax.tree.map(lambda a, n=n: a[n], heads) for n in range(blocks[layer].num_heads)]
        norms += [logits(head) for head in one]
    shapes = jax.eval_shape(vit("b").init, jax.random.key(0), jnp.zeros((1, 224, 224, 3)))
    known = name == methods.DEFAULT
    return Row(
        name=name,
        touches=touched(plain.params, effective(state)),
        needs=needs(name, method),
        per_head=tuple(float(x) for x in np.median(per_head, axis=0)),
        stacked=tuple(float(x) for x in np.median(stacked, axis=0)),
        rank=", ".join(sorted(ranks)),
        kappas=tuple(row["kappa"] for row in probe.rows),
        logits=tuple(norms),
        seconds=None if known else seconds_on_vit_b(name, shapes["params"], repeats),
    )


def figure(values: tuple[float, ...]) -> str:
    """Condition numbers of query, key and value, once where they are the same."""
    shown = [f"{value:.2f}" if value < 10 else f"{value:.3g}" for value in values]
    return shown[0] if len(set(shown)) == 1 else " / ".join(shown)


TITLES = (
    "method",
    "touches",
    "needs",
    "kappa per head: W_Q / W_K / W_V",
    "stacked",
    "rank of stacked W_V",
    "kappa(J), median (least, most)",
    "logits, r.m.s.",
    "ViT-B/16, s",
)


def table(rows: list[Row]) -> str:
    """The table in Markdown."""
    lines = [f"| {' | '.join(TITLES)} |", f"|{'---|' * len(TITLES)}"]
    for row in rows:
        least, most = min(row.kappas), max(row.kappas)
        cells = (
            row.name,
            ", ".join(row.touches) or "nothing",
            row.needs,
            figure(row.per_head),
            figure(row.stacked),
            row.rank,
            f"{statistics.median(row.kappas):.1e} ({least:.0e}, {most:.0e})",
            f"{statistics.median(row.logits):.2g}",
            "" if row.seconds is None else f"{row.seconds:.2g}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(rows: list[Row]) -> None:
    """kappa(J) and logits of every method, one line each."""
    import matplotlib as mpl

    mpl.use("agg")
    import matplotlib.pyplot as plt

    ordered = sorted(rows, key=lambda row: -statistics.median(row.kappas))
    _, axes = plt.subplots(1, 2, figsize=(9, 0.28 * len(rows) + 1.2), sharey=True, dpi=110)
    panels = (
        (axes[0], "kappas", "κ(J) of one head", "#0072B2"),
        (axes[1], "logits", "logits, root mean square", "#D55E00"),
    )
    for axis, field, label, colour in panels:
        for place, row in enumerate(ordered):
            values = getattr(row, field)
            axis.plot(values, [place] * len(values), ".", color=colour, alpha=0.35, ms=4)
            axis.plot(statistics.median(values), place, "o", color=colour, ms=6)
        axis.set_xscale("log")
        axis.set_xlabel(label)
        axis.grid(visible=True, alpha=0.3)
    axes[0].set_yticks(range(len(ordered)), [row.name for row in ordered])
    plt.suptitle("ViT-Ti at initialization, N = 17: medians and single heads", fontsize=11)
    plt.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    plt.savefig(PICTURE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--methods", help="names, separated by commas (default: all)")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--write", action="store_true", help="update docs/methods.md")
    flags = parser.parse_args()
    names = flags.methods.split(",") if flags.methods else [methods.DEFAULT, *METHODS]
    rows = []
    for name in names:
        rows.append(measure(name, flags.repeats))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    if flags.write:
        replace_section("methods", table(rows), PAGE)
        picture(rows)


if __name__ == "__main__":
    main()
