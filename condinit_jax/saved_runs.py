"""What a run left on disk, read without knowing the run: its checkpoints' steps and arrays."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from absl import logging

from condinit_jax.errors import UserError

CHECKPOINTS = "checkpoints"
"""The directory of a run's checkpoints, inside its workdir."""


def saved_steps(workdir: Path) -> list[int]:
    """The steps of which a run has a complete checkpoint.

    Args:
        workdir: Directory of the run; need not exist.

    Returns:
        The steps, in order.

    Example:
        >>> saved_steps(Path("runs/nowhere"))
        []
    """
    directory = workdir / CHECKPOINTS
    if not directory.is_dir():
        return []
    # A checkpoint that is being written has another name.
    return sorted(int(path.name) for path in directory.iterdir() if path.name.isdecimal())


def restore_saved(workdir: Path, step: int, names: Sequence[str]) -> dict[str, Any]:
    """Parts of a saved state, on the host; a run that goes on is not disturbed.

    Args:
        workdir: Directory of the run.
        step: A step that `saved_steps` lists.
        names: Fields of `condinit_jax.training.state.State`.

    Returns:
        By name, nested dictionaries of NumPy arrays; None for a field without arrays.

    Raises:
        UserError: If it cannot be read.
    """
    directory = workdir / CHECKPOINTS
    try:
        with quiet_logs(), _manager(directory) as manager:
            shapes: Any = manager.item_metadata(step)["state"]
            wanted = {name: shapes[name] for name in names if jax.tree.leaves(shapes.get(name))}
            target = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), wanted)
            args = ocp.args.PyTreeRestore(item=wanted, restore_args=target, partial_restore=True)
            state = manager.restore(step, args=ocp.args.Composite(state=args))["state"]
    except Exception as error:
        # A checkpoint that was listed and cannot be read is damaged, or was removed meanwhile.
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{directory / str(step)}: cannot be read ({reason})") from error
    return {name: state.get(name) for name in names}


def _manager(directory: Path) -> ocp.CheckpointManager:
    return ocp.CheckpointManager(
        directory.absolute(),
        options=ocp.CheckpointManagerOptions(read_only=True),
        item_handlers={"state": ocp.PyTreeCheckpointHandler()},
    )


@contextmanager
def quiet_logs() -> Iterator[None]:
    """Keeps Orbax's log lines off the terminal, unless absl's verbosity is debug."""
    before = logging.get_verbosity()
    if before < logging.DEBUG:
        logging.set_verbosity(logging.ERROR)
    try:
        yield
    finally:
        logging.set_verbosity(before)
