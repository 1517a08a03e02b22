"""Many runs compared: a grid of methods and seeds, its statistics, and a report.

It knows training by the command that makes a run and by what runs leave on disk.
"""

from condinit_jax.experiments._commands import (
    ROOT,
    local_command,
    shell_line,
    slurm_script,
)
from condinit_jax.experiments._compare_runs import compare_runs
from condinit_jax.experiments._comparison import (
    Comparison,
    Correlation,
    Curve,
    Estimate,
    Method,
    Pair,
    Speed,
)
from condinit_jax.experiments._display import make_display
from condinit_jax.experiments._gather import find_runs, gather, label_of, read_run
from condinit_jax.experiments._grid import Cell, make_grid
from condinit_jax.experiments._launch import launch
from condinit_jax.experiments._plan import Plan, extended, read_plan, write_plan
from condinit_jax.experiments._run import FAILED, FINISHED, UNFINISHED, Run
from condinit_jax.experiments._slots import Slot, accelerators, make_slots
from condinit_jax.experiments._variant import Variant, read_variant, read_variants
from condinit_jax.experiments._verdict import verdict
from condinit_jax.experiments.report import write_report

__all__ = [
    "FAILED",
    "FINISHED",
    "ROOT",
    "UNFINISHED",
    "Cell",
    "Comparison",
    "Correlation",
    "Curve",
    "Estimate",
    "Method",
    "Pair",
    "Plan",
    "Run",
    "Slot",
    "Speed",
    "Variant",
    "accelerators",
    "compare_runs",
    "extended",
    "find_runs",
    "gather",
    "label_of",
    "launch",
    "local_command",
    "make_display",
    "make_grid",
    "make_slots",
    "read_plan",
    "read_run",
    "read_variant",
    "read_variants",
    "shell_line",
    "slurm_script",
    "verdict",
    "write_plan",
    "write_report",
]
