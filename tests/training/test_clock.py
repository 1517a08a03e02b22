import time

import pytest

from condinit_jax.training.clock import Clock


@pytest.fixture
def now(monkeypatch):
    """Time that only the test moves."""
    at = [1000.0]
    monkeypatch.setattr(time, "perf_counter", lambda: at[0])

    def move(seconds):
        at[0] += seconds

    return move


def test_pauses_are_no_training_time(now):
    clock = Clock()
    for _ in range(4):
        clock.count(10)
        now(1.0)
    with clock.paused():
        now(100.0)
    lap = clock.lap()
    assert lap == {"images_per_second": 10.0, "steps_per_second": 1.0, "seconds": 104.0}
    assert clock.images_per_second == 10.0


def test_a_lap_starts_where_the_last_one_ended(now):
    clock = Clock()
    clock.count(10)
    now(1.0)
    clock.lap()
    clock.count(10)
    now(0.5)
    assert clock.lap()["images_per_second"] == 20.0
    assert clock.images_per_second == pytest.approx(20 / 1.5)


def test_a_clock_goes_on_in_the_next_session(now):
    clock = Clock()
    clock.count(10)
    now(2.0)
    clock.lap()
    state = clock.state()
    now(50.0)
    later = Clock(**state)
    later.count(10)
    now(2.0)
    later.lap()
    assert later.seconds == 4.0
    assert later.images_per_second == 5.0
