"""Which runs a comparison makes, and what differs between them."""

import functools

import jax
import numpy as np
import optax
import pytest

from condinit_jax import config as configs
from condinit_jax import methods, tasks
from condinit_jax.errors import UserError
from condinit_jax.experiments import make_grid, read_variants
from condinit_jax.training.state import init_state, method_data

VARIANTS = read_variants(["default", "conditioned", "conditioned:value=joint"])
ATTENTION = {"query", "key", "value", "out"}


def drawn(cell):
    run = configs.parse(cell.config)
    task = tasks.build(run)
    method = methods.build(run.init, task.facts())
    draw = functools.partial(
        init_state, task=task, optimizer=optax.identity(), method=method, average=False
    )
    params = jax.jit(draw)(jax.random.key(run.seed), method_data(method)).params
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def batches(cell, count):
    stream = tasks.build(configs.parse(cell.config)).train_batches(0)
    try:
        return [next(stream) for _ in range(count)]
    finally:
        stream.close()


def test_seeds_are_outermost_so_that_half_a_grid_is_whole_pairs(recipe):
    grid = make_grid(recipe, VARIANTS, (3, 1), (1e-3, 1e-2))
    assert [cell.seed for cell in grid] == [3] * 6 + [1] * 6
    assert [cell.rate for cell in grid[:6]] == [1e-3] * 3 + [1e-2] * 3
    assert [cell.label for cell in grid[:3]] == [variant.label for variant in VARIANTS]


def test_every_run_has_a_directory_of_its_own_that_shells_read(recipe):
    grid = make_grid(recipe, VARIANTS, (0, 1), (1e-3, 1e-2))
    places = [cell.place for cell in grid]
    assert len(set(places)) == len(places)
    # The recipe's own rate needs no name.
    assert places[2] == "conditioned,value=joint/seed=0"
    assert places[5] == "conditioned,value=joint/lr=0.01/seed=0"
    assert not any(set(place) & set(" \t:;&|$'\"<>()*?!") for place in places)


def test_without_rates_the_recipe_keeps_its_own(recipe):
    cell = make_grid(recipe, VARIANTS, (0,))[1]
    assert cell.place == "conditioned/seed=0"
    assert cell.rate == recipe.optimizer.lr == cell.config["optimizer"]["lr"]


def test_runs_of_a_seed_differ_in_attention_kernels_alone(recipe):
    """Whatever a comparison finds is owed to the kernels that its methods name."""
    variants = read_variants(["default", "conditioned", "xavier", "mimetic"])
    grid = make_grid(recipe, variants, (5,))
    base, first = drawn(grid[0]), batches(grid[0], 3)
    for cell in grid[1:]:
        differing = {
            path
            for path, leaf in drawn(cell).items()
            if not np.array_equal(np.asarray(leaf), np.asarray(base[path]))
        }
        assert differing
        assert {path.split("/")[-2] for path in differing} <= ATTENTION
        assert all(path.endswith("/kernel") for path in differing)
        for ours, theirs in zip(batches(cell, 3), first, strict=True):
            jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_another_seed_differs_in_data_order_and_all_kernels(recipe):
    one, other = make_grid(recipe, VARIANTS[:1], (0, 1))
    assert not np.array_equal(batches(one, 1)[0]["label"], batches(other, 1)[0]["label"])
    ours, theirs = drawn(one), drawn(other)
    kernels = [path for path in ours if path.endswith("kernel")]
    assert not any(np.array_equal(ours[path], theirs[path]) for path in kernels)


@pytest.mark.parametrize(
    ("init", "message"),
    [
        ("conditioned:valeu=joint", r"config\.init\.valeu = 'joint'"),
        ("conditioned:value=both", r"config\.init\.value = 'both'"),
        ("mimetic:kernels=quary", r"config\.init.*quary"),
        ("weight_selection:teacher=nowhere", "nowhere"),
        ("default:refine.name=gradient", r"config\.init\.refine\.name = 'gradient'"),
        ("default:model.residual=none", r"config\.model\.residual"),
    ],
)
def test_a_method_that_cannot_be_is_refused_before_the_first_run(recipe, init, message):
    with pytest.raises(UserError, match=message):
        make_grid(recipe, read_variants([init]), (0,))


def test_runs_for_another_machine_need_no_data_here(recipe):
    there = configs.override(recipe, ["data.source=folder", "data.dir=/not/on/this/machine"])
    assert len(make_grid(there, VARIANTS, (0, 1), here=False)) == 6
    with pytest.raises(UserError, match="/not/on/this/machine"):
        make_grid(there, VARIANTS, (0, 1))
