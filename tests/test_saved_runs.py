"""Reading a run's checkpoints without knowing the run."""

import jax.numpy as jnp
import numpy as np
import pytest
from absl import logging

from condinit_jax.errors import UserError
from condinit_jax.saved_runs import quiet_logs, restore_saved, saved_steps
from condinit_jax.training.checkpoints import Checkpoints


@pytest.fixture
def workdir(tmp_path):
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=5)
    for step in (2, 10):
        state = {
            "params": {"kernel": jnp.full((2, 3), float(step))},
            "collections": {},
            "opt_state": {"mu": jnp.ones(4)},
            "ema": None,
        }
        checkpoints.save(step, state, {"step": step}, best=step)
    checkpoints.close()
    return tmp_path


def test_steps_are_listed_in_order_and_unfinished_ones_are_not(workdir):
    (workdir / "checkpoints" / "12.orbax-checkpoint-tmp-1").mkdir()
    assert saved_steps(workdir) == [2, 10]
    assert saved_steps(workdir / "nowhere") == []


def test_parts_of_a_state_come_back_and_absent_ones_are_none(workdir):
    state = restore_saved(workdir, 10, ("params", "collections", "ema"))
    np.testing.assert_array_equal(state["params"]["kernel"], np.full((2, 3), 10.0))
    assert isinstance(state["params"]["kernel"], np.ndarray)
    assert state["collections"] is None
    assert state["ema"] is None
    assert "opt_state" not in state


def test_a_step_that_cannot_be_read_is_one_line(workdir):
    with pytest.raises(UserError, match=r"checkpoints/3: cannot be read \(") as error:
        restore_saved(workdir, 3, ("params",))
    assert "\n" not in str(error.value)


def test_log_lines_come_back_afterwards():
    before = logging.get_verbosity()
    with quiet_logs():
        assert logging.get_verbosity() == logging.ERROR
    assert logging.get_verbosity() == before
