"""Conditioned Initialization for Attention (ICLR 2026) in JAX and Flax.

nn.MultiHeadDotProductAttention(num_heads=12, kernel_init=condinit_jax.conditioned())

params = condinit_jax.reinitialize(params, key, condinit_jax.methods.conditioned())
"""

from condinit_jax import methods
from condinit_jax._version import __version__
from condinit_jax.initializers import (
    conditioned,
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
    normal,
    orthogonal,
    rectangular_identity,
    semi_orthogonal,
    truncated_normal,
    xavier_normal,
    xavier_uniform,
)
from condinit_jax.kernels import AttentionKernels
from condinit_jax.surgery import (
    AttentionBlock,
    Naming,
    attention_blocks,
    namings,
    reinitialize,
    with_offsets,
)

__all__ = [
    "AttentionBlock",
    "AttentionKernels",
    "Naming",
    "__version__",
    "attention_blocks",
    "conditioned",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "methods",
    "namings",
    "normal",
    "orthogonal",
    "rectangular_identity",
    "reinitialize",
    "semi_orthogonal",
    "truncated_normal",
    "with_offsets",
    "xavier_normal",
    "xavier_uniform",
]
