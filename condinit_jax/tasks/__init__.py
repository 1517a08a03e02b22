"""What a batch means: the model, the loss and the metrics of a run."""

from collections.abc import Callable

from condinit_jax.config import Config
from condinit_jax.tasks._classification import Classification, classification
from condinit_jax.tasks._task import OFFSETS, Batch, Batches, Corrupt, Task, Variables

TASKS: dict[str, Callable[[Config], Task]] = {"classification": classification}
"""Every task by its name in a config."""


def build(config: Config) -> Task:
    """The task that a config names, with its data opened.

    Args:
        config: The run's fields, as parsed.

    Returns:
        The task.

    Raises:
        UserError: If the data cannot be opened or does not fit.
    """
    return TASKS[config.task.name](config)


__all__ = [
    "OFFSETS",
    "TASKS",
    "Batch",
    "Batches",
    "Classification",
    "Corrupt",
    "Task",
    "Variables",
    "build",
]
