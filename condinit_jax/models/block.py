"""The transformer block, and many of them run as one scan over stacked parameters."""

import functools
import math

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from condinit_jax.initializers import truncated_normal
from condinit_jax.models.attention import SoftmaxAttention
from condinit_jax.models.drop_path import drop_path
from condinit_jax.models.norms import norm_layer
from condinit_jax.models.residual import POST_NORM, skip_weights


# Saving only the input for the backward pass takes a quarter less memory and time in a small model.
# Where layers are unrolled, the compiler may merge the passes again: without that gain, no harm.
@functools.partial(jax.checkpoint, prevent_cse=False)
def gelu(values: Float[Array, "..."]) -> Float[Array, "..."]:
    """Computes the exact GELU, x Phi(x) with Phi the normal distribution function.

    Args:
        values: numbers of any shape.

    Returns:
        An array of the same shape and dtype.

    Example:
        >>> round(float(gelu(jnp.array(1.0))), 4)
        0.8413
    """
    # 1 + erf cancels for negative numbers in bfloat16.
    wide = values.astype(jnp.float32)
    return (0.5 * wide * (1.0 + jax.lax.erf(wide * math.sqrt(0.5)))).astype(values.dtype)


class Mlp(nn.Module):
    """Two dense layers with an exact GELU (not its tanh form) between them.

    Attributes:
        hidden: width between the two layers.
        dtype: dtype of the computation; parameters are float32.
    """

    hidden: int
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens: Float[Array, "batch length width"]) -> Float[Array, "..."]:
        """Applies the layers to every token; returns the shape it was given."""
        init = truncated_normal(0.02)
        hidden = nn.Dense(self.hidden, kernel_init=init, dtype=self.dtype, name="fc1")(tokens)
        return nn.Dense(tokens.shape[-1], kernel_init=init, dtype=self.dtype, name="fc2")(
            gelu(hidden)
        )


class Block(nn.Module):
    """A transformer block, pre-norm unless `residual` says otherwise.

    x <- x + drop(g1 * attention(norm1(x))), then x <- x + drop(g2 * mlp(norm2(x))), where drop
    leaves the branch out for random examples and g1, g2 are LayerScale's vectors (absent where
    `layer_scale` is 0). Other ways to join branches (`condinit_jax.models.residual`) weigh the x
    that is added to, or apply norm1 and norm2 to the sums; the parameters are the same in all.

    Attributes:
        num_heads: attention heads.
        hidden: width of the MLP's hidden layer.
        layer_scale: initial value of g1 and g2; 0 leaves them out.
        norm: a name in `condinit_jax.models.norms.NORMS`.
        norm_eps: constant added to the variance (or mean square) in the norms.
        qk_norm: whether queries and keys are normalised.
        residual: a name in `condinit_jax.models.residual.SKIPS`.
        depth: blocks in the whole network; only "deepnorm" depends on it.
        drop: whether branches are dropped; if so an rng "dropout" is needed.
        dtype: dtype of the computation; parameters are float32.
    """

    num_heads: int
    hidden: int
    layer_scale: float = 0.0
    norm: str = "layernorm"
    norm_eps: float = 1e-6
    qk_norm: bool = False
    residual: str = "pre_norm"
    depth: int = 1
    drop: bool = False
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(
        self, tokens: Float[Array, "batch length width"], drop_rate: Float[Array, ""]
    ) -> tuple[Float[Array, "batch length width"], None]:
        """Applies the block.

        Args:
            tokens: token embeddings (batch, length, width).
            drop_rate: probability that an example's branch is left out; unused unless `drop`.

        Returns:
            The new tokens, and None: the carry and the output of a step of a scan.
        """
        post_norm = self.residual in POST_NORM
        skip1, skip2 = skip_weights(self.residual, self.depth)

        def joined(
            tokens: Array, layer: nn.Module, norm: nn.Module, skip: float, scale_name: str
        ) -> Array:
            branch = layer(tokens if post_norm else norm(tokens))
            if self.layer_scale:
                init = nn.initializers.constant(self.layer_scale)
                scale = self.param(scale_name, init, tokens.shape[-1:])
                branch = branch * scale.astype(branch.dtype)
            if self.drop:
                branch = drop_path(branch, drop_rate, self.make_rng("dropout"))
            if skip:
                branch = (tokens if skip == 1 else skip * tokens) + branch
            return norm(branch) if post_norm else branch

        attention = SoftmaxAttention(
            self.num_heads, self.qk_norm, self.norm, self.norm_eps, self.dtype, name="attention"
        )
        mlp = Mlp(self.hidden, self.dtype, name="mlp")
        norm1 = norm_layer(self.norm, self.norm_eps, self.dtype, name="norm1")
        norm2 = norm_layer(self.norm, self.norm_eps, self.dtype, name="norm2")

        tokens = joined(tokens, attention, norm1, skip1, "layer_scale1")
        tokens = joined(tokens, mlp, norm2, skip2, "layer_scale2")
        return tokens, None


def stacked(block: type[nn.Module], depth: int, *, unroll: int, remat: bool) -> type[nn.Module]:
    """Turns a block into a stack of `depth` blocks with independent parameters.

    Args:
        block: module class whose call takes (carry, per-layer input) and gives (carry, None).
        depth: number of blocks.
        unroll: layers per step of the compiled loop; changes the speed of running and compiling,
            never the parameters' layout nor the result beyond rounding.
        remat: whether activations inside a block are computed again in the backward pass instead
            of stored.

    Returns:
        A module class with the fields of `block`. Its parameters, and whatever its layers sow into
        "intermediates", have the layers as leading axis; its call takes the per-layer inputs
        stacked along their first axis.
    """
    if remat:
        # Inside a loop the compiler cannot merge the two forward passes; unrolled ones it could.
        block = nn.remat(block, prevent_cse=unroll > 1)
    return nn.scan(
        block,
        variable_axes={"params": 0, "intermediates": 0},
        split_rngs={"params": True, "dropout": True},
        length=depth,
        unroll=unroll,
    )
