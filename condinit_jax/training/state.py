"""What a step reads and writes, and how it is born."""

from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax
from flax import struct

from condinit_jax.methods import Method, NetworkMethod
from condinit_jax.surgery import reinitialize
from condinit_jax.tasks import OFFSETS, Task

INIT_KEY, METHOD_KEY, STEP_KEY, REFINE_KEY = range(4)
"""Purposes folded into the root key: drawing parameters, rewriting them, randomness in steps, and
in the steps of a refinement."""


@struct.dataclass
class State:
    """Everything that changes from step to step.

    The data order and all random draws are functions of the seed and `step`, so this is also all
    that a checkpoint must hold.

    Attributes:
        step: Finished optimizer steps, an int32 scalar.
        params: Trained parameters.
        collections: The model's other variables, such as running statistics.
        opt_state: The optimizer's state.
        ema: Average of the parameters over steps; None where none is kept.
    """

    step: jax.Array
    params: chex.ArrayTree
    collections: chex.ArrayTree
    opt_state: chex.ArrayTree
    ema: chex.ArrayTree | None

    @property
    def eval_params(self) -> chex.ArrayTree:
        """The parameters to evaluate: the average where there is one."""
        return self.params if self.ema is None else self.ema


def method_data(method: Method | NetworkMethod | None) -> Any:
    """What a method reads besides parameters and key: an argument of `init_state`, for `jit`.

    Args:
        method: As for `init_state`.

    Returns:
        A pytree of arrays; None for most methods.
    """
    return method.data() if isinstance(method, NetworkMethod) else None


def init_state(
    root: jax.Array,
    data: Any = None,
    *,
    task: Task,
    optimizer: optax.GradientTransformation,
    method: Method | NetworkMethod | None,
    average: bool,
) -> State:
    """The state before the first step; pure, so that `jit` gives it its shardings at birth.

    Args:
        root: Root key of the run.
        data: Of a method on the whole network, what it reads; `method_data` gives it. None where
            only the state's shapes are wanted, on which it has no bearing.
        task: Draws the model's variables.
        optimizer: Makes the optimizer's state.
        method: Rewrites the attention kernels or the network; None keeps the model's own draw.
        average: Whether an average of the parameters is kept; it starts at the parameters.

    Returns:
        The state at step 0.
    """
    collections = dict(task.init(jax.random.fold_in(root, INIT_KEY)))
    params = collections.pop("params")
    key = jax.random.fold_in(root, METHOD_KEY)
    if isinstance(method, NetworkMethod):
        params = method.rewrite(key, params, data)
        if method.offsets is not None:
            collections[OFFSETS] = method.offsets(params)
    elif method is not None:
        params = reinitialize(params, key, method)
    return State(
        step=jnp.zeros((), jnp.int32),
        params=params,
        collections=collections,
        opt_state=optimizer.init(params),
        ema=params if average else None,
    )
