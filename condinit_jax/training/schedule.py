"""The learning rate as a function of the step.

Update number t (the first is 0) uses `schedule(t)`. All shapes warm up linearly from `warmup_lr` to
the peak over `warmup_steps`, and those that decay reach `end_lr` at t = steps, one past the last
update. A run shorter than its warm-up is valid and never leaves it.
"""

from collections.abc import Callable

import jax.numpy as jnp
import optax

from condinit_jax.config import ScheduleConfig

ONE_CYCLE_RISE = 0.3
"""Share of a one-cycle run spent rising where `warmup_steps` is 0."""


def _cosine(peak: float, end: float, steps: int) -> optax.Schedule:
    def schedule(count: optax.ScalarOrSchedule) -> jnp.ndarray:
        progress = jnp.clip(count / steps, 0.0, 1.0)
        return end + (peak - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))

    return schedule


def _linear(peak: float, end: float, steps: int) -> optax.Schedule:
    return optax.linear_schedule(peak, end, steps)


def _constant(peak: float, end: float, steps: int) -> optax.Schedule:
    del end, steps
    return optax.constant_schedule(peak)


DECAYS: dict[str, Callable[[float, float, int], optax.Schedule]] = {
    "cosine": _cosine,
    "linear": _linear,
    "one_cycle": _linear,
    "constant": _constant,
}


def build_schedule(config: ScheduleConfig, lr: float, steps: int) -> optax.Schedule:
    """Learning rate schedule of a run.

    - cosine: from the peak to `end_lr` along half a cosine.
    - linear: from the peak to `end_lr` along a line.
    - one_cycle: two lines, up and down; where `warmup_steps` is 0 the first takes 30 % of the run.
    - constant: the peak.
    - rsqrt: peak * sqrt(w / t) from t = w on, with w = max(warmup_steps, 1).

    Args:
        config: Shape of the schedule.
        lr: Peak learning rate.
        steps: Updates in the run.

    Returns:
        A function from the update's number (0 for the first) to its learning rate.

    Example:
        >>> schedule = build_schedule(ScheduleConfig(name="linear", warmup_steps=2), 1.0, 6)
        >>> [float(schedule(t)) for t in range(7)]
        [0.0, 0.5, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    warmup = config.warmup_steps
    if config.name == "one_cycle" and warmup == 0:
        warmup = round(ONE_CYCLE_RISE * steps)
    if config.name == "rsqrt":
        start = max(warmup, 1)

        def decay(count: optax.ScalarOrSchedule) -> jnp.ndarray:
            # Joined schedules count from their own start, here `warmup` updates into the run.
            return lr * jnp.sqrt(start / jnp.maximum(count + warmup, start))

    else:
        decay = DECAYS[config.name](lr, config.end_lr, max(steps - warmup, 1))
    if warmup == 0:
        return decay
    rise = optax.linear_schedule(config.warmup_lr, lr, warmup)
    return optax.join_schedules([rise, decay], [warmup])
