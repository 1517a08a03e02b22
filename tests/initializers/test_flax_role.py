"""The one look into Flax's private module stack: fails loudly on a release that changes it."""

import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import pytest

from condinit_jax.initializers._flax_role import FlaxRole, enclosing_role

ALL = {FlaxRole(role, 4) for role in ("query", "key", "value", "out")}


def recording_attention(seen):
    def record(key, shape, dtype=jnp.float32):
        seen.append(enclosing_role())
        return jnp.zeros(shape, dtype)

    return lambda: nn.MultiHeadDotProductAttention(num_heads=4, kernel_init=record)


class Block(nn.Module):
    """One attention layer, as the body of nn.scan."""

    make: object

    @nn.compact
    def __call__(self, x, _):
        return self.make()(x), None


def initialise(wrap, make):
    x = jnp.ones((1, 5, 32))
    if wrap == "scan":
        model = nn.scan(Block, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)(
            make
        )
        return lambda: model.init(jax.random.key(0), x, None)
    if wrap == "remat":
        model = nn.remat(Block)(make)
        return lambda: model.init(jax.random.key(0), x, None)
    model = make()
    init = lambda: model.init(jax.random.key(0), x)  # noqa: E731
    return {
        "plain": init,
        "jit": jax.jit(init),
        "eval_shape": lambda: jax.eval_shape(init),
        "apply": lambda: jax.eval_shape(lambda: model.apply(init(), x)),
    }[wrap]


@pytest.mark.parametrize("wrap", ["plain", "jit", "eval_shape", "apply", "scan", "remat"])
def test_role_and_heads_are_known_for_each_of_the_four_kernels(wrap):
    seen = []
    initialise(wrap, recording_attention(seen))()
    assert set(seen) == ALL, (
        f"flax {flax.__version__} no longer shows the enclosing module where "
        "condinit_jax/initializers/_flax_role.py looks for it: conditioned() cannot know its role"
    )


def test_other_modules_have_no_role():
    seen = []

    def record(key, shape, dtype=jnp.float32):
        seen.append(enclosing_role())
        return jnp.zeros(shape, dtype)

    class NoHeads(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(8, kernel_init=record, name="query")(x)

    nn.Dense(8, kernel_init=record).init(jax.random.key(0), jnp.ones((1, 8)))
    NoHeads().init(jax.random.key(0), jnp.ones((1, 8)))
    record(jax.random.key(0), (1,))
    assert seen == [None, None, None]
