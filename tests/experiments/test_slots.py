"""How many runs at once, and where."""

import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import accelerators, make_slots

CORES = tuple(range(8))


def test_cores_are_shared_out_and_none_is_left_or_given_twice():
    slots = make_slots(3, "cpu", 1, CORES)
    assert sorted(core for slot in slots for core in slot.cores) == list(CORES)
    assert {len(slot.cores) for slot in slots} == {2, 3}


def test_one_job_on_a_cpu_has_all_cores():
    assert make_slots(1, "cpu", 1, CORES)[0].cores == ()


@pytest.mark.parametrize(("cores", "count"), [(1, 1), (2, 2), (64, 4)])
def test_a_cpu_has_a_job_per_core_up_to_four(cores, count):
    assert len(make_slots(None, "cpu", 1, tuple(range(cores)))) == count


def test_every_gpu_gets_a_job_and_sees_itself_alone(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    slots = make_slots(None, "gpu", 4, CORES)
    assert [slot.variables["CUDA_VISIBLE_DEVICES"] for slot in slots] == list("0123")


def test_fewer_jobs_share_all_gpus(monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    slots = make_slots(2, "gpu", 4, CORES)
    assert [slot.variables["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["0,2", "1,3"]


def test_gpus_that_the_user_chose_stay_the_ones_used(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,2")
    slots = make_slots(None, "gpu", 2, CORES)
    assert [slot.variables["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["5", "2"]


@pytest.mark.parametrize(
    ("jobs", "kind", "count", "message"),
    [
        (9, "cpu", 1, "--jobs = 9: this process may use 8 cores"),
        (3, "gpu", 2, "--jobs = 3: this machine has 2 GPUs"),
        (2, "tpu", 4, "--jobs = 2: a TPU's chips belong to one process"),
    ],
)
def test_more_jobs_than_room_is_a_mistake(jobs, kind, count, message):
    with pytest.raises(UserError, match=message):
        make_slots(jobs, kind, count, CORES)


def test_another_process_says_what_the_machine_has(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "")
    assert accelerators() == ("cpu", 1)


def test_jax_that_does_not_start_is_one_line(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "abacus")
    with pytest.raises(UserError, match=r"^JAX does not start on this machine: .*abacus"):
        accelerators()
