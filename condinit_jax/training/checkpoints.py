"""Checkpoints of a run: written in the background, the latest few and the best kept.

A checkpoint is the training state and a record: what model and optimizer it belongs to, and the
loop's own few figures. The record is read first, so a checkpoint of another model is refused with
a reason before any array is read. Arrays come back on the present mesh, whatever mesh saved them.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import chex
import jax
import orbax.checkpoint as ocp
from orbax.checkpoint import checkpoint_managers

from condinit_jax.config import diff
from condinit_jax.errors import UserError
from condinit_jax.training.paths import path_names


class _Best(checkpoint_managers.PreservationPolicy):
    """Keeps the checkpoint of one step."""

    def __init__(self) -> None:
        self.step: int | None = None

    def should_preserve(
        self,
        checkpoints: Sequence[checkpoint_managers.PolicyCheckpointInfo],
        *,
        context: checkpoint_managers.PreservationContext,
    ) -> Sequence[bool]:
        return [checkpoint.step == self.step for checkpoint in checkpoints]


class Checkpoints:
    """The checkpoints in one directory.

    Attributes:
        directory: Absolute path; made if absent.

    Args:
        directory: As the attribute.
        keep: How many of the latest are kept, besides the best.
    """

    def __init__(self, directory: Path, keep: int) -> None:
        self.directory = directory
        self._best = _Best()
        latest = checkpoint_managers.LatestN(keep)
        self._manager = ocp.CheckpointManager(
            directory,
            options=ocp.CheckpointManagerOptions(
                preservation_policy=checkpoint_managers.AnyPreservationPolicy([latest, self._best]),
                cleanup_tmp_directories=True,
            ),
        )

    def latest(self) -> int | None:
        """Step of the latest complete checkpoint, if there is one."""
        return self._manager.latest_step()

    def save(self, step: int, state: chex.ArrayTree, record: dict[str, Any], best: int) -> None:
        """Copies the state from the devices and writes it in the background.

        Args:
            step: Step of the state.
            state: What `restore` will give back.
            record: JSON-able; what `record` will give back.
            best: Step of the best checkpoint, possibly this one.
        """
        self._best.step = best
        self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), record=ocp.args.JsonSave(record)
            ),
        )

    def record(self, step: int) -> dict[str, Any]:
        """The record saved with a step.

        Args:
            step: A step that has a checkpoint.

        Returns:
            The record.

        Raises:
            UserError: If the checkpoint has none.
        """
        if not (self.directory / str(step) / "record").is_dir():
            raise UserError(
                f"{self.directory}: checkpoint {step} was not written by this program; "
                "use an empty workdir"
            )
        return self._manager.restore(
            step, args=ocp.args.Composite(record=ocp.args.JsonRestore())
        ).record

    def restore(self, step: int, shapes: chex.ArrayTree, shardings: chex.ArrayTree) -> Any:
        """The state saved at a step.

        Args:
            step: A step that has a checkpoint.
            shapes: The state's structure, shapes and dtypes.
            shardings: Where its arrays shall live.

        Returns:
            The state.

        Raises:
            UserError: If it cannot be read.
        """
        target = jax.tree.map(
            lambda x, sharding: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
            shapes,
            shardings,
        )
        try:
            return self._manager.restore(
                step, args=ocp.args.Composite(state=ocp.args.StandardRestore(target))
            ).state
        except Exception as error:
            # Layout and record were read and fit, so what is left is damage on disk.
            reason = " ".join(str(error).split())[:200]
            earlier = [other for other in self._manager.all_steps() if other < step]
            remedy = (
                f"remove that directory to go on from step {max(earlier)}"
                if earlier
                else "use another workdir"
            )
            raise UserError(
                f"{self.directory / str(step)}: cannot be read ({reason}); {remedy}"
            ) from error

    def wait(self) -> None:
        """Waits until everything handed to `save` is on disk."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Waits and frees the background threads."""
        self._manager.close()


def layout(shapes: chex.ArrayTree) -> dict[str, str]:
    """Names, shapes and dtypes of a tree, as JSON holds them.

    Args:
        shapes: Tree of arrays or `jax.ShapeDtypeStruct`.

    Returns:
        "dtype[shape]" by path.

    Example:
        >>> layout({"dense": {"bias": jax.ShapeDtypeStruct((3,), "float32")}})
        {'dense/bias': 'float32[3]'}
    """
    return {
        "/".join(path_names(path)): f"{leaf.dtype}[{','.join(map(str, leaf.shape))}]"
        for path, leaf in jax.tree_util.tree_leaves_with_path(shapes)
    }


def check_layout(
    saved: Mapping[str, Any], present: Mapping[str, Any], directory: Path, step: int
) -> None:
    """Refuses a checkpoint whose arrays are not those of the present run.

    Args:
        saved: The checkpoint's "layout" and "config".
        present: The run's "layout" and "config".
        directory: Where the checkpoint is, for the message.
        step: Its step, for the message.

    Raises:
        UserError: One line with what differs.
    """
    before, after = saved["layout"], present["layout"]
    if before == after:
        return
    differing = [name for name in {**after, **before} if before.get(name) != after.get(name)]
    name = differing[0]
    reasons = [
        line
        for line in diff(saved["config"], present["config"])
        if line.startswith(("model.", "data.", "optimizer.", "ema_decay"))
    ]
    raise UserError(
        f"{directory}: holds another run's checkpoint (step {step}): {name} is "
        f"{before.get(name, 'absent')} there, {after.get(name, 'absent')} in this run"
        + (f" ({'; '.join(reasons[:3])})" if reasons else "")
        + "; use another workdir"
    )
