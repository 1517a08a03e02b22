"""Fixed position embeddings."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from condinit_jax import positions


def sincos2d(
    rows: int, columns: int, width: int, *, temperature: float = 10_000.0
) -> Float[Array, "tokens width"]:
    """Makes sine-cosine embeddings of the positions of a grid, row by row.

    With n = width / 4 and frequencies w_i = temperature^(-i / (n - 1)) for i = 0 ... n - 1 (w_0 = 1
    where n = 1), the embedding of column x and row y is the concatenation
    [sin(x w), cos(x w), sin(y w), cos(y w)]. This is MoCo v3's embedding (Chen et al.,
    https://arxiv.org/abs/2104.02057) as "Better plain ViT baselines" uses it (Beyer et al.,
    https://arxiv.org/abs/2205.01580); MoCo v3 itself divides i by n.

    Args:
        rows: height of the grid, tokens.
        columns: width of the grid, tokens.
        width: size of an embedding, a multiple of 4.
        temperature: inverse of the lowest frequency.

    Returns:
        float32 embeddings (rows * columns, width).

    Raises:
        ValueError: if the width is no multiple of 4.

    Example:
        >>> import numpy as np
        >>> print(np.asarray(sincos2d(1, 2, 4)).round(2))
        [[0.   1.   0.   1.  ]
         [0.84 0.54 0.   1.  ]]
    """
    embedding = positions.sincos2d(rows, columns, width, temperature=temperature)
    return jnp.asarray(embedding, jnp.float32)
