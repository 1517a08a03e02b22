"""Attention blocks in a parameter tree: `attention_blocks` finds, `reinitialize` rewrites them.

`Naming` describes trees that do not use Flax's names; `namings` has descriptions of known models.
"""

from condinit_jax.surgery import namings
from condinit_jax.surgery._blocks import AttentionBlock, Where, attention_blocks
from condinit_jax.surgery._naming import Naming
from condinit_jax.surgery._offsets import with_offsets
from condinit_jax.surgery._reinitialize import reinitialize

__all__ = [
    "AttentionBlock",
    "Naming",
    "Where",
    "attention_blocks",
    "namings",
    "reinitialize",
    "with_offsets",
]
