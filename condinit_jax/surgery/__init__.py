"""Attention blocks in a parameter tree: `attention_blocks` finds, `reinitialize` rewrites them."""

from condinit_jax.surgery._blocks import AttentionBlock, Where, attention_blocks
from condinit_jax.surgery._offsets import with_offsets
from condinit_jax.surgery._reinitialize import reinitialize

__all__ = ["AttentionBlock", "Where", "attention_blocks", "reinitialize", "with_offsets"]
