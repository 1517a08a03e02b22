"""What runs at once: each job has cores, or an accelerator, of its own."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Mapping

from condinit_jax.errors import UserError

ASK = "import jax; print(jax.default_backend(), jax.local_device_count())"

MOST = 4
"""Runs at once on a CPU where nobody says how many: each takes memory of its own."""


@dataclasses.dataclass(frozen=True)
class Slot:
    """Room for one run at a time.

    Attributes:
        name: A number.
        cores: The cores that it may use; empty for all.
        variables: Environment variables that confine it to its device.
    """

    name: str
    cores: tuple[int, ...] = ()
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)


def accelerators() -> tuple[str, int]:
    """The kind and count of this machine's devices, as a run would see them.

    Another process asks: whoever opens an accelerator keeps its memory from the runs.

    Returns:
        Such as ``("gpu", 4)``; the count of CPU devices is 1.

    Raises:
        UserError: If JAX does not start.
    """
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines()[-1:]
        raise UserError(f"JAX does not start on this machine: {' '.join(reason)}")
    kind, count = done.stdout.split()[-2:]
    return kind, int(count)


def make_slots(jobs: int | None, kind: str, count: int, cores: tuple[int, ...]) -> list[Slot]:
    """The room that a machine has.

    Args:
        jobs: How many runs at once; None for one per GPU, one on a TPU, or on a CPU one per core
            up to `MOST`.
        kind: ``cpu``, ``gpu`` or ``tpu``.
        count: Its devices.
        cores: Of the CPU, those that this process may use.

    Returns:
        A slot for each.

    Raises:
        UserError: If there are more jobs than GPUs or cores, or several on a TPU.

    Example:
        >>> [slot.cores for slot in make_slots(2, "cpu", 1, (0, 1, 2, 3))]
        [(0, 2), (1, 3)]
        >>> make_slots(None, "gpu", 2, (0, 1))[1].variables["CUDA_VISIBLE_DEVICES"]
        '1'
    """
    if kind == "gpu":
        jobs = jobs or count
        if jobs > count:
            raise UserError(f"--jobs = {jobs}: this machine has {count} GPUs; give at most as many")
        # Some of the user's own choice, where there is one.
        chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = chosen.split(",") if chosen else [str(number) for number in range(count)]
        if jobs == 1:
            return [Slot("0")]
        shares = [",".join(names[n::jobs]) for n in range(jobs)]
        return [Slot(str(n), (), {"CUDA_VISIBLE_DEVICES": s}) for n, s in enumerate(shares)]
    if kind == "tpu":
        if (jobs or 1) > 1:
            raise UserError(
                f"--jobs = {jobs}: a TPU's chips belong to one process; leave it out, or spread "
                "the runs over machines with --slurm or --dry-run"
            )
        return [Slot("0")]
    jobs = jobs or min(len(cores), MOST)
    if jobs > len(cores):
        raise UserError(
            f"--jobs = {jobs}: this process may use {len(cores)} cores; give at most as many"
        )
    return [Slot(str(n), cores[n::jobs] if jobs > 1 else ()) for n in range(jobs)]
