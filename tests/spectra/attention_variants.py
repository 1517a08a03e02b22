"""Attention functions of several architectures, written out with einsum, for the tests to share.

Each is independent of the package's own attention: `attention(kernels, tokens)` takes kernels
(query, key, value[, out]) and gives an array. `VARIANTS` says which kernels each one reads.
"""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

TOKENS, WIDTH, DIM = 9, 7, 3  # nine tokens are a 3 x 3 window


@dataclasses.dataclass(frozen=True)
class Variant:
    """An attention function, the shapes of its kernels and of its tokens."""

    attention: Callable
    kernel_shapes: tuple[tuple[int, ...], ...] = ((WIDTH, DIM),) * 3
    token_shapes: tuple[tuple[int, ...], ...] = ((TOKENS, WIDTH),)

    def draw(self, seed=0):
        """Kernels (a tuple) and tokens (an array, or a tuple of two) in float64, on the host."""
        generator = np.random.default_rng(seed)
        kernels = tuple(
            generator.standard_normal(shape) / np.sqrt(shape[0]) for shape in self.kernel_shapes
        )
        tokens = tuple(generator.standard_normal(shape) for shape in self.token_shapes)
        return kernels, tokens if len(tokens) > 1 else tokens[0]


def projected(kernels, tokens, context=None):
    query, key, value = kernels[:3]
    context = tokens if context is None else context
    return (
        jnp.einsum("nw,w...->n...", tokens, query),
        jnp.einsum("mw,w...->m...", context, key),
        jnp.einsum("mw,w...->m...", context, value),
    )


def mix(query, key, value, bias=0.0):
    logits = jnp.einsum("nd,md->nm", query, key) / query.shape[-1] ** 0.5 + bias
    weights = jnp.exp(logits - logits.max(axis=1, keepdims=True))
    return jnp.einsum("nm,mv->nv", weights / weights.sum(axis=1, keepdims=True), value)


def softmax(kernels, tokens):
    return mix(*projected(kernels, tokens))


def cross(kernels, tokens):
    return mix(*projected(kernels, *tokens))


def causal(kernels, tokens):
    visible = np.tri(len(tokens), dtype=bool)
    return mix(*projected(kernels, tokens), bias=jnp.where(visible, 0.0, -jnp.inf))


def padded(kernels, tokens):
    visible = np.arange(len(tokens)) < len(tokens) - 2
    return mix(*projected(kernels, tokens), bias=jnp.where(visible, 0.0, -1e9)[None])


def window(kernels, tokens):
    """A 3 x 3 window with a bias for each relative position, as in Swin."""
    rows, columns = np.divmod(np.arange(len(tokens)), 3)
    table = np.random.default_rng(7).standard_normal((5, 5))
    bias = table[
        rows[:, None] - rows[None] + 2,
        columns[:, None] - columns[None] + 2,
    ]
    return mix(*projected(kernels, tokens), bias=jnp.asarray(bias, tokens.dtype))


def qk_norm(kernels, tokens):
    query, key, value = projected(kernels, tokens)
    gain = np.linspace(0.5, 1.5, query.shape[-1])

    def norm(rows):
        centred = rows - rows.mean(axis=-1, keepdims=True)
        return gain * centred / jnp.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-6)

    return mix(norm(query), norm(key), value)


def rotary(kernels, tokens):
    query, key, value = projected(kernels, tokens)
    angles = np.arange(len(tokens))[:, None] * np.array([1.0, 0.1])

    def rotate(rows):
        first, second = rows[:, :2], rows[:, 2:]
        cos, sin = jnp.cos(angles), jnp.sin(angles)
        return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)

    return mix(rotate(query), rotate(key), value)


def cross_covariance(kernels, tokens):
    """Attention of channels to channels, as in XCiT."""
    query, key, value = projected(kernels, tokens)
    query = query / jnp.sqrt((query**2).sum(axis=0, keepdims=True))
    key = key / jnp.sqrt((key**2).sum(axis=0, keepdims=True))
    weights = jax.nn.softmax(jnp.einsum("nc,ne->ce", query, key) / 0.7, axis=1)
    return jnp.einsum("ce,ne->nc", weights, value)


def linear(kernels, tokens):
    """Kernel attention with the feature map elu + 1."""
    query, key, value = projected(kernels, tokens)
    query, key = jax.nn.elu(query) + 1, jax.nn.elu(key) + 1
    memory = jnp.einsum("md,mv->dv", key, value)
    return jnp.einsum("nd,dv->nv", query, memory) / (query @ key.sum(axis=0))[:, None]


def nystrom(kernels, tokens):
    """Three landmarks, each the mean of three tokens, and an exact inverse between them."""
    query, key, value = projected(kernels, tokens)
    scale = query.shape[-1] ** -0.5
    query_marks = query.reshape(3, 3, -1).mean(axis=1)
    key_marks = key.reshape(3, 3, -1).mean(axis=1)
    first = jax.nn.softmax(scale * query @ key_marks.T, axis=1)
    middle = jax.nn.softmax(scale * query_marks @ key_marks.T, axis=1)
    return first @ jnp.linalg.solve(middle, mix(query_marks, key, value))


def block(kernels, tokens):
    """Two heads and the out projection."""
    query, key, value = projected(kernels, tokens)
    mixed = jax.vmap(mix, in_axes=1, out_axes=1)(query, key, value)
    return jnp.einsum("nhv,hvo->no", mixed, kernels[3])


def grouped(kernels, tokens):
    """Four query heads on two key and value heads, and the out projection."""
    query, key, value = projected(kernels, tokens)
    key, value = jnp.repeat(key, 2, axis=1), jnp.repeat(value, 2, axis=1)
    mixed = jax.vmap(mix, in_axes=1, out_axes=1)(query, key, value)
    return jnp.einsum("nhv,hvo->no", mixed, kernels[3])


VARIANTS = {
    "softmax": Variant(softmax),
    "one token": Variant(softmax, token_shapes=((1, WIDTH),)),
    "more dims than width": Variant(softmax, ((2, 5), (2, 5), (2, 4)), ((4, 2),)),
    "cross": Variant(cross, ((WIDTH, DIM), (5, DIM), (5, 4)), ((4, WIDTH), (6, 5))),
    "causal": Variant(causal),
    "padded": Variant(padded),
    "window": Variant(window),
    "qk norm": Variant(qk_norm),
    "rotary": Variant(rotary, ((WIDTH, 4),) * 3),
    "cross-covariance": Variant(cross_covariance),
    "linear": Variant(linear),
    "nystrom": Variant(nystrom),
    "block": Variant(block, ((WIDTH, 2, DIM),) * 3 + ((2, DIM, 5),)),
    "grouped": Variant(
        grouped,
        ((WIDTH, 4, DIM), (WIDTH, 2, DIM), (WIDTH, 2, DIM), (4, DIM, WIDTH)),
    ),
}
