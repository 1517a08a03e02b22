"""The border refuses every wrong config with one line, and completes every right one."""

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from condinit_jax.config import Config, OptimizerConfig, default, parse, to_dict
from condinit_jax.errors import UserError

SMALL = {"steps": 100, "model.patch_size": 4}

REFUSED = [
    # Unknown fields.
    (
        {"optimizer.learning_rate": 0.1},
        "config.optimizer.learning_rate = 0.1: unknown field; did you mean config.optimizer.lr?",
    ),
    ({"lr": 0.1}, "config.lr = 0.1: unknown field; did you mean config.optimizer.lr?"),
    (
        {"optimzer.lr": 0.1},
        "config.optimzer.lr = 0.1: unknown field; did you mean config.optimizer.lr?",
    ),
    (
        {"model.pach_size": 4},
        "config.model.pach_size = 4: unknown field; did you mean config.model.patch_size?",
    ),
    (
        {"model.num_classes": 10},
        "config.model.num_classes = 10: is given by the task; leave it out",
    ),
    (
        {"init.method": "conditioned", "init.foo": 1},
        "config.init.foo = 1: unknown field; method conditioned takes value or kernels",
    ),
    (
        {"init.value": "joint"},
        "config.init.value = 'joint': unknown field; method default takes no fields",
    ),
    (
        {"optimizer": "adamw"},
        "config.optimizer = 'adamw': is a group of fields; set its fields, such as "
        "config.optimizer.name, config.optimizer.lr or config.optimizer.weight_decay",
    ),
    # Wrong types.
    ({"batch_size": "many"}, "config.batch_size = 'many': must be an integer"),
    ({"batch_size": True}, "config.batch_size = True: must be an integer"),
    ({"batch_size": 64.0}, "config.batch_size = 64.0: must be an integer"),
    ({"data.flip": 1}, "config.data.flip = 1: must be true or false"),
    ({"data.mean": 0.5}, "config.data.mean = 0.5: must be a tuple of numbers"),
    ({"data.name": None}, "config.data.name = None: must be a text"),
    ({"model.width": 19.2}, "config.model.width = 19.2: must be an integer"),
    ({"compute_dtype": "float16"}, "config.compute_dtype = 'float16': must be float32 or bfloat16"
     "; did you mean bfloat16?"),
    ({"model.name": "vti"}, "config.model.name = 'vti': must be vit; did you mean vit?"),
    # Out of range.
    ({"batch_size": 0}, "config.batch_size = 0: must be at least 1"),
    ({"optimizer.lr": -0.1}, "config.optimizer.lr = -0.1: must be at least 0"),
    ({"optimizer.lr": float("nan")}, "config.optimizer.lr = nan: must be a finite number"),
    ({"optimizer.lr": float("inf")}, "config.optimizer.lr = inf: must be a finite number"),
    ({"data.std": (float("inf"),)}, "config.data.std = (inf,): every entry must be a finite "
     "number"),
    ({"model.drop_path": float("nan")}, "config.model.drop_path = nan: must be a finite number"),
    ({"optimizer.b1": 1}, "config.optimizer.b1 = 1: must be at least 0 and below 1"),
    ({"data.eval_crop": 0}, "config.data.eval_crop = 0: must be above 0 and at most 1"),
    ({"data.std": (0.0,)}, "config.data.std = (0.0,): every entry must be above 0"),
    ({"seed": -1}, "config.seed = -1: must be at least 0 and at most 4294967295"),
    ({"mesh.data": 0}, "config.mesh.data = 0: must be -1 or at least 1"),
    # Impossible together.
    ({"steps": 0}, "config.steps = 0: must be above 0, or config.epochs must"),
    (
        {"epochs": 3},
        "config.epochs = 3.0: must be 0 where config.steps = 100, or set that to 0",
    ),
    (
        {"optimizer.accumulate": 3},
        "config.optimizer.accumulate = 3: must divide config.batch_size = 64",
    ),
    (
        {"model.num_heads": 5},
        "config.model.num_heads = 5: must divide config.model.width = 192",
    ),
    ({"model.num_heads": 0}, "config.model.num_heads = 0: must be at least 1"),
    ({"model.depth": 0}, "config.model.depth = 0: must be at least 1"),
    ({"model.scan_unroll": 0}, "config.model.scan_unroll = 0: must be at least 1"),
    ({"model.drop_path": 1.0}, "config.model.drop_path = 1.0: must be at least 0 and below 1"),
    ({"model.norm_eps": 0.0}, "config.model.norm_eps = 0.0: must be above 0"),
    (
        {"model.token_exponent": 1.5},
        "config.model.token_exponent = 1.5: must be above 0 and at most 1",
    ),
    ({"model.layer_scale": -0.1}, "config.model.layer_scale = -0.1: must be at least 0"),
    ({"model.mlp_ratio": 0.0}, "config.model.mlp_ratio = 0.0: must be above 0"),
    (
        {"model.patch_size": 32},
        "config.model.patch_size = 32: must be at most config.data.image_size = 28",
    ),
    (
        {"model.patch_size": 5},
        "config.model.patch_size = 5: must divide config.data.image_size = 28",
    ),
    (
        {"data.source": "tfds"},
        "config.data.name = '': must name the dataset where config.data.source = 'tfds'",
    ),
    (
        {"data.name": "cifar10"},
        "config.data.name = 'cifar10': must be empty where config.data.source = 'bundled'",
    ),
    (
        {"data.source": "folder"},
        "config.data.dir = '': must be a directory where config.data.source = 'folder'",
    ),
    (
        {"data.std": (1.0, 1.0, 1.0)},
        "config.data.std = (1.0, 1.0, 1.0): must have as many entries as config.data.mean = (0.5,)",
    ),
    ({"data.mean": (0.5, 0.5)}, "config.data.mean = (0.5, 0.5): must have 1 entry, or 3 for colour "
     "images"),
]  # fmt: skip


def nested(flat):
    tree = {}
    for path, value in flat.items():
        *groups, name = path.split(".")
        node = tree
        for group in groups:
            node = node.setdefault(group, {})
        node[name] = value
    return tree


@pytest.mark.parametrize(("changes", "line"), REFUSED, ids=[list(case[0])[-1] for case in REFUSED])
def test_a_wrong_config_is_refused_with_one_line(changes, line):
    with pytest.raises(UserError) as caught:
        parse(nested(SMALL | changes))
    assert str(caught.value) == line


def test_a_warm_up_may_be_longer_than_the_run():
    assert parse(nested(SMALL | {"schedule.warmup_steps": 200})).schedule.warmup_steps == 200


def test_the_default_config_lacks_only_a_length_and_a_patch_that_fits():
    config = default()
    config.steps = 1
    config.model.patch_size = 7
    run = parse(config)
    assert run.optimizer == OptimizerConfig()
    assert run.model["width"] == 192


def test_the_model_and_the_method_are_completed_with_their_own_defaults():
    run = parse(nested(SMALL | {"init.method": "conditioned"}))
    assert run.model["num_heads"] == 3
    assert not {"num_classes", "dtype", "parent"} & run.model.keys()
    assert run.init["value"] in ("per_head", "joint")


def test_arguments_that_a_method_refuses_are_refused_at_the_border():
    with pytest.raises(UserError, match=r"^[^\n]*kernels = [^\n]*$"):
        parse(nested(SMALL | {"init.method": "conditioned", "init.kernels": ["kwery"]}))


def test_integers_become_floats_and_lists_become_tuples():
    run = parse(nested(SMALL | {"optimizer.lr": 1, "data.mean": [0], "data.std": [1]}))
    assert type(run.optimizer.lr) is float
    assert run.data.mean == (0.0,)


def test_a_config_is_frozen():
    run = parse(nested(SMALL))
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.steps = 3


def test_each_default_is_a_fresh_copy():
    first = default()
    first.model.width = 3
    first.optimizer.lr = 3.0
    assert default().optimizer.lr == Config().optimizer.lr
    assert "width" not in default().model


def test_mappings_and_config_dicts_may_be_mixed():
    model = default().model
    model.patch_size = 4
    assert parse({"steps": 3, "model": model}).model["patch_size"] == 4


def test_what_is_no_config_is_refused():
    with pytest.raises(UserError, match=r"^config = 3: must be a ConfigDict"):
        parse(3)


@given(
    seed=st.integers(0, 2**32 - 1),
    lr=st.floats(0, 10),
    mean=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    method=st.sampled_from(["default", "conditioned", "xavier_uniform"]),
)
def test_a_run_survives_json_and_a_second_parse(seed, lr, mean, method):
    changes = {"seed": seed, "optimizer.lr": lr, "data.mean": mean, "data.std": (1, 1, 1)}
    run = parse(nested(SMALL | changes | {"init.method": method}))
    assert parse(json.loads(json.dumps(to_dict(run)))) == run
    assert parse(run) == run


def test_a_refinement_is_completed_and_survives_json():
    given = {"steps": 10, "model": {"patch_size": 4}, "init": {"refine": {"name": "nio", "lr": 1}}}
    run = parse(given)
    refinement = {"name": "nio", "steps": 100, "lr": 1.0, "gamma": 5.0, "splits": 2,
                  "min_scale": 0.01, "clip": 1.0}  # fmt: skip
    assert run.init == {"method": "default", "refine": refinement}
    assert parse(json.loads(json.dumps(to_dict(run)))) == run
    plain = parse({"steps": 10, "model": {"patch_size": 4}})
    assert plain.init == {"method": "default", "refine": {"name": "none"}}


@pytest.mark.parametrize(
    ("refine", "message"),
    [
        ({"name": "gradnit"}, "config.init.refine.name = 'gradnit': must be none, gradinit or nio; "
         "did you mean gradinit?"),
        ({"lr": 0.1}, "config.init.refine.lr = 0.1: needs config.init.refine.name, to be set to "
         "gradinit or nio"),
        ({"name": "nio", "eta": 0.1}, "config.init.refine.eta = 0.1: unknown field; refinement nio "
         "takes steps, lr, gamma, splits, min_scale or clip"),
        ({"name": "nio", "splits": 3}, "config.init.refine.splits = 3: must divide "
         "config.batch_size = 64"),
        ({"name": "nio", "gamma": 0.0}, "config.init.refine.gamma = 0.0: must be above 0"),
        ({"name": "gradinit", "rule": "lamb"}, "config.init.refine.rule = 'lamb': must be sgd or "
         "adam or none"),
    ],
)  # fmt: skip
def test_a_wrong_refinement_is_refused_with_its_field(refine, message):
    with pytest.raises(UserError) as error:
        parse({"steps": 10, "model": {"patch_size": 4}, "init": {"refine": refine}})
    assert str(error.value) == message
