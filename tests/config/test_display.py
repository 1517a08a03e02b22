"""Differences and meanings of configs, as people read them."""

import dataclasses
import json

from condinit_jax.config import (
    Config,
    DataConfig,
    OptimizerConfig,
    default,
    describe,
    diff,
    override,
    parse,
    to_dict,
)


def small(*assignments):
    return override(default(), ["steps=10", "model.patch_size=4", *assignments])


def test_equal_configs_do_not_differ_even_after_json():
    stored = to_dict(parse(small()))
    assert diff(json.loads(json.dumps(stored)), stored) == []
    assert diff(dataclasses.asdict(parse(small())), stored) == []


def test_each_differing_field_is_a_line_with_both_values():
    old = to_dict(parse(small()))
    new = to_dict(parse(small("optimizer.lr=3e-3", "data.mean=0.25", "data.flip=true")))
    assert diff(old, new) == [
        "data.flip: false -> true",
        "data.mean: 0.5 -> 0.25",
        "optimizer.lr: 0.001 -> 0.003",
    ]


def test_a_field_that_only_one_config_has_is_named_absent():
    assert diff({"init": {"value": "joint"}}, {}) == ["init.value: joint -> (absent)"]
    assert diff({}, {"init": {"scale": None}}) == ["init.scale: (absent) -> none"]


def test_every_field_is_described_once_with_its_value_in_the_config():
    text = describe(small("optimizer.lr=3e-3", "init.method=conditioned"))
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    names = [line.split(" = ")[0] for line in lines if " = " in line and not line.startswith(" ")]
    assert len(names) == len(set(names))
    assert "optimizer.lr = 0.003" in text
    assert {"model.patch_size", "init.value", "data.source", "checkpoint.keep"} <= set(names)


def test_every_field_of_the_config_says_what_it_means():
    groups = (Config, *{entry.type for entry in dataclasses.fields(Config) if
                        dataclasses.is_dataclass(entry.type)})  # fmt: skip
    assert {DataConfig, OptimizerConfig} <= set(groups)
    for group in groups:
        for entry in dataclasses.fields(group):
            assert dataclasses.is_dataclass(entry.type) or entry.metadata["doc"], entry.name
