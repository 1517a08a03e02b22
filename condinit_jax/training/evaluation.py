"""Evaluation on a whole split."""

import math
from collections.abc import Callable

import jax
from jax.sharding import NamedSharding

from condinit_jax.errors import UserError
from condinit_jax.tasks import Batches
from condinit_jax.training.sharding import to_devices
from condinit_jax.training.state import State
from condinit_jax.training.window import RUN_AHEAD, ordered


def evaluate(
    step_fn: Callable[..., dict[str, jax.Array]],
    state: State,
    batches: Batches,
    sharding: NamedSharding,
) -> dict[str, float]:
    """Metrics over a whole split.

    Args:
        step_fn: Compiled `eval_step`.
        state: Gives the parameters; their average is used where there is one.
        batches: The split.
        sharding: Of a batch.

    Returns:
        The mean of each metric over the real examples, and their number as "count".

    Raises:
        UserError: If the split has no real example.
    """
    sums: list[dict[str, jax.Array]] = []
    for batch in batches:
        sums.append(step_fn(state.eval_params, state.collections, to_devices(batch, sharding)))
        if len(sums) > RUN_AHEAD:
            jax.block_until_ready(sums[-1 - RUN_AHEAD])
    host = jax.device_get(sums)
    totals = {k: math.fsum(float(s[k]) for s in host) for k in (host[0] if host else ())}
    count = totals.pop("count", 0.0)
    if count == 0:
        raise UserError("config.data.eval_split: has no readable example; give one that has")
    means = ordered({name: total / count for name, total in totals.items()})
    return {**means, "count": round(count)}
