"""Sharding must change no bit under XLA's own optimisation, which the other tests turn off."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import jax, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
import condinit_jax as cj

jax.config.update("jax_num_cpu_devices", 8)
mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
for shape in [(768, 12 * 64), (96, 12 * 8)]:
    init = cj.semi_orthogonal(12)
    draw = lambda key: init(key, shape)
    plain = np.asarray(jax.jit(draw)(jax.random.key(0)))
    for spec in [P("a"), P(None, "b"), P(("a", "b")), P("a", "b")]:
        sharded = jax.jit(draw, out_shardings=NamedSharding(mesh, spec))(jax.random.key(0))
        assert np.array_equal(sharded, plain), (shape, spec)

kernel = {"kernel": np.zeros((3, 768, 12, 64), np.float32)}
kernels = {role: kernel for role in ("query", "key", "value")}
for method in (cj.methods.conditioned(), cj.methods.truncated_normal()):
    rewrite = lambda key: cj.reinitialize(kernels, key, method)
    plain = jax.jit(rewrite)(jax.random.key(0))
    for spec in [P(None, "a"), P(None, None, "b"), P(None, ("a", "b")), P(None, "a", "b")]:
        shardings = jax.tree.map(lambda _: NamedSharding(mesh, spec), kernels)
        sharded = jax.jit(rewrite, out_shardings=shardings)(jax.random.key(0))
        jax.tree.map(np.testing.assert_array_equal, sharded, plain)
print("same bits")
"""


@pytest.mark.slow
def test_a_sharded_kernel_is_bitwise_the_unsharded_one_when_optimised():
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.endswith("same bits\n"), done.stderr
