"""The vision transformer (Dosovitskiy et al., https://arxiv.org/abs/2010.11929)."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float, Float32

from condinit_jax.errors import UserError
from condinit_jax.initializers import truncated_normal
from condinit_jax.models.block import Block, stacked
from condinit_jax.models.drop_path import drop_path_rates
from condinit_jax.models.norms import NORMS, norm_layer
from condinit_jax.models.positions import sincos2d
from condinit_jax.models.residual import POST_NORM, SKIPS, skip_weights
from condinit_jax.models.token_conditioning import TOKEN_CONDITIONING

VARIANTS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "micro": MappingProxyType({"width": 64, "depth": 4, "num_heads": 4}),
        "ti": MappingProxyType({"width": 192, "depth": 12, "num_heads": 3}),
        "s": MappingProxyType({"width": 384, "depth": 12, "num_heads": 6}),
        "b": MappingProxyType({"width": 768, "depth": 12, "num_heads": 12}),
        "l": MappingProxyType({"width": 1024, "depth": 24, "num_heads": 16}),
    }
)


class PatchEmbed(nn.Module):
    """One linear map of each square patch to a token.

    The kernel has the shape of a convolution's, (patch, patch, channels, width), and the layer is
    computed as a matrix product over cut patches, which is faster on CPUs and under `vmap`.
    Kernel and bias start uniform in +-1/sqrt(patch * patch * channels).

    Attributes:
        patch_size: side of a patch, pixels.
        width: size of a token.
        dtype: dtype of the computation; parameters are float32.
    """

    patch_size: int
    width: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, images: Float[Array, "batch height width channels"]) -> Float[Array, "..."]:
        """Gives the tokens (batch, rows * columns, width), row by row."""
        batch, height, width, channels = images.shape
        size = self.patch_size
        fan_in = size * size * channels

        def init(key: Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> Array:
            bound = 1.0 / math.sqrt(fan_in)
            return jax.random.uniform(key, shape, dtype, -bound, bound)

        kernel = self.param("kernel", init, (size, size, channels, self.width))
        bias = self.param("bias", init, (self.width,))
        patches = images.astype(self.dtype).reshape(
            batch, height // size, size, width // size, size, channels
        )
        patches = patches.transpose(0, 1, 3, 2, 4, 5).reshape(batch, -1, fan_in)
        kernel = kernel.astype(self.dtype).reshape(fan_in, self.width)
        return patches @ kernel + bias.astype(self.dtype)


class ViT(nn.Module):
    """A vision transformer with timm's structure, parameter counts and initial distributions.

    Patches become tokens; a class token may join them; positions are added; pre-norm blocks
    follow; the class token, or the mean over all tokens, is normalised and classified. With other
    values of `residual`, `norm` and `token_conditioning` it differs from timm's in just that; the
    norm before the head stays with every `residual`, although the first transformer's post-norm
    blocks had none after them.

    The parameters are `patch_embed`, `cls_token` (pool "cls"), `pos_embed` (positions "learned"),
    `blocks`, `norm` and `head`. Every array under `blocks` carries all layers, stacked along its
    first axis: `blocks/attention/query/kernel` has shape (depth, width, heads, width / heads).

    Initial values, as in timm 1.0 with its default weight_init: kernels of dense layers, attention
    and head, and learned positions, are normal with deviation 0.02 cut at +-2; the class token is
    normal with deviation 1e-6; kernel and bias of the patch embedding are uniform in
    +-1/sqrt(fan in); other biases are 0 and norms' scales 1.

    Attributes:
        patch_size: side of the square patches, pixels; divides the image's height and width.
        width: size of a token.
        depth: number of blocks.
        num_heads: attention heads per block; divides width.
        mlp_ratio: hidden width of the MLPs divided by width.
        num_classes: number of logits; 0 gives the normalised features without a head.
        pool: what is classified: "cls", a learned class token, or "gap", the mean over the tokens
            of the patches, without a class token.
        positions: "learned", one vector per token, for the image size seen at initialization, or
            "sincos2d", fixed (`condinit_jax.models.positions.sincos2d`; zero for a class token).
        drop_path: probability that the last block's branches are left out for an example in
            training, in [0, 1); the first block's is 0, and it is linear in between.
        layer_scale: initial value of a learned scale per channel on every branch; 0 leaves it out.
        norm: "layernorm", "rmsnorm", or "none" for no norm anywhere, as T-Fixup needs it.
        norm_eps: constant above 0 added to the variance (or mean square) in every norm.
        qk_norm: whether queries and keys are normalised per head, with the same norm.
        residual: how branches join the tokens (`condinit_jax.models.residual`): "pre_norm";
            "post_norm", norms after the sums; "deepnorm", post-norm with the skips weighed by
            (2 depth)^(1/4); "skipless", without any skip; "skipless_attention", without attention's
            only. The last two allow no `drop_path`, post-norm and deepnorm no `norm` "none".
        token_conditioning: what is done to each example's tokens before the first block
            (`condinit_jax.models.token_conditioning`): "none"; "gray_svd" or "gray_dct", token
            graying by singular values or cosine coefficients; "embedded", conditioned embedded
            tokens. "gray_svd" and "embedded" take an SVD of every example in every step.
        token_exponent: power in (0, 1] of token graying; unused without it.
        remat: whether the backward pass computes a block's activations again instead of storing
            them: less memory, about a third more time.
        scan_unroll: blocks per step of the compiled loop, from 1 (fast to compile) to depth; the
            parameters' layout is the same for all.
        dtype: dtype of the computation; parameters, attention's softmax, the last norm and the
            logits are float32 always.
    """

    patch_size: int = 16
    width: int = 192
    depth: int = 12
    num_heads: int = 3
    mlp_ratio: float = 4.0
    num_classes: int = 1000
    pool: Literal["cls", "gap"] = "cls"
    positions: Literal["learned", "sincos2d"] = "learned"
    drop_path: float = 0.0
    layer_scale: float = 0.0
    norm: Literal["layernorm", "rmsnorm", "none"] = "layernorm"
    norm_eps: float = 1e-6
    qk_norm: bool = False
    residual: Literal["pre_norm", "post_norm", "deepnorm", "skipless", "skipless_attention"] = (
        "pre_norm"
    )
    token_conditioning: Literal["none", "gray_svd", "gray_dct", "embedded"] = "none"
    token_exponent: float = 0.95
    remat: bool = False
    scan_unroll: int = 1
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, images: Float[Array, "batch height width channels"], *, train: bool = False
    ) -> Float32[Array, "batch classes"]:
        """Classifies images.

        Args:
            images: normalised images (batch, height, width, channels); any number of channels.
            train: whether drop-path acts; where `drop_path` > 0 it needs an rng "dropout".

        Returns:
            float32 logits (batch, num_classes), or features (batch, width) if num_classes is 0.

        Raises:
            UserError: if a field is out of its range, or does not fit the image or another field.
        """
        _check_fields(self)
        _check_image(self, images.shape)
        tokens = PatchEmbed(self.patch_size, self.width, self.dtype, name="patch_embed")(images)
        if self.pool == "cls":
            cls_token = self.param("cls_token", nn.initializers.normal(1e-6), (self.width,))
            shape = (tokens.shape[0], 1, self.width)
            cls_tokens = jnp.broadcast_to(cls_token.astype(self.dtype), shape)
            tokens = jnp.concatenate([cls_tokens, tokens], axis=1)
        tokens = tokens + self._positions(images.shape).astype(self.dtype)
        tokens = TOKEN_CONDITIONING[self.token_conditioning](tokens, self.token_exponent)

        blocks = stacked(
            Block, self.depth, unroll=min(self.scan_unroll, self.depth), remat=self.remat
        )
        tokens, _ = blocks(
            num_heads=self.num_heads,
            hidden=int(self.width * self.mlp_ratio),
            layer_scale=self.layer_scale,
            norm=self.norm,
            norm_eps=self.norm_eps,
            qk_norm=self.qk_norm,
            residual=self.residual,
            depth=self.depth,
            drop=train and self.drop_path > 0,
            dtype=self.dtype,
            name="blocks",
        )(tokens, jnp.asarray(drop_path_rates(self.drop_path, self.depth)))

        tokens = tokens.astype(jnp.float32)
        pooled = tokens[:, 0] if self.pool == "cls" else tokens.mean(axis=1)
        features = norm_layer(self.norm, self.norm_eps, jnp.float32, name="norm")(pooled)
        if not self.num_classes:
            return features
        return nn.Dense(
            self.num_classes,
            kernel_init=truncated_normal(0.02),
            dtype=jnp.float32,
            name="head",
        )(features)

    @nn.nowrap
    def _positions(self, image_shape: tuple[int, ...]) -> Float32[Array, "tokens width"]:
        """Gives the position embedding of every token."""
        rows, columns = (side // self.patch_size for side in image_shape[1:3])
        prefix = 1 if self.pool == "cls" else 0
        if self.positions == "sincos2d":
            return jnp.pad(sincos2d(rows, columns, self.width), ((prefix, 0), (0, 0)))
        shape = (prefix + rows * columns, self.width)
        stored: Array | None = self.get_variable("params", "pos_embed")
        if stored is not None and stored.shape != shape:
            raise UserError(
                f"positions: learned for {stored.shape[0] - prefix} patches, but an image of "
                f"{image_shape[1]} x {image_shape[2]} pixels has {rows * columns} of patch_size "
                f"{self.patch_size}; use the image size of initialization"
            )
        return self.param("pos_embed", truncated_normal(0.02), shape)


def vit(variant: str, **fields: Any) -> ViT:
    """Makes a ViT of a named size.

    Args:
        variant: a name in `VARIANTS`: "micro" (for tests and laptops), "ti", "s", "b" or "l".
        **fields: fields of `ViT`, over those of the variant.

    Returns:
        The module.

    Raises:
        UserError: if the variant does not exist.

    Example:
        >>> vit("b", patch_size=32).num_heads
        12
    """
    if variant not in VARIANTS:
        raise UserError(f"variant: {variant!r} is none of {', '.join(VARIANTS)}")
    return ViT(**{**VARIANTS[variant], **fields})


def _check_fields(model: ViT) -> None:
    """Raises a UserError for the first field that is out of range or at odds with another."""
    for name in ("patch_size", "width", "depth", "num_heads", "scan_unroll"):
        if getattr(model, name) < 1:
            raise UserError(f"{name}: {getattr(model, name)} is not positive; use 1 or more")
    for name, names in (
        ("pool", ("cls", "gap")),
        ("positions", ("learned", "sincos2d")),
        ("norm", tuple(NORMS)),
        ("residual", tuple(SKIPS)),
        ("token_conditioning", tuple(TOKEN_CONDITIONING)),
    ):
        if getattr(model, name) not in names:
            raise UserError(f"{name}: {getattr(model, name)!r} is none of {', '.join(names)}")
    if model.width % model.num_heads:
        raise UserError(
            f"num_heads: {model.num_heads} does not divide width {model.width}; use a divisor"
        )
    if model.positions == "sincos2d" and model.width % 4:
        raise UserError(f"width: {model.width} is no multiple of 4, as positions sincos2d needs")
    if int(model.width * model.mlp_ratio) < 1:
        raise UserError(f"mlp_ratio: {model.mlp_ratio} leaves no hidden unit; use 4.0 or so")
    if not 0 <= model.drop_path < 1:
        raise UserError(f"drop_path: {model.drop_path} is no probability in [0, 1)")
    if not model.norm_eps > 0:
        raise UserError(f"norm_eps: {model.norm_eps} is not positive; use 1e-6 or so")
    if model.norm == "none" and model.residual in POST_NORM:
        raise UserError(
            f"norm: 'none' leaves residual {model.residual} without its norms; use layernorm or "
            "rmsnorm, or residual pre_norm"
        )
    if model.norm == "none" and model.qk_norm:
        raise UserError("qk_norm: True normalises with norm, which is 'none'; use qk_norm False")
    if model.drop_path and not all(skip_weights(model.residual, model.depth)):
        raise UserError(
            f"drop_path: {model.drop_path} with residual {model.residual} leaves nothing of an "
            "example whose branch is dropped; use 0"
        )
    if not 0 < model.token_exponent <= 1:
        raise UserError(f"token_exponent: {model.token_exponent} is not in (0, 1]; use 0.95 or so")
    if model.layer_scale < 0:
        raise UserError(f"layer_scale: {model.layer_scale} is negative; use 0 to leave it out")
    if model.num_classes < 0:
        raise UserError(f"num_classes: {model.num_classes} is negative; use 0 for features")


def _check_image(model: ViT, shape: tuple[int, ...]) -> None:
    """Raises a UserError if images of this shape cannot be cut into patches."""
    if len(shape) != 4:
        raise UserError(f"images: shape {shape} is not (batch, height, width, channels)")
    for side in shape[1:3]:
        if side % model.patch_size or side == 0:
            raise UserError(
                f"patch_size: {model.patch_size} does not divide the image's side of {side} pixels;"
                f" use a divisor of {side}"
            )
