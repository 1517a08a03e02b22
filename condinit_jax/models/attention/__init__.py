"""Attention layers that several architectures share; their kernels are named as Flax names them."""

from condinit_jax.models.attention._softmax import SoftmaxAttention

__all__ = ["SoftmaxAttention"]
