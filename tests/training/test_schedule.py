import math
from typing import get_args, get_type_hints

import jax
import pytest

from condinit_jax.config import ScheduleConfig
from condinit_jax.training.schedule import DECAYS, build_schedule

PEAK, END, STEPS, WARMUP, START = 0.8, 0.1, 100, 20, 0.2


def _decay(name, t):
    progress = min(t / (STEPS - WARMUP), 1)
    return {
        "cosine": END + (PEAK - END) * 0.5 * (1 + math.cos(math.pi * progress)),
        "linear": PEAK + (END - PEAK) * progress,
        "one_cycle": PEAK + (END - PEAK) * progress,
        "constant": PEAK,
        "rsqrt": PEAK * math.sqrt(WARMUP / (t + WARMUP)),
    }[name]


NAMES = get_args(get_type_hints(ScheduleConfig)["name"])


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_follows_its_closed_form(name):
    schedule = build_schedule(
        ScheduleConfig(name=name, warmup_steps=WARMUP, warmup_lr=START, end_lr=END), PEAK, STEPS
    )
    for t in (0, 1, 7, 19, 20, 21, 50, 99, 100, 130):
        expected = START + (PEAK - START) * t / WARMUP if t < WARMUP else _decay(name, t - WARMUP)
        assert float(schedule(t)) == pytest.approx(expected, rel=1e-5), t


@pytest.mark.parametrize("name", NAMES)
def test_a_schedule_is_the_same_inside_jit_and_starts_at_the_peak_without_warmup(name):
    schedule = build_schedule(ScheduleConfig(name=name), PEAK, STEPS)
    assert float(jax.jit(schedule)(5)) == pytest.approx(float(schedule(5)))
    assert float(schedule(0)) == pytest.approx(0.0 if name == "one_cycle" else PEAK)


def test_one_cycle_without_warmup_peaks_after_three_tenths():
    schedule = build_schedule(ScheduleConfig(name="one_cycle"), PEAK, STEPS)
    rates = [float(schedule(t)) for t in range(STEPS + 1)]
    assert max(rates) == rates[30] == pytest.approx(PEAK)
    assert rates[-1] == 0


@pytest.mark.parametrize("name", NAMES)
def test_a_run_shorter_than_its_warmup_only_warms_up(name):
    schedule = build_schedule(ScheduleConfig(name=name, warmup_steps=10), 1.0, 3)
    assert [float(schedule(t)) for t in range(3)] == pytest.approx([0.0, 0.1, 0.2])


def test_the_table_and_the_config_know_the_same_names():
    assert set(NAMES) == {*DECAYS, "rsqrt"}
