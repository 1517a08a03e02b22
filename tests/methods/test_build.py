"""Methods by name, as a run's config has them."""

import numpy as np
import pytest

from condinit_jax import config as configs
from condinit_jax import methods
from condinit_jax.errors import UserError
from tests.methods.block_methods import KEY, block


def test_default_names_no_method():
    assert methods.build({"method": "default"}) is None
    assert methods.build({}) is None


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ({"method": "conditionned"}, "config.init.method = 'conditionned'.*mean 'conditioned'"),
        ({"method": "zzz"}, "it takes one of: default, conditioned"),
        ({"method": "conditioned", "valu": "joint"}, "config.init.valu.*did you mean 'value'"),
        ({"method": "default", "value": "joint"}, "config.init.value.*takes none"),
        ({"method": "conditioned", "value": "both"}, "must be one of per_head, joint"),
        ({"method": "conditioned", "kernels": ("out",)}, "leaves the out kernel alone"),
        ({"method": "semi_orthogonal", "kernels": "out"}, "query, key and value only"),
        ({"method": "normal", "stddev": -1.0}, "must be positive"),
        ({"method": "normal", "stddev": "big"}, "stddev = 'big': must be positive"),
        ({"method": "normal", "stddev": float("inf")}, "stddev = inf: must be positive and finite"),
        ({"method": "normal", "kernels": ("q",)}, "must be some of query, key, value, out"),
        ({"method": "mimetic", "query_key_noise": -1.0}, "query_key_noise = -1.0: must not be"),
        ({"method": "mimetic", "value_out_identity": "x"}, "= 'x': must be a finite number"),
        (
            {"method": "mimetic", "query_key_noise": 0.0, "query_key_identity": 0.0},
            "query_key_noise = 0 and query_key_identity = 0: leave nothing",
        ),
        ({"method": "skipless", "value_gain": 0.0}, "value_gain = 0: leaves"),
        ({"method": "impulse", "filter_size": 2}, "filter_size = 2: must be odd"),
        ({"method": "impulse", "gain": 0.0}, "gain = 0.0: must be positive"),
        ({"method": "impulse", "rows": 0}, "rows = 0: must be at least 1"),
        ({"method": "small", "gamma": -1.0}, "gamma = -1.0: must be at least 0"),
        ({"method": "tied", "gain": 0.0}, "gain = 0.0: must be positive"),
        ({"method": "tied", "value": "both"}, "must be one of per_head, joint"),
        ({"method": "tied", "kernels": "out"}, "leaves the out kernel alone"),
        ({"method": "hybrid", "value": "zzz"}, "value = 'zzz': must be one of default, cond"),
        ({"method": "hybrid", "value": "spectral"}, "value = 'spectral': must be one of"),
        ({"method": "hybrid", "query_key": "hybrid"}, "query_key = 'hybrid': must be one of"),
        ({"method": "hybrid", "out": "tied"}, "out = 'tied': .*leaves the out kernel alone"),
        (
            {"method": "hybrid", "query_key": "default", "value": "default"},
            "all 'default': nothing to draw",
        ),
    ],
)
def test_mistakes_in_the_config_get_one_line(init, message):
    with pytest.raises(UserError, match=message) as error:
        methods.build(init)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("assignments", "expected"),
    [
        (["init.kernels=query,key"], {"method": "conditioned", "kernels": ("query", "key")}),
        (["init.kernels=value"], {"method": "conditioned", "kernels": ("value",)}),
        (["init.method=hybrid", "init.out=orthogonal"], {"method": "hybrid", "out": "orthogonal"}),
        (["init.method=mimetic", "init.query_key_noise=0.5"], {"query_key_noise": 0.5}),
        (["init.method=impulse", "init.filter_size=5"], {"filter_size": 5, "rows": None}),
    ],
)
def test_arguments_are_fields_of_the_config(assignments, expected):
    recipe = configs.load("configs/vit.py")
    if not any(text.startswith("init.method") for text in assignments):
        recipe = configs.override(recipe, ["init.method=conditioned"])
    parsed = configs.parse(configs.override(recipe, assignments)).init
    assert {name: parsed[name] for name in expected} == expected
    assert methods.build(parsed) is not None


def test_facts_of_the_model_fill_in_what_is_none():
    facts = {"rows": 4, "columns": 3, "depth": 2}
    built = methods.build({"method": "impulse", "rows": 5, "columns": None}, facts)
    new, expected = (method(KEY, block()) for method in (built, methods.impulse(rows=5, columns=3)))
    np.testing.assert_array_equal(new.query, expected.query)
    assert (new.query != methods.impulse(rows=4, columns=3)(KEY, block()).query).any()
