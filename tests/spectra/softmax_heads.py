"""Softmax heads of every kind that the structured paths know, and their dense Jacobian."""

import jax
import jax.numpy as jnp
import numpy as np

from condinit_jax.spectra import Head, head_output


def rms_norm(scale, queries):
    return scale * queries / jnp.sqrt(jnp.mean(queries**2, axis=-1, keepdims=True) + 1e-6)


def rotary(queries):
    length, dim = queries.shape
    angles = jnp.arange(length)[:, None] * 10.0 ** -jnp.arange(dim // 2)
    cos, sin = jnp.cos(angles), jnp.sin(angles)
    first, second = queries[:, : dim // 2], queries[:, dim // 2 :]
    return jnp.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)


def plain(tokens=7, width=9, dim=4, seed=0):
    rng = np.random.default_rng(seed)
    return Head(rng.normal(size=(tokens, width)), *rng.normal(size=(3, width, dim)) / width**0.5)


def replace(head, **fields):
    return Head(**{**vars(head), **fields})


def make_heads():
    """Heads by name."""
    rng = np.random.default_rng(1)
    head = plain()
    length, dim = head.tokens.shape[0], head.query.shape[1]
    bias = rng.normal(size=(4, dim))
    partial = jax.tree_util.Partial
    return {
        "plain": head,
        "scaled, biased logits": replace(
            head, scale=np.float64(0.8), logit_bias=rng.normal(size=(length, length))
        ),
        "causal": replace(head, mask=np.tril(np.ones((length, length), bool))),
        "padded": replace(head, mask=np.tile(np.arange(length) < 5, (length, 1))),
        "minus infinity": replace(
            head, logit_bias=np.where(np.tril(np.ones((length, length))) > 0, 0.0, -np.inf)
        ),
        "biased projections": replace(
            head, query_bias=bias[0], key_bias=bias[1], value_bias=bias[2]
        ),
        "cross": replace(
            head,
            context=rng.normal(size=(5, 6)),
            key=rng.normal(size=(6, dim)),
            value=rng.normal(size=(6, dim)),
        ),
        "wider values": replace(head, value=rng.normal(size=(9, 6))),
        "qk-norm": replace(
            head,
            query_map=partial(rms_norm, 1 + 0.1 * bias[0]),
            key_map=partial(rms_norm, 1 + 0.1 * bias[1]),
        ),
        "rotary": replace(head, query_map=partial(rotary), key_map=partial(rotary)),
        "query map only": replace(head, query_map=partial(rms_norm, np.ones(dim))),
        "wide": plain(5, 30, 3),
        "long": plain(40, 6, 3),
        "long, query bias": replace(plain(40, 6, 3), query_bias=np.ones(3)),
        "long, rotary": replace(
            plain(40, 6, 4), query_map=partial(rotary), key_map=partial(rotary)
        ),
        "head wider than tokens": plain(6, 3, 5),
        "one token": plain(1, 5, 3),
        "width one": plain(6, 4, 1),
    }


def dense_jacobian(head):
    """J by `jax.jacfwd`, float64."""
    with jax.enable_x64(True):
        kernels = tuple(jnp.asarray(kernel) for kernel in head.kernels)
        parts = jax.jacfwd(lambda kernels: head_output(head, kernels))(kernels)
        rows = head.tokens.shape[0] * head.value.shape[1]
        return np.concatenate([np.asarray(part).reshape(rows, -1) for part in parts], axis=1)


HEADS = make_heads()
