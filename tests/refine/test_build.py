import pytest

from condinit_jax.errors import UserError
from condinit_jax.refine import REFINERS, build


def test_no_refinement_is_none():
    for init in ({}, {"refine": {}}, {"refine": {"name": "none"}}, {"refine": None}):
        assert build(init) is None


@pytest.mark.parametrize("name", REFINERS)
def test_a_name_builds_its_refinement_with_its_arguments(name):
    refiner = build({"method": "default", "refine": {"name": name, "steps": 7}})
    assert (refiner.name, refiner.steps) == (name, 7)


@pytest.mark.parametrize(
    ("refine", "message"),
    [
        ({"name": "gradnit"}, "config.init.refine.name = 'gradnit': unknown name; did you "
         "mean 'gradinit'?"),
        ({"name": "nio", "stps": 3}, "config.init.refine.stps = 3: 'nio' has no such argument; "
         "did you mean 'steps'?"),
        ({"steps": 3}, "config.init.refine.steps = 3: 'none' has no such argument; it takes none"),
        ({"name": "gradinit", "gamma": -1.0}, "config.init.refine.gamma = -1.0: must be above 0"),
        ({"name": "gradinit", "eta": 0.0}, "config.init.refine.eta = 0.0: must be above 0"),
        ({"name": "gradinit", "rule": "lion"}, "config.init.refine.rule = 'lion': must be sgd or "
         "adam"),
        ({"name": "gradinit", "steps": 0}, "config.init.refine.steps = 0: must be at least 1"),
        ({"name": "nio", "lr": float("nan")}, "config.init.refine.lr = nan: must be above 0"),
        ({"name": "nio", "splits": 1}, "config.init.refine.splits = 1: must be at least 2"),
        ({"name": "nio", "min_scale": 5}, "config.init.refine.min_scale = 5: must be at most 1"),
        ({"name": "nio", "clip": -1.0}, "config.init.refine.clip = -1.0: must be at least 0"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_one_line_with_its_field(refine, message):
    with pytest.raises(UserError) as error:
        build({"refine": refine})
    assert str(error.value) == message
