"""What a directory remembers of its comparison."""

import dataclasses
import json

import pytest

from condinit_jax.errors import UserError
from condinit_jax.experiments import (
    Plan,
    extended,
    make_grid,
    read_plan,
    read_variants,
    write_plan,
)


def plan_of(recipe, inits=("default", "tied"), seeds=(0, 1), assignments=(), rates=()):
    variants = read_variants(inits)
    return Plan(
        recipe="small.py",
        labels=tuple(variant.label for variant in variants),
        against=(),
        commands=(f"compare --init {','.join(inits)}",),
        cells=tuple(make_grid(recipe, variants, seeds, rates, assignments)),
    )


def test_a_plan_is_read_back_as_it_was_written(recipe, tmp_path):
    plan = plan_of(recipe)
    write_plan(plan, tmp_path / "new")
    assert json.loads(json.dumps(dataclasses.asdict(read_plan(tmp_path / "new")))) == json.loads(
        json.dumps(dataclasses.asdict(plan))
    )


def test_a_directory_without_one_has_no_plan(tmp_path):
    assert read_plan(tmp_path) is None


def test_more_seeds_and_methods_are_added_to_what_is_there(recipe, tmp_path):
    old = plan_of(recipe)
    new = extended(old, plan_of(recipe, ("default", "mimetic"), (0, 1, 2)), tmp_path)
    assert new.labels == ("default", "tied", "mimetic")
    places = [cell.place for cell in new.cells]
    assert sorted(places) == sorted(
        [f"{label}/seed={seed}" for label in ("default", "mimetic") for seed in (0, 1, 2)]
        + ["tied/seed=0", "tied/seed=1"]
    )
    assert len(new.commands) == 2


def test_the_same_command_again_changes_nothing(recipe, tmp_path):
    plan = plan_of(recipe)
    assert extended(plan, plan_of(recipe), tmp_path) == plan


def test_variants_may_change_the_model(recipe, tmp_path):
    inits = ("default", "deepnorm:model.residual=deepnorm")
    extended(plan_of(recipe), plan_of(recipe, inits), tmp_path)


@pytest.mark.parametrize("inits", [("default", "tied"), ("mimetic",)])
def test_another_config_does_not_belong_into_the_same_comparison(recipe, tmp_path, inits):
    other = plan_of(recipe, inits, assignments=("batch_size=4",))
    message = rf"^config\.batch_size: 8 -> 4: {tmp_path}.* use another --workdir$"
    with pytest.raises(UserError, match=message):
        extended(plan_of(recipe), other, tmp_path)


def test_the_baseline_and_the_references_stay_when_methods_are_added(recipe, tmp_path):
    old = dataclasses.replace(plan_of(recipe), against=("tied",))
    new = extended(old, plan_of(recipe, ("mimetic", "small")), tmp_path)
    assert (new.labels[0], new.against) == ("default", ("tied",))


def test_what_one_method_varies_is_still_fixed_for_the_others(recipe, tmp_path):
    """Else `default` would be one model at seed 0 and another at seed 7."""
    old = plan_of(recipe, ("default", "deepnorm:model.residual=deepnorm"), (0,))
    other = plan_of(recipe, ("default",), (7,), assignments=("model.residual=deepnorm",))
    with pytest.raises(UserError, match=r"^config\.model\.residual: .* use another --workdir$"):
        extended(old, other, tmp_path)


def test_rates_added_later_find_the_runs_at_the_recipes_own(recipe, tmp_path):
    own = recipe.optimizer.lr
    new = extended(plan_of(recipe), plan_of(recipe, rates=(own, 2 * own)), tmp_path)
    assert len({(cell.label, cell.seed, cell.rate) for cell in new.cells}) == len(new.cells) == 8


@pytest.mark.parametrize("place", ["../outside", "/etc"])
def test_a_plan_never_makes_runs_outside_its_directory(recipe, tmp_path, place):
    plan = plan_of(recipe)
    cell = dataclasses.replace(plan.cells[0], place=place)
    write_plan(dataclasses.replace(plan, cells=(cell,)), tmp_path)
    with pytest.raises(UserError, match=r"compare\.json: is no plan of a comparison"):
        read_plan(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": [{"place": 3}]}', "nonsense"])
def test_a_file_that_is_no_plan_is_one_line(tmp_path, text):
    (tmp_path / "compare.json").write_text(text)
    with pytest.raises(UserError, match=r"compare\.json: is no plan of a comparison"):
        read_plan(tmp_path)


def test_a_directory_that_cannot_be_made_is_one_line(recipe, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"--workdir = .*give a directory to write to"):
        write_plan(plan_of(recipe), tmp_path / "file" / "inside")
