import hashlib
import importlib.resources
import pathlib

import numpy as np
import pytest

from condinit_jax.config import DataConfig
from condinit_jax.data.sources.bundled import CLASS_NAMES, open_bundled
from condinit_jax.errors import UserError

# Of the arrays, not of the file: another zlib compresses the same pixels into other bytes.
CHECKSUMS = {
    "train": "da70c9d84dff545bb18001b89eea0d10e04163410a565f0cffce195216b00019",
    "test": "08c3951df69d37582bef35fd6f31d4659b0f9e2757834d0c9f22e2024f1cd150",
}


def test_it_is_the_default():
    assert DataConfig().source == "bundled"
    assert DataConfig().train_split == "train"
    assert DataConfig().eval_split == "test"


@pytest.mark.parametrize(("split", "per_class"), [("train", 500), ("test", 100)])
def test_classes_are_balanced_and_pixels_are_the_known_ones(split, per_class):
    source = open_bundled(DataConfig(), split)
    assert source.num_classes == len(CLASS_NAMES) == 10
    assert source.channels == 1
    assert source.images.shape == (10 * per_class, 28, 28, 1)
    assert source.images.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(source.labels), [per_class] * 10)
    content = source.images.tobytes() + source.labels.tobytes()
    assert hashlib.sha256(content).hexdigest() == CHECKSUMS[split]


def test_splits_share_no_image():
    train, test = (
        {image.tobytes() for image in open_bundled(DataConfig(), split).images}
        for split in ("train", "test")
    )
    assert len(train) == 5000
    assert not train & test


def test_slices_stay_balanced_and_are_those_examples():
    whole, part = (open_bundled(DataConfig(), split) for split in ("train", "train[10%:20%]"))
    np.testing.assert_array_equal(part.images, whole.images[500:1000])
    np.testing.assert_array_equal(part.labels, whole.labels[500:1000])
    np.testing.assert_array_equal(np.bincount(part.labels), [50] * 10)
    assert part[3]["label"] == whole[503]["label"]
    assert part.example_name(3) == "bundled train[10%:20%][3]"


def test_an_unknown_split_names_those_that_exist():
    with pytest.raises(UserError, match=r"'validation' .* train, test"):
        open_bundled(DataConfig(), "validation")


def test_the_licence_notice_lies_beside_the_images():
    directory = importlib.resources.files("condinit_jax.data.bundled")
    notice = pathlib.Path(str(directory / "LICENSE")).read_text(encoding="utf-8")
    assert "MIT License" in notice
    assert "2017 Zalando SE" in notice
    assert pathlib.Path(str(directory / "fashion_mnist.npz")).stat().st_size < 2.8e6
