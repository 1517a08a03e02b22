"""The architectures, by the name that a config's `model.name` gives."""

from collections.abc import Mapping
from types import MappingProxyType

from flax import linen as nn

from condinit_jax.models.vit import ViT

MODELS: Mapping[str, type[nn.Module]] = MappingProxyType({"vit": ViT})

__all__ = ["MODELS", "ViT"]
