"""What a refinement is: a pure step on the scales of a network's parameters."""

import dataclasses
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from flax import struct

from condinit_jax.refine._scales import Stacked, floors, unit_scales
from condinit_jax.tasks import Batch, Task

B1, B2, EPS = 0.9, 0.999, 1e-8
"""Constants of Adam on the scales, those of both official codes."""

OBJECTIVE, CONSTRAINT = 0, 1
"""What a step may lower; each has moments of its own."""


@struct.dataclass
class Scales:
    """Everything that changes from one step of a refinement to the next.

    Attributes:
        values: One factor per tensor or layer; see `unit_scales`.
        counts: Steps so far on the objective and on the norm, an int32 pair.
        first: Adam's first moments, with a leading axis of 2 for the objective and the norm.
        second: Its second moments, the same.
    """

    values: Any
    counts: jax.Array
    first: Any
    second: Any


class RefineStep(Protocol):
    """One step of a refinement; pure, runs inside `jit`."""

    def __call__(
        self,
        scales: Scales,
        params: Any,
        collections: Any,
        batches: tuple[Batch, ...],
        key: jax.Array,
        *,
        task: Task,
    ) -> tuple[Scales, dict[str, jax.Array]]:
        """Moves the scales.

        Args:
            scales: Where they are.
            params: The parameters as they were drawn.
            collections: The model's other variables; they stay as they are.
            batches: As many training batches as the refiner's `batches`.
            key: Randomness of this step, such as dropout.
            task: Gives the loss.

        Returns:
            The scales after the step, and scalars: `loss` before it, `objective`, what the step
            lowered, `grad_norm`, and `constraint`, 1 where that was the norm.
        """
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Refiner:
    """A refinement: how many steps it takes and what a step does.

    Attributes:
        name: As in `REFINERS`.
        steps: Steps in the whole refinement.
        batches: Training batches that one step reads.
        step: One step.
        splits: Equal parts that a step cuts a batch into.
        remedy: What a person changes where a step fails, by its field of `config.init.refine`.
    """

    name: str
    steps: int
    batches: int
    step: RefineStep
    splits: int = 1
    remedy: str = "lr"


def begin(params: Any, stacked: Stacked = lambda path: False) -> Scales:
    """The scales before the first step: all 1.

    Args:
        params: A tree of arrays or `jax.ShapeDtypeStruct`.
        stacked: Which leaves hold one slice per layer and get one scale per slice, by their key
            path; none by default.

    Returns:
        The scales.

    Example:
        >>> float(begin({"head": {"kernel": jnp.ones((2, 3))}}).values["head"]["kernel"])
        1.0
    """
    values = unit_scales(params, stacked)
    moments = jax.tree.map(lambda s: jnp.zeros((2, *s.shape), s.dtype), values)
    return Scales(values, jnp.zeros(2, jnp.int32), moments, moments)


def move(
    scales: Scales,
    gradient: Any,
    constraint: jax.Array,
    *,
    lr: float,
    clip: float,
    min_scale: float,
    shared: bool,
) -> Scales:
    """One step of Adam on the scales, which are then kept above their bounds.

    Args:
        scales: Where they are.
        gradient: Of what is lowered, with the structure of `scales.values`.
        constraint: Whether that is the gradient norm, a boolean scalar.
        lr: Adam's learning rate.
        clip: Largest size of each entry of the gradient; 0 does not clip.
        min_scale: Smallest scale of a tensor that is not a bias; that of a bias is 0.
        shared: Whether objective and norm share their second moments.

    Returns:
        The scales after the step.
    """
    kind = jnp.where(constraint, CONSTRAINT, OBJECTIVE)
    slot = 0 if shared else kind
    counts = scales.counts.at[kind].add(1)
    seen, seen_squares = counts[kind], jnp.sum(counts) if shared else counts[kind]
    if clip > 0:
        gradient = jax.tree.map(lambda g: jnp.clip(g, -clip, clip), gradient)
    first = jax.tree.map(
        lambda m, g: m.at[kind].set(B1 * m[kind] + (1 - B1) * g), scales.first, gradient
    )
    second = jax.tree.map(
        lambda m, g: m.at[slot].set(B2 * m[slot] + (1 - B2) * g * g), scales.second, gradient
    )

    def moved(value: jax.Array, m: jax.Array, v: jax.Array, floor: float) -> jax.Array:
        mean = m[kind] / (1 - B1 ** seen.astype(m.dtype))
        square = v[slot] / (1 - B2 ** seen_squares.astype(v.dtype))
        return jnp.maximum(value - lr * mean / (jnp.sqrt(square) + EPS), floor)

    values = jax.tree.map(moved, scales.values, first, second, floors(scales.values, min_scale))
    return Scales(values, counts, first, second)


def check(
    name: str,
    value: float,
    *,
    above: float | None = None,
    least: float = 0,
    most: float | None = None,
) -> None:
    """Refuses a number outside its bounds.

    Args:
        name: The argument.
        value: What was given.
        above: It has to be larger than this, where given.
        least: Else it has to be at least this.
        most: It has to be at most this, where given.

    Raises:
        ValueError: "NAME = VALUE: must be ...".

    Example:
        >>> check("lr", 0.0, above=0)
        Traceback (most recent call last):
        ValueError: lr = 0.0: must be above 0
    """
    if above is not None and not value > above:
        raise ValueError(f"{name} = {value!r}: must be above {above}")
    if above is None and not value >= least:
        raise ValueError(f"{name} = {value!r}: must be at least {least}")
    if most is not None and not value <= most:
        raise ValueError(f"{name} = {value!r}: must be at most {most}")
