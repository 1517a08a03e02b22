"""What a run is: its fields, their limits, and the ways to write, check and show them.

`default()` gives every field as an `ml_collections.ConfigDict`, which recipes in `configs/`, a
notebook or `--config.field=value` change; `parse` checks a changed one and gives it back as frozen,
typed dataclasses. The fields of `model`, `init` and `init.refine` belong to the model, method and
refinement that they name (`condinit_jax.models.MODELS`, `condinit_jax.methods.METHODS`,
`condinit_jax.refine.REFINERS`); all others are documented where they are declared, in
`condinit_jax/config/_fields.py`.
"""

from condinit_jax.config._command_line import read_arguments
from condinit_jax.config._display import describe, diff
from condinit_jax.config._fields import (
    CheckpointConfig,
    Config,
    DataConfig,
    MeshConfig,
    OptimizerConfig,
    ProbeConfig,
    ScheduleConfig,
    TaskConfig,
)
from condinit_jax.config._parse import default, parse, to_dict
from condinit_jax.config._recipes import load, override
from condinit_jax.config._schema import find_field

__all__ = [
    "CheckpointConfig",
    "Config",
    "DataConfig",
    "MeshConfig",
    "OptimizerConfig",
    "ProbeConfig",
    "ScheduleConfig",
    "TaskConfig",
    "default",
    "describe",
    "diff",
    "find_field",
    "load",
    "override",
    "parse",
    "read_arguments",
    "to_dict",
]
