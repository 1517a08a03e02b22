"""What `--init` reads."""

import pytest

from condinit_jax import config as configs
from condinit_jax.errors import UserError
from condinit_jax.experiments import label_of, read_variant, read_variants


def test_a_method_alone_changes_only_the_method():
    variant = read_variant("conditioned")
    assert (variant.label, variant.assignments) == ("conditioned", ("init.method=conditioned",))


def test_aliases_are_spelt_out_and_what_is_given_twice_counts_once():
    found = read_variants(["xavier", "default", "xavier_uniform", "glorot"])
    assert [variant.label for variant in found] == ["xavier_uniform", "default"]


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("conditioned:value=joint", "init.value", "joint"),
        ("conditioned:kernels=query+key", "init.kernels", ("query", "key")),
        ("truncated_normal:init.stddev=0.1", "init.stddev", 0.1),
        ("deepnorm:model.residual=deepnorm", "model.residual", "deepnorm"),
        ("default:refine.name=nio", "init.refine.name", "nio"),
        ("weight_selection:teacher=runs/a+b", "init.teacher", "runs/a+b"),
        ("default:schedule.warmup_steps=0", "schedule.warmup_steps", 0),
    ],
)
def test_fields_after_colons_reach_the_config(text, field, value):
    recipe = configs.load("configs/vit.py")
    tree = configs.override(recipe, read_variant(text).assignments).to_dict()
    for name in field.split("."):
        tree = tree[name]
    assert tree == value


@pytest.mark.parametrize(
    "text", ["conditioned", "conditioned:value=joint:kernels=query+key", "tied:refine.name=nio"]
)
def test_a_run_without_a_plan_gets_the_label_that_made_it(text):
    recipe = configs.load("configs/vit.py")
    run = configs.parse(configs.override(recipe, read_variant(text).assignments))
    assert label_of(configs.to_dict(run)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("conditiond", r"--init = 'conditiond': unknown method; did you mean conditioned\?"),
        ("conditioned:joint", r"'joint' must be FIELD=VALUE, as in conditioned:value=joint"),
        ("conditioned:method=tied", r"the method stands first, as in tied"),
        ("tied:optimizer.lr=1e-3", r"give learning rates as --lr"),
    ],
)
def test_mistakes_are_one_line(text, message):
    with pytest.raises(UserError, match=message):
        read_variant(text)
