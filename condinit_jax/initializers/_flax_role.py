"""Which kernel Flax is asking for: the one place that looks at the enclosing linen module.

`nn.MultiHeadDotProductAttention` calls a single `kernel_init(key, shape, dtype)` for its query, key
and value kernels, and for its out kernel too unless `out_kernel_init` is given. Neither the role
nor the head count follows from those arguments: (768, 768) may be any of the four with any number
of heads. Flax offers no public way to ask from inside an initializer; `flax.linen.module._context`
holds the stack of modules being called, the Dense layer named `query`, `key`, `value` or `out` on
top and the attention module as its parent. It is the same under `jit`, `nn.remat`, `nn.scan` and
`jax.eval_shape`. It is private, so `tests/initializers/test_flax_role.py` fails loudly on a Flax
release that changes it; the public alternative is `condinit_jax.reinitialize` after `init`.
"""

import operator
from typing import NamedTuple, SupportsIndex

from flax.linen import module as linen_module

from condinit_jax.kernels import ROLES, Role


class FlaxRole(NamedTuple):
    """What the enclosing linen attention says of the kernel being initialised."""

    role: Role
    num_heads: int


def enclosing_role() -> FlaxRole | None:
    """Role and head count of the kernel that linen is initialising now.

    Returns:
        None outside a linen module, or where the module is not the query, key, value or out layer
        of one that has `num_heads`.
    """
    stack = linen_module._context.module_stack
    layer = stack[-1] if stack else None
    num_heads = getattr(getattr(layer, "parent", None), "num_heads", None)
    if layer is None or not isinstance(num_heads, SupportsIndex):
        return None
    for role in ROLES:
        if layer.name == role:
            return FlaxRole(role, operator.index(num_heads))
    return None
