import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from condinit_jax.config import MeshConfig
from condinit_jax.methods import NetworkMethod
from condinit_jax.tasks import OFFSETS
from condinit_jax.training.sharding import make_mesh, param_shardings
from condinit_jax.training.state import init_state, method_data


def _born(task, mesh_config, average=True):
    mesh = make_mesh(mesh_config)
    init = functools.partial(
        init_state, task=task, optimizer=optax.adam(0.1), method=None, average=average
    )
    shardings = param_shardings(jax.eval_shape(init, jax.random.key(3)), mesh)
    return jax.jit(init, out_shardings=shardings)(jax.random.key(3)), shardings


@pytest.mark.parametrize(("data", "fsdp"), [(8, 1), (2, 4), (1, 8)])
def test_initial_values_are_bitwise_the_same_on_every_mesh(fake_task, data, fsdp):
    task = fake_task(width=1024)
    one, _ = _born(task, MeshConfig(data=1))
    many, shardings = _born(task, MeshConfig(data=data, fsdp=fsdp))
    jax.tree.map(np.testing.assert_array_equal, one, many)
    assert jax.tree.map(lambda x: x.sharding, many) == shardings


def test_large_parameters_and_their_moments_are_split(fake_task):
    state, _ = _born(fake_task(width=1024), MeshConfig(fsdp=8))
    for leaf in (
        state.params["dense"]["kernel"],
        state.opt_state[0].mu["dense"]["kernel"],
        state.ema["dense"]["kernel"],
    ):
        assert leaf.addressable_shards[0].data.shape == (32, 128)
    assert state.params["head"]["kernel"].sharding.is_fully_replicated


def test_the_average_starts_at_the_parameters_in_buffers_of_its_own(fake_task):
    state, _ = _born(fake_task(), MeshConfig(data=1))
    jax.tree.map(np.testing.assert_array_equal, state.params, state.ema)
    donated = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)(state)
    assert state.params["dense"]["kernel"].is_deleted()
    assert float(donated.ema["dense"]["bias"][0]) == 1.0


def test_evaluation_uses_the_average_where_there_is_one(fake_task):
    with_average, _ = _born(fake_task(), MeshConfig(data=1))
    without, _ = _born(fake_task(), MeshConfig(data=1), average=False)
    assert with_average.eval_params is with_average.ema
    assert without.ema is None
    assert without.eval_params is without.params


def test_a_method_on_the_network_reads_its_data_and_its_constants_are_a_collection(fake_task):
    def rewrite(key, params, data):
        return {**params, "head": {"kernel": params["head"]["kernel"] * 0 + data["value"]}}

    method = NetworkMethod(
        rewrite,
        data=lambda: {"value": np.float32(3)},
        offsets=lambda params: {"dense": {"bias": jnp.full_like(params["dense"]["bias"], 5.0)}},
    )
    init = functools.partial(
        init_state, task=fake_task(), optimizer=optax.adam(0.1), method=method, average=True
    )
    state = jax.jit(init)(jax.random.key(3), method_data(method))
    assert (state.params["head"]["kernel"] == 3).all()
    assert (state.ema["head"]["kernel"] == 3).all()
    assert (state.collections[OFFSETS]["dense"]["bias"] == 5).all()
    assert not state.params["dense"]["bias"].any()
    assert set(state.collections) == {"counts", OFFSETS}
    assert jax.tree.structure(state.opt_state[0].mu) == jax.tree.structure(state.params)


def test_a_block_method_and_the_default_read_no_data():
    assert method_data(None) is None
    assert method_data(lambda key, kernels: kernels) is None
