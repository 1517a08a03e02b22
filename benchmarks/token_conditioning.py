"""What conditioning the tokens costs: time of a training step of the default micro model.

    python benchmarks/token_conditioning.py [--repeats 10] [--batch 64]

One step is the loss, its gradient and an AdamW update on random images of the default size,
compiled once for each kind and then run in turn, so that noise of the machine falls on all alike;
medians and their ratios to "none" are printed.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from condinit_jax.models.token_conditioning import TOKEN_CONDITIONING
from condinit_jax.models.vit import vit


def make_step(kind: str, images: jax.Array) -> Callable[[], None]:
    """A compiled training step that keeps its own state."""
    model = vit("micro", patch_size=7, num_classes=10, token_conditioning=kind)
    optimizer = optax.adamw(1e-3)
    params = model.init(jax.random.key(0), images)["params"]
    labels = jnp.arange(len(images)) % 10

    def loss(params: dict) -> jax.Array:
        logits = model.apply({"params": params}, images, train=True)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    @jax.jit
    def update(params: dict, state: optax.OptState) -> tuple[dict, optax.OptState]:
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    carry = [params, optimizer.init(params)]

    def step() -> None:
        carry[:] = jax.block_until_ready(update(*carry))

    step()
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    arguments = parser.parse_args()
    images = jax.random.normal(jax.random.key(1), (arguments.batch, 28, 28, 1))
    steps = {kind: make_step(kind, images) for kind in TOKEN_CONDITIONING}
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    for _ in range(arguments.repeats):
        for kind, step in steps.items():
            start = time.perf_counter()
            step()
            times[kind].append(1e3 * (time.perf_counter() - start))
    medians = {kind: statistics.median(values) for kind, values in times.items()}
    print("| token_conditioning | step, ms | ratio |\n|---|---|---|")
    for kind, median in medians.items():
        print(f"| {kind} | {median:.1f} | {median / medians['none']:.2f} |")


if __name__ == "__main__":
    main()
