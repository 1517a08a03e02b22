"""What the tests of models share: compilation and weights that cost little."""

import functools

import jax
import numpy as np
import pytest


@pytest.fixture(scope="session")
def quick_jit():
    """jax.jit that compiles several times faster to slower code: these models are tiny."""
    options = {"xla_backend_optimization_level": 0}
    fewer = {**options, "xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(jax.lax.neg, compiler_options=fewer).lower(0.0).compile()
    except jax.errors.JaxRuntimeError:
        # Newer versions of XLA have no other emitters.
        return functools.partial(jax.jit, compiler_options=options)
    return functools.partial(jax.jit, compiler_options=fewer)


@pytest.fixture(scope="session")
def draw_variables():
    """Draws a module's variables far from their initial values, so that every branch matters."""

    def draw(module, *inputs, scale=0.4):
        rng = np.random.default_rng(0)
        shapes = jax.eval_shape(module.init, jax.random.key(0), *inputs)
        return jax.tree.map(
            lambda leaf: (scale * rng.standard_normal(leaf.shape)).astype(np.float32), shapes
        )

    return draw
