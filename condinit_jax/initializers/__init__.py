"""Kernel-level initializers: `factory(...)` gives `init(key, shape, dtype)`, pure JAX."""

from condinit_jax.initializers._conditioned import conditioned
from condinit_jax.initializers._draw import Initializer
from condinit_jax.initializers._plain import (
    he_normal,
    he_uniform,
    lecun_normal,
    lecun_uniform,
    normal,
    small,
    truncated_normal,
    xavier_normal,
    xavier_uniform,
)
from condinit_jax.initializers._rectangular_identity import rectangular_identity
from condinit_jax.initializers._semi_orthogonal import orthogonal, semi_orthogonal

__all__ = [
    "Initializer",
    "conditioned",
    "he_normal",
    "he_uniform",
    "lecun_normal",
    "lecun_uniform",
    "normal",
    "orthogonal",
    "rectangular_identity",
    "semi_orthogonal",
    "small",
    "truncated_normal",
    "xavier_normal",
    "xavier_uniform",
]
