"""Training runs: state, optimizer, sharding, checkpoints, metrics, progress and the loop.

The loop knows a task only by its interface (`condinit_jax.tasks.Task`).
"""

from condinit_jax.training.loop import train
from condinit_jax.training.progress import BarProgress, PlainProgress, Progress, Silent
from condinit_jax.training.result import Result
from condinit_jax.training.window import NonFiniteError

__all__ = [
    "BarProgress",
    "NonFiniteError",
    "PlainProgress",
    "Progress",
    "Result",
    "Silent",
    "train",
]
