"""Multi-head softmax self-attention."""

import jax
import jax.numpy as jnp
from flax import linen as nn
from jaxtyping import Array, Float

from condinit_jax.initializers import truncated_normal
from condinit_jax.models.norms import norm_layer


class SoftmaxAttention(nn.Module):
    """Softmax attention of every token over all tokens of its example.

    With D the width, H heads and d = D / H, the parameters are those of
    `flax.linen.MultiHeadDotProductAttention`: `query`, `key` and `value` with kernels (D, H, d) and
    biases (H, d), `out` with kernel (H, d, D) and bias (D,). The output of head h is
    softmax(q_h k_h^T / sqrt(d)) v_h.

    Logits and softmax are in float32 whatever `dtype` is. QK-norm differs from Flax's
    `normalize_qk` in that it uses the norm of the whole model, with its bias if it has one.

    Attributes:
        num_heads: number of heads H; divides the width.
        qk_norm: whether queries and keys are normalised over d before their product.
        norm: norm used for that, a name in `condinit_jax.models.norms.NORMS`.
        norm_eps: constant added to the variance (or mean square) in that norm.
        dtype: dtype of the computation; parameters are float32.
    """

    num_heads: int
    qk_norm: bool = False
    norm: str = "layernorm"
    norm_eps: float = 1e-6
    dtype: jnp.dtype = jnp.float32

    @nn.compact
    def __call__(self, tokens: Float[Array, "batch length width"]) -> Float[Array, "..."]:
        """Attends.

        Args:
            tokens: token embeddings (batch, length, width).

        Returns:
            An array of the same shape, in `dtype`.
        """
        width = tokens.shape[-1]

        def project(name: str) -> Array:
            return nn.DenseGeneral(
                (self.num_heads, width // self.num_heads),
                kernel_init=truncated_normal(0.02),
                dtype=self.dtype,
                name=name,
            )(tokens)

        query, key, value = project("query"), project("key"), project("value")
        if self.qk_norm:
            query = norm_layer(self.norm, self.norm_eps, self.dtype, name="query_norm")(query)
            key = norm_layer(self.norm, self.norm_eps, self.dtype, name="key_norm")(key)
        mixed = jax.nn.dot_product_attention(query, key, value)
        return nn.DenseGeneral(
            width,
            axis=(-2, -1),
            kernel_init=truncated_normal(0.02),
            dtype=self.dtype,
            name="out",
        )(mixed)
