import dataclasses
import gc
import itertools
import multiprocessing
import pathlib
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from condinit_jax.config import DataConfig
from condinit_jax.data import open_source
from condinit_jax.data.loader import Batches, eval_batches, train_batches
from condinit_jax.data.sources import ArraySource
from condinit_jax.errors import UserError

AUGMENTED = DataConfig(image_size=8, train_crop="pad", flip=True)


def numbered(length: int, side: int = 8, channels: int = 1) -> ArraySource:
    """Examples whose label is their index, and whose pixels differ."""
    images = np.random.default_rng(0).integers(0, 256, (length, side, side, channels), np.uint8)
    names = tuple(map(str, range(max(length, 1))))
    return ArraySource(images, np.arange(length), names, "numbered")


def take(batches: Batches, count: int) -> list[dict]:
    taken = list(itertools.islice(batches, count))
    batches.close()
    return taken


def joined(parts: list[list[dict]]) -> list[dict]:
    """The global batches of several processes."""
    return [
        {name: np.concatenate([part[name] for part in batch]) for name in batch[0]}
        for batch in zip(*parts, strict=True)
    ]


def assert_same(first: list[dict], second: list[dict]) -> None:
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.fixture
def folder(image_folder):
    """A config whose images are decoded, and larger than what is asked for."""
    root = image_folder(("ant", "bee", "cow"), per_class=7, side=12)
    return DataConfig(
        source="folder", dir=str(root), image_size=8, train_crop="inception", flip=True
    )


def test_batches_have_the_promised_shapes_and_types():
    config = DataConfig()
    batch = next(train_batches(open_source(config, "train"), config, batch_size=6, seed=0))
    assert {name: (array.shape, array.dtype.name) for name, array in batch.items()} == {
        "image": ((6, 28, 28, 1), "float32"),
        "label": ((6,), "int32"),
        "mask": ((6,), "float32"),
    }
    assert batch["mask"].all()
    assert batch["image"].min() == -1
    assert batch["image"].max() == 1


def test_pixels_and_labels_stay_together():
    source, config = numbered(20), DataConfig(image_size=8, mean=(0.0,), std=(1.0,))
    for batch in take(train_batches(source, config, batch_size=8, seed=0), 5):
        np.testing.assert_allclose(
            batch["image"], source.images[batch["label"]] / 255, rtol=1e-6, atol=1e-6
        )


@settings(max_examples=20, deadline=None)
@given(length=st.integers(1, 40), batch_size=st.integers(1, 50), seed=st.integers(-(2**40), 2**70))
def test_every_epoch_holds_every_example_once(length, batch_size, seed):
    batches = train_batches(
        numbered(length), DataConfig(image_size=8), batch_size=batch_size, seed=seed
    )
    count = -(-3 * length // batch_size)
    labels = np.concatenate([batch["label"] for batch in take(batches, count)])
    for epoch in range(3):
        np.testing.assert_array_equal(
            np.sort(labels[epoch * length : (epoch + 1) * length]), np.arange(length)
        )


def test_the_seed_decides_order_and_augmentation():
    def run(seed, config=AUGMENTED):
        return take(train_batches(numbered(30), config, batch_size=8, seed=seed), 6)

    assert_same(run(5), run(5))
    assert not np.array_equal(run(5)[0]["label"], run(6)[0]["label"])
    assert not np.array_equal(
        run(5)[0]["image"], run(5, dataclasses.replace(AUGMENTED, flip=False))[0]["image"]
    )


def test_an_example_is_augmented_differently_in_the_next_epoch():
    first, second = take(train_batches(numbered(64), AUGMENTED, batch_size=64, seed=0), 2)
    pairs = zip(np.argsort(first["label"]), np.argsort(second["label"]), strict=True)
    same = [np.array_equal(first["image"][i], second["image"][j]) for i, j in pairs]
    # Three places in each direction and two orientations: one in 18 agrees by chance.
    assert sum(same) < 16


@pytest.mark.parametrize("step", [0, 1, 5, 13])
def test_resuming_at_a_step_gives_the_same_batches(folder, step):
    for source, config in ((numbered(30), AUGMENTED), (open_source(folder, "train"), folder)):
        whole = take(train_batches(source, config, batch_size=8, seed=1), step + 4)
        resumed = train_batches(source, config, batch_size=8, seed=1, start_step=step)
        assert_same(take(resumed, 4), whole[step:])


def test_resuming_far_away_is_immediate():
    start = time.perf_counter()
    batches = train_batches(numbered(1000), AUGMENTED, batch_size=64, seed=0, start_step=10_000_000)
    assert_same(
        take(batches, 2)[1:],
        take(
            train_batches(numbered(1000), AUGMENTED, batch_size=64, seed=0, start_step=10_000_001),
            1,
        ),
    )
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("process_count", [2, 4, 8])
def test_the_parts_of_all_hosts_are_the_batches_of_one(folder, process_count):
    for source, config in ((numbered(30), AUGMENTED), (open_source(folder, "train"), folder)):
        options = {"batch_size": 80, "seed": 2, "start_step": 3}
        parts = [
            take(
                train_batches(
                    source,
                    config,
                    process_index=index,
                    process_count=process_count,
                    **options,
                ),
                2,
            )
            for index in range(process_count)
        ]
        assert_same(joined(parts), take(train_batches(source, config, **options), 2))


@settings(max_examples=30, deadline=None)
@given(
    length=st.integers(0, 70),
    share=st.integers(1, 40),
    process_count=st.sampled_from([1, 2, 4]),
)
def test_evaluation_counts_every_example_once_over_all_hosts(length, share, process_count):
    source, config = numbered(length), DataConfig(image_size=8)
    parts = [
        list(
            eval_batches(
                source,
                config,
                batch_size=share * process_count,
                process_index=index,
                process_count=process_count,
            )
        )
        for index in range(process_count)
    ]
    assert {len(part) for part in parts} == {-(-length // (share * process_count))}
    real = [batch["label"][batch["mask"] == 1] for batch in joined(parts)]
    assert np.concatenate([*real, []]).tolist() == list(range(length))
    for part in parts:
        for batch in part:
            assert batch["image"].shape == (share, 8, 8, 1)
            assert set(batch["mask"].tolist()) <= {0.0, 1.0}


def test_evaluation_of_files_is_exact_too(folder):
    source = open_source(folder, "test")
    batches = list(eval_batches(source, folder, batch_size=8))
    assert [batch["mask"].sum() for batch in batches] == [8, 8, 5]
    gray = np.concatenate([batch["image"][batch["mask"] == 1, 4, 4, 0] for batch in batches])
    np.testing.assert_allclose((gray + 1) / 2 * 255, np.arange(1, 22), atol=1e-3)


@pytest.mark.parametrize("eval_crop", [1.0, 0.75])
def test_evaluation_resizes_and_cuts_like_pillow(eval_crop):
    source = numbered(3, side=20)
    config = DataConfig(image_size=12, eval_crop=eval_crop, mean=(0.0,), std=(1 / 255,))
    [batch] = eval_batches(source, config, batch_size=3)
    resized, margin = round(12 / eval_crop), (round(12 / eval_crop) - 12) // 2
    for image, prepared in zip(source.images, batch["image"], strict=True):
        whole = Image.fromarray(image[..., 0]).resize((resized, resized), Image.Resampling.BICUBIC)
        expected = np.asarray(whole)[margin : margin + 12, margin : margin + 12]
        np.testing.assert_allclose(prepared[..., 0], expected, atol=1e-3)


def test_images_in_memory_and_in_files_train_alike(image_folder):
    config = dataclasses.replace(
        AUGMENTED, source="folder", dir=str(image_folder(per_class=10, side=8))
    )
    files = open_source(config, "train")
    pixels = np.stack([np.full((8, 8, 3), value, np.uint8) for value in range(1, 21)])
    labels = np.array([files[i]["label"] for i in range(20)])
    memory = ArraySource(pixels, labels, files.class_names, "memory")
    assert_same(
        *(
            take(train_batches(source, config, batch_size=64, seed=3), 3)
            for source in (files, memory)
        )
    )


def test_worker_processes_give_the_same_stream_and_counts_and_end(folder):
    source = open_source(folder, "train")
    pathlib.Path(source.example_name(5)).write_text("not an image")
    options = {"batch_size": 40, "seed": 4, "start_step": 2}
    several = train_batches(source, dataclasses.replace(folder, workers=2), **options)
    alone = train_batches(source, folder, **options)
    assert_same(take(several, 3), take(alone, 3))
    assert several.corrupt.count == 1
    assert several.corrupt.names == alone.corrupt.names
    assert not multiprocessing.active_children()


@pytest.mark.slow
def test_every_source_gives_the_same_stream_with_three_workers(folder, tfds_data_dir):
    tiny = DataConfig(source="tfds", name="tiny", dir=str(tfds_data_dir), image_size=8)
    bundled = DataConfig(train_crop="pad", flip=True)
    for config in (folder, tiny, bundled):
        source = open_source(config, "train")
        several = dataclasses.replace(config, workers=3)
        options = {"batch_size": 40, "seed": 4}
        assert_same(
            take(train_batches(source, several, **options), 4),
            take(train_batches(source, config, **options), 4),
        )
        assert_same(
            list(eval_batches(source, several, batch_size=40)),
            list(eval_batches(source, config, batch_size=40)),
        )


def test_threads_end_when_an_iterator_is_dropped(folder):
    before = threading.active_count()
    batches = train_batches(open_source(folder, "train"), folder, batch_size=8, seed=0)
    next(batches)
    assert threading.active_count() > before
    del batches
    gc.collect()
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert threading.active_count() <= before


def test_a_closed_iterator_gives_nothing():
    batches = train_batches(numbered(4), DataConfig(image_size=8), batch_size=2, seed=0)
    batches.close()
    batches.close()
    assert list(batches) == []


def test_examples_without_labels_are_refused():
    source = dataclasses.replace(numbered(4), labels=np.full(4, -1))
    with pytest.raises(UserError, match="without a label"):
        next(eval_batches(source, DataConfig(image_size=8), batch_size=2))


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        (
            {"mean": (0.5, 0.5)},
            {},
            r"config.data.mean = \(0.5, 0.5\): must have 1 entry, as numbered has images of 1 "
            r"channel$",
        ),
        ({"std": (0.5,) * 3}, {}, r"config.data.std = \(0.5, 0.5, 0.5\): must have 1 entry"),
        ({"mean": ()}, {}, r"config.data.mean = \(\): must have 1 entry"),
        (
            {"train_crop": "random"},
            {},
            "config.data.train_crop = 'random': must be none or pad or inception",
        ),
        ({"on_corrupt": "ignore"}, {}, "config.data.on_corrupt = 'ignore': must be skip or fail"),
        ({}, {"batch_size": 0}, "batch_size: 0 is not a positive multiple of 1 processes"),
        (
            {},
            {"batch_size": 9, "process_count": 2},
            "batch_size: 9 is not a positive multiple of 2",
        ),
    ],
)
def test_what_cannot_work_is_said_before_the_first_batch(fields, options, message):
    config = DataConfig(image_size=8, **fields)
    with pytest.raises(UserError, match=message) as caught:
        train_batches(numbered(4), config, seed=0, **{"batch_size": 2} | options)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=message):
        eval_batches(numbered(4), config, **{"batch_size": 2} | options)


def test_training_on_nothing_is_refused():
    with pytest.raises(UserError, match="numbered: no examples to train on"):
        train_batches(numbered(0), DataConfig(image_size=8), batch_size=2, seed=0)
