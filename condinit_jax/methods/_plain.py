"""The plain initializers as methods: every named kernel drawn on its own.

By default they touch the kernels that conditioned initialization touches, so that a comparison
changes nothing else; `kernels=("query", "key", "value", "out")` takes the out kernel along.
"""

from collections.abc import Collection

from jaxtyping import Array

from condinit_jax import initializers
from condinit_jax.initializers import Initializer
from condinit_jax.kernels import AttentionKernels
from condinit_jax.methods._method import INPUTS, Method, checked_roles, rewrite


def lifted(init: Initializer, kernels: Collection[str] = INPUTS) -> Method:
    """A method that draws each named kernel with one initializer, through its flat shape.

    Args:
        init: initializer of (inputs, outputs) kernels, such as any in `jax.nn.initializers`.
        kernels: which of query, key, value and out to rewrite.

    Returns:
        The method.

    Raises:
        ValueError: if `kernels` holds another name.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.kernels import AttentionKernels
        >>> zeros = jnp.zeros((64, 4, 16))
        >>> method = lifted(jax.nn.initializers.he_normal(), kernels=("query",))
        >>> block = method(jax.random.key(0), AttentionKernels(zeros, zeros, zeros))
        >>> bool(block.query.any()), bool(block.key.any())
        (True, False)
    """
    roles = checked_roles(kernels)

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        return rewrite(key, kernels, dict.fromkeys(roles, init))

    return method


def truncated_normal(stddev: float = 0.02, kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.truncated_normal(stddev)` on each named kernel.

    Args:
        stddev: standard deviation of the entries.
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.truncated_normal(stddev), kernels)


def normal(stddev: float = 0.02, kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.normal(stddev)` on each named kernel.

    Args:
        stddev: standard deviation of the entries.
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.normal(stddev), kernels)


def xavier_uniform(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.xavier_uniform()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.xavier_uniform(), kernels)


def xavier_normal(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.xavier_normal()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.xavier_normal(), kernels)


def he_uniform(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.he_uniform()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.he_uniform(), kernels)


def he_normal(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.he_normal()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.he_normal(), kernels)


def lecun_uniform(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.lecun_uniform()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.lecun_uniform(), kernels)


def lecun_normal(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.lecun_normal()` on each named kernel, fans of the flat kernel.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.lecun_normal(), kernels)


def orthogonal(kernels: Collection[str] = INPUTS) -> Method:
    """`condinit_jax.orthogonal()`: one orthogonal matrix per named kernel, for all its heads.

    Args:
        kernels: which of query, key, value and out to rewrite.
    """
    return lifted(initializers.orthogonal(), kernels)


def semi_orthogonal(kernels: Collection[str] = INPUTS) -> Method:
    """Every head of the named kernels semi-orthogonal on its own, the value kernel too.

    The ablation of conditioned initialization whose value kernel is random. Of the four kernels,
    out has its heads in rows and is not offered.

    Args:
        kernels: which of query, key and value to rewrite.
    """
    roles = checked_roles(kernels)
    if "out" in roles:
        raise ValueError("kernels = 'out': semi_orthogonal rewrites query, key and value only")

    def method(key: Array, kernels: AttentionKernels) -> AttentionKernels:
        rules = {
            role: initializers.semi_orthogonal(getattr(kernels, role).shape[1]) for role in roles
        }
        return rewrite(key, kernels, rules)

    return method
