import dataclasses
import io
import pathlib
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from condinit_jax.config import DataConfig
from condinit_jax.data import chunks, eval_batches, open_source, order, train_batches
from condinit_jax.errors import UserError


def truncated_png() -> bytes:
    buffer = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (16, 16, 3), np.uint8)
    Image.fromarray(noise).save(buffer, "PNG")
    return buffer.getvalue()[:300]


def bomb() -> bytes:
    buffer = io.BytesIO()
    Image.new("1", (14_000, 14_000)).save(buffer, "PNG")
    return buffer.getvalue()


DAMAGED = {
    "truncated": (truncated_png(), "."),
    "text": (b"this is no image", "not an image in a known format"),
    "bomb": (bomb(), "pixels"),
    "missing": (None, "No such file or directory"),
}


@pytest.fixture
def damaged(image_folder):
    """Makes a config of 2 x 5 training and test images, of which the given ones are damaged."""

    def make(*indices: int, kind: str = "text", **fields) -> DataConfig:
        config = DataConfig(
            source="folder", dir=str(image_folder(per_class=5)), image_size=8, **fields
        )
        for split in ("train", "test"):
            source = open_source(config, split)
            for index in indices:
                file = pathlib.Path(source.example_name(index))
                content, _ = DAMAGED[kind]
                if content is None:
                    file.unlink()
                else:
                    file.write_bytes(content)
        return config

    return make


def grays(batch) -> np.ndarray:
    """The gray values of a batch; image i of a split has the value i + 1."""
    return np.rint((batch["image"][:, 0, 0, 0] + 1) / 2 * 255).astype(int)


def opened_before_damage(make, *indices, **fields):
    """The source as listed before a file went missing."""
    config = make()
    sources = {split: open_source(config, split) for split in ("train", "test")}
    for source in sources.values():
        for index in indices:
            pathlib.Path(source.example_name(index)).unlink()
    return dataclasses.replace(config, **fields), sources


@pytest.mark.parametrize("kind", ["truncated", "text", "bomb"])
def test_a_damaged_file_is_named_once_and_replaced_in_training(damaged, kind):
    config = damaged(3, kind=kind)
    source = open_source(config, "train")
    batches = train_batches(source, config, batch_size=10, seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        epochs = [next(batches) for _ in range(4)]
    assert batches.corrupt.count == 1
    [name] = batches.corrupt.names
    assert name.startswith(f"{source.example_name(3)}: ")
    assert DAMAGED[kind][1] in name or kind == "truncated"
    for number, batch in enumerate(epochs):
        assert batch["mask"].all()
        expected = order.shuffled(0, 10, 10 * number, 10 * number + 10).tolist()
        place = expected.index(3)
        expected[place] = expected[(place + 1) % 10]
        assert grays(batch).tolist() == [index + 1 for index in expected]
        assert batch["label"].tolist() == [index // 5 for index in expected]


def test_a_file_that_went_missing_is_named_and_replaced(damaged):
    config, sources = opened_before_damage(damaged, 3)
    batches = train_batches(sources["train"], config, batch_size=10, seed=0)
    next(batches)
    [name] = batches.corrupt.names
    assert name == f"{sources['train'].example_name(3)}: No such file or directory"


def test_neighbouring_damaged_files_are_passed_over(damaged):
    config = damaged(*range(9))
    batches = train_batches(open_source(config, "train"), config, batch_size=20, seed=1)
    assert set(grays(next(batches))) == {10}
    assert batches.corrupt.count == 9


def test_hosts_agree_on_replacements(damaged):
    config = damaged(2, 7)
    source = open_source(config, "train")
    whole = train_batches(source, config, batch_size=16, seed=5)
    parts = [
        train_batches(source, config, batch_size=16, seed=5, process_index=i, process_count=4)
        for i in range(4)
    ]
    for _ in range(5):
        np.testing.assert_array_equal(
            grays(next(whole)), np.concatenate([grays(next(part)) for part in parts])
        )
    assert whole.corrupt.count == 2


def test_evaluation_leaves_damaged_files_out_of_the_count(damaged):
    config = damaged(0, 6)
    batches = eval_batches(open_source(config, "test"), config, batch_size=4)
    rows = list(batches)
    mask = np.concatenate([batch["mask"] for batch in rows])
    assert mask.tolist() == [0, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0]
    values = np.concatenate([grays(batch) for batch in rows])
    assert values[mask == 1].tolist() == [2, 3, 4, 5, 6, 8, 9, 10]
    assert all(np.isfinite(batch["image"]).all() for batch in rows)
    assert batches.corrupt.count == 2


@pytest.mark.parametrize("split", ["train", "test"])
def test_asked_to_fail_it_names_the_file(damaged, split):
    config = damaged(3, on_corrupt="fail")
    source = open_source(config, split)
    batches = (
        train_batches(source, config, batch_size=10, seed=0)
        if split == "train"
        else eval_batches(source, config, batch_size=4)
    )
    with pytest.raises(
        UserError, match=r"3.png: not an image .* config.data.on_corrupt=skip"
    ) as caught:
        list(batches)
    assert source.example_name(3) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_readable_stops_training(damaged):
    config = damaged(*range(10))
    batches = train_batches(open_source(config, "train"), config, batch_size=4, seed=0)
    with pytest.raises(UserError, match="10 examples in a row cannot be decoded"):
        next(batches)


@given(
    share=st.integers(1, 20),
    processes=st.integers(1, 4),
    per_chunk=st.integers(1, 25),
    steps=st.integers(1, 3),
)
def test_layouts_cut_the_stream_without_gap_or_overlap(share, processes, per_chunk, steps):
    layouts = [
        chunks.Layout(share * processes, share, index, per_chunk) for index in range(processes)
    ]
    positions = []
    for step in range(steps):
        for layout in layouts:
            rows = [row for place in range(layout.chunks) for row in range(*layout.rows(place))]
            assert rows == list(range(share))
            for place in range(layout.chunks):
                positions += range(*layout.positions(step * layout.chunks + place))
    assert positions == list(range(steps * share * processes))
