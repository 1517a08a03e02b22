"""The schema has the named model's and method's fields; its choices are the real tables."""

import typing

import pytest

from condinit_jax.config import Config, ScheduleConfig
from condinit_jax.config._schema import find_field, flatten, schema, unknown
from condinit_jax.data import SOURCES
from condinit_jax.methods import METHODS
from condinit_jax.models import MODELS
from condinit_jax.refine import REFINERS
from condinit_jax.tasks import TASKS
from condinit_jax.training.optimizer import RULES
from condinit_jax.training.schedule import build_schedule

FIELDS = schema("vit", "conditioned")


@pytest.mark.parametrize(
    ("path", "table"),
    [
        ("model.name", MODELS),
        ("init.method", ["default", *METHODS]),
        ("init.refine.name", ["none", *REFINERS]),
        ("data.source", SOURCES),
        ("task.name", TASKS),
        ("optimizer.name", RULES),
    ],
)
def test_the_choices_of_a_name_are_the_table_it_selects_from(path, table):
    assert set(typing.get_args(FIELDS[path].annotation)) == set(table)


@pytest.mark.parametrize("name", typing.get_args(FIELDS["schedule.name"].annotation))
def test_every_schedule_that_a_config_may_name_exists(name):
    schedule = build_schedule(ScheduleConfig(name=name, warmup_steps=5), 1e-3, 20)
    assert float(schedule(5)) == pytest.approx(1e-3, rel=0.5)


def test_the_schema_names_the_model_and_method_it_is_of():
    assert FIELDS["model.name"].default == "vit"
    assert FIELDS["init.method"].default == "conditioned"
    assert not [path for path in schema("vit", "default") if path.startswith("init.v")]


@pytest.mark.parametrize("name", REFINERS)
def test_the_schema_has_the_documented_fields_of_the_named_refinement(name):
    fields = schema("vit", "conditioned", name)
    own = [path for path in fields if path.startswith("init.refine.")]
    assert fields["init.refine.name"].default == name
    assert {"init.refine.steps", "init.refine.lr", "init.refine.gamma"} <= set(own)
    assert all(fields[path].doc for path in own)
    assert set(own) & set(FIELDS) == {"init.refine.name"}


def test_a_refinements_field_without_its_name_asks_for_the_name():
    message = str(unknown("init.refine.steps", 5, FIELDS))
    assert message == (
        "config.init.refine.steps = 5: needs config.init.refine.name, to be set to gradinit or nio"
    )
    message = str(unknown("init.refine.split", 5, schema("vit", "default", "nio")))
    assert message.endswith("did you mean config.init.refine.splits?")


def test_every_default_is_accepted_by_its_own_field():
    for path, field in FIELDS.items():
        assert field.accept(field.default) == field.default, path
    assert dict(flatten({"seed": Config().seed})) == {"seed": FIELDS["seed"].default}


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("optimizer.learning_rate", "optimizer.lr"),
        ("optimizer.wd", "optimizer.weight_decay"),
        ("bs", "batch_size"),
        ("epoch", "epochs"),
        ("warmup_steps", "schedule.warmup_steps"),
        ("optimizer.steps", "steps"),
        ("model.heads", "model.num_heads"),
        ("model.lr", "optimizer.lr"),
        ("init.values", "init.value"),
        ("dta.flip", "data.flip"),
        ("data.name.x", "data.name"),
    ],
)
def test_an_unknown_field_names_the_nearest_known_one(path, nearest):
    assert str(unknown(path, 1, FIELDS)) == (
        f"config.{path} = 1: unknown field; did you mean config.{nearest}?"
    )


def test_a_field_like_no_other_gets_the_list_of_all():
    assert "unknown field; there are seed, steps, " in str(unknown("zzzz", 1, FIELDS))


def test_a_long_or_many_lined_value_is_shown_on_one_short_line():
    class Long:
        def __repr__(self):
            return "line\n" * 100

    assert len(str(unknown("zzzz", Long(), {}))) < 150
    assert "\n" not in str(unknown("zzzz", Long(), {}))


@pytest.mark.parametrize(
    ("path", "nearest"),
    [
        ("init.std", "init.stddev"),
        ("init.stdev", "init.stddev"),
        ("optimizer.weight", "optimizer.weight_decay"),
        ("schedule.warmup", "schedule.warmup_steps"),
    ],
)
def test_a_near_name_in_the_same_group_comes_before_the_same_name_elsewhere(path, nearest):
    message = str(unknown(path, 1, schema("vit", "normal")))
    assert message.endswith(f"did you mean config.{nearest}?")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("steps", "steps"),
        ("lr", "optimizer.lr"),
        ("optimizer.lr", "optimizer.lr"),
        ("stddev", "init.stddev"),
        ("name", None),
        ("workdri", None),
        ("", None),
    ],
)
def test_a_bare_name_finds_the_one_field_that_has_it(name, path):
    assert find_field(name) == path
