"""The ViT recipe parses for every variant and dataset, and says what it takes otherwise."""

from pathlib import Path

import pytest

from condinit_jax.config import load, parse
from condinit_jax.errors import UserError
from condinit_jax.models.vit import VARIANTS

ROOT = Path(__file__).parents[2]
DATASETS = ("bundled", "cifar10", "cifar100", "pets", "flowers", "imagenet")


@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_on_every_dataset_is_a_possible_run(variant, dataset):
    run = parse(load(f"configs/vit.py:{variant},{dataset}", [ROOT]))
    assert run.model.items() >= VARIANTS[variant].items()
    assert run.data.source == ("bundled" if dataset == "bundled" else "tfds")
    assert run.init["method"] == "conditioned"


def test_without_an_argument_it_is_the_micro_model_on_the_bundled_images():
    assert parse(load("configs/vit.py", [ROOT])) == parse(
        load("configs/vit.py:micro,bundled", [ROOT])
    )


def test_published_recipes_keep_their_constants():
    deit = parse(load("configs/vit.py:b,imagenet", [ROOT]))
    assert (deit.batch_size, deit.optimizer.lr, deit.epochs) == (1024, 1e-3, 300)
    assert (deit.schedule.warmup_steps, deit.schedule.end_lr) == (5 * 1251, 1e-5)
    assert (deit.ema_decay, deit.data.eval_crop) == (0.99996, 0.875)
    small = parse(load("configs/vit.py:ti,pets", [ROOT]))
    assert (small.batch_size, small.optimizer.lr, small.epochs) == (512, 2e-3, 300)
    assert small.schedule.warmup_steps == 50 * (3680 // 512)


@pytest.mark.parametrize("argument", ["ti", "ti,mnist", "huge,bundled", "ti,", "ti,bundled,x"])
def test_a_wrong_argument_is_one_line_with_the_choices(argument):
    with pytest.raises(UserError) as caught:
        load(f"configs/vit.py:{argument}", [ROOT])
    assert str(caught.value) == (
        f"configs/vit.py:{argument}: the argument is VARIANT,DATASET with a variant of micro, ti, "
        "s, b, l and a dataset of bundled, cifar10, cifar100, pets, flowers, imagenet"
    )
