import jax
import jax.numpy as jnp
import numpy as np
import pytest

from condinit_jax.config import MeshConfig
from condinit_jax.errors import UserError
from condinit_jax.training.checkpoints import Checkpoints, check_layout, layout
from condinit_jax.training.sharding import make_mesh, param_shardings


def _state(value, mesh):
    tree = {"kernel": jnp.full((256, 128), value), "step": jnp.int32(value), "none": None}
    return jax.device_put(tree, param_shardings(tree, mesh))


@pytest.fixture
def open_checkpoints(tmp_path):
    opened = []

    def make(keep=2):
        opened.append(Checkpoints(tmp_path / "checkpoints", keep))
        return opened[-1]

    yield make
    for checkpoints in opened:
        checkpoints.close()


def test_the_latest_few_and_the_best_are_kept(open_checkpoints):
    checkpoints, mesh = open_checkpoints(keep=2), make_mesh(MeshConfig(data=1))
    for step in range(1, 7):
        checkpoints.save(step, _state(step, mesh), {"at": step}, best=min(step, 2))
    checkpoints.wait()
    assert checkpoints.latest() == 6
    kept = [int(p.name) for p in checkpoints.directory.iterdir()]
    assert sorted(kept) == [2, 5, 6]
    assert checkpoints.record(2) == {"at": 2}


def test_a_state_comes_back_bitwise_on_another_mesh(open_checkpoints):
    checkpoints = open_checkpoints()
    checkpoints.save(3, _state(0.1, make_mesh(MeshConfig(fsdp=8))), {}, best=3)
    checkpoints.wait()
    mesh = make_mesh(MeshConfig(fsdp=2))
    shapes = jax.eval_shape(lambda: _state(0.0, mesh))
    shardings = param_shardings(shapes, mesh)
    restored = checkpoints.restore(3, shapes, shardings)
    np.testing.assert_array_equal(restored["kernel"], np.full((256, 128), 0.1, np.float32))
    assert restored["kernel"].sharding == shardings["kernel"]


def test_a_save_in_the_background_survives_donation(open_checkpoints):
    checkpoints, mesh = open_checkpoints(), make_mesh(MeshConfig(fsdp=4))
    bump = jax.jit(lambda s: jax.tree.map(lambda x: x + 1, s), donate_argnums=0)
    state = _state(0, mesh)
    for step in (1, 2):
        state = bump(state)
        checkpoints.save(step, state, {}, best=1)
    bump(bump(state))
    checkpoints.wait()
    shapes = jax.eval_shape(lambda: _state(0, mesh))
    for step in (1, 2):
        restored = checkpoints.restore(step, shapes, param_shardings(shapes, mesh))
        assert np.all(np.asarray(restored["kernel"]) == step)


def test_leftovers_of_a_killed_save_are_no_checkpoint(open_checkpoints):
    checkpoints, mesh = open_checkpoints(), make_mesh(MeshConfig(data=1))
    checkpoints.save(1, _state(1, mesh), {}, best=1)
    checkpoints.wait()
    leftover = checkpoints.directory / "2.orbax-checkpoint-tmp"
    leftover.mkdir()
    (leftover / "half").write_text("x")
    again = open_checkpoints()
    assert again.latest() == 1
    again.save(2, _state(2, mesh), {}, best=1)
    again.wait()
    assert again.latest() == 2
    assert not leftover.exists()


def test_a_foreign_checkpoint_is_refused(open_checkpoints, tmp_path):
    (tmp_path / "checkpoints" / "7" / "default").mkdir(parents=True)
    checkpoints = open_checkpoints()
    with pytest.raises(UserError, match="checkpoint 7 was not written by this program"):
        checkpoints.record(7)


def _identity(shapes, model):
    return {"layout": layout(shapes), "config": {"model": model, "seed": 0}}


def test_another_models_checkpoint_is_refused_with_the_reason(tmp_path):
    wide = {"head": {"kernel": jax.ShapeDtypeStruct((8, 10), "float32")}}
    narrow = {"head": {"kernel": jax.ShapeDtypeStruct((4, 10), "float32")}}
    with pytest.raises(UserError) as error:
        check_layout(_identity(wide, {"width": 8}), _identity(narrow, {"width": 4}), tmp_path, 100)
    text = str(error.value)
    assert "head/kernel is float32[8,10] there, float32[4,10] in this run" in text
    assert "(model.width: 8 -> 4)" in text
    assert "\n" not in text


def test_a_changed_seed_is_the_same_model(tmp_path):
    tree = {"kernel": jax.ShapeDtypeStruct((8,), "float32")}
    saved, present = _identity(tree, {}), _identity(tree, {})
    check_layout(saved, {**present, "config": {"seed": 1}}, tmp_path, 1)
