"""Where tokens stand: the sine-cosine embedding, as numbers that a model or a method builds on."""

import numpy as np
from jaxtyping import Float64


def sincos2d(
    rows: int, columns: int, width: int, *, temperature: float = 10_000.0
) -> Float64[np.ndarray, "tokens width"]:
    """Sine-cosine embeddings of the positions of a grid, row by row.

    `condinit_jax.models.positions.sincos2d` gives them to models, and the formula with its sources.

    Args:
        rows: height of the grid, tokens.
        columns: width of the grid, tokens.
        width: size of an embedding, a multiple of 4.
        temperature: inverse of the lowest frequency.

    Returns:
        float64 embeddings (rows * columns, width).

    Raises:
        ValueError: if the width is no multiple of 4.

    Example:
        >>> print(sincos2d(1, 2, 4).round(2))
        [[0.   1.   0.   1.  ]
         [0.84 0.54 0.   1.  ]]
    """
    if width % 4 or width < 4:
        raise ValueError(f"width = {width}: sine-cosine positions need a multiple of 4")
    count = width // 4
    frequencies = temperature ** -(np.arange(count) / max(count - 1, 1))
    y, x = np.mgrid[:rows, :columns].reshape(2, -1, 1) * frequencies
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)
