"""How a block's branches join the tokens: where its norms stand, and what its skips weigh."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

SKIPS: Mapping[str, Callable[[int], tuple[float, float]]] = MappingProxyType(
    {
        "pre_norm": lambda depth: (1.0, 1.0),
        "post_norm": lambda depth: (1.0, 1.0),
        "deepnorm": lambda depth: ((2 * depth) ** 0.25,) * 2,
        "skipless": lambda depth: (0.0, 0.0),
        "skipless_attention": lambda depth: (0.0, 1.0),
    }
)
"""By name, from the depth of the network to the weights of attention's and the MLP's skip."""

POST_NORM = frozenset({"post_norm", "deepnorm"})
"""Where a norm takes the sum of skip and branch; in the others it takes the branch's input."""


def skip_weights(residual: str, depth: int) -> tuple[float, float]:
    """Gives the weights of the skip connections of a block.

    With a_1 and a_2 these weights, f_1 attention and f_2 the MLP, a block computes, for i = 1, 2,

        x <- a_i x + f_i(norm_i(x))     or, where the name is in `POST_NORM`,
        x <- norm_i(a_i x + f_i(x)).

    - "pre_norm": a = 1, as ViT has it.
    - "post_norm": a = 1, the first transformer's (https://arxiv.org/abs/1706.03762).
    - "deepnorm": a = (2 depth)^(1/4), for networks of encoder blocks only or decoder blocks only
      (DeepNet, https://arxiv.org/abs/2203.00555). Its scale of initial kernels is no part of this.
    - "skipless": a = 0, no skip at all (Cutting the Skip, https://arxiv.org/abs/2510.00345: all
      skips of attention and MLP removed, no drop-path; read in a summary and a third party's
      reproduction, not in the paper itself). Norms stay before the branches.
    - "skipless_attention": a_1 = 0 and a_2 = 1, the ablation of Always Skip Attention
      (https://arxiv.org/abs/2505.01996).

    Args:
        residual: a name in `SKIPS`.
        depth: number of blocks in the network.

    Returns:
        a_1, beside attention, and a_2, beside the MLP.

    Example:
        >>> skip_weights("deepnorm", 8)
        (2.0, 2.0)
        >>> skip_weights("skipless_attention", 8)
        (0.0, 1.0)
    """
    return SKIPS[residual](depth)
