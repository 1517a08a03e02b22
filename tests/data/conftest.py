"""Small data sets of every kind, with damaged files where a test asks for them."""

import io
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image


def png(value: int, side: int = 8) -> bytes:
    """A PNG of one gray value, by which a test can recognise the example."""
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (value, value, value)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def image_folder(tmp_path) -> Callable[..., pathlib.Path]:
    """Makes root/<split>/<class>/<number>.png whose gray values count from 1 over a split."""

    def make(classes=("cat", "dog"), per_class=3, splits=("train", "test"), side=8) -> pathlib.Path:
        root = tmp_path / "images"
        for split in splits:
            value = 0
            for name in classes:
                (root / split / name).mkdir(parents=True)
                for number in range(per_class):
                    value += 1
                    (root / split / name / f"{number}.png").write_bytes(png(value, side))
        return root

    return make


@pytest.fixture(scope="session")
def tfds_data_dir(tmp_path_factory) -> pathlib.Path:
    """A TFDS data directory with `tiny` 1.0.0, prepared as ArrayRecord: 12 and 5 examples.

    Image i is i everywhere and has label i % 2; like real sets it has features nobody asked for.
    """
    import tensorflow_datasets as tfds

    class Tiny(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version("1.0.0")

        def _info(self):
            features = tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(None, None, 3)),
                    "label": tfds.features.ClassLabel(names=["even", "odd"]),
                    "caption": tfds.features.Text(),
                    "mask": tfds.features.Image(shape=(None, None, 1)),
                }
            )
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, dl_manager):
            return {
                "train": self._generate_examples(12),
                "test": self._generate_examples(5),
            }

        def _generate_examples(self, count):
            for number in range(count):
                yield (
                    number,
                    {
                        "image": io.BytesIO(png(number)),
                        "label": number % 2,
                        "caption": "not needed",
                        "mask": io.BytesIO(_gray()),
                    },
                )

    def _gray() -> bytes:
        buffer = io.BytesIO()
        Image.fromarray(np.zeros((8, 8), np.uint8)).save(buffer, "PNG")
        return buffer.getvalue()

    directory = tmp_path_factory.mktemp("tfds")
    Tiny(data_dir=directory).download_and_prepare(file_format="array_record")
    return directory
