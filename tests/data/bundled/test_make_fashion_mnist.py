import gzip

import numpy as np
import pytest

from condinit_jax.data.bundled import make_fashion_mnist

needs_originals = pytest.mark.skipif(
    not make_fashion_mnist.ORIGINAL.exists(),
    reason="needs apt-get install dataset-fashion-mnist",
)


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes()
    return gzip.compress(header + array.tobytes())


def originals(directory, count):
    rng = np.random.default_rng(0)
    for prefix in ("train", "t10k"):
        labels = np.repeat(np.arange(10, dtype=np.uint8), count)
        rng.shuffle(labels)
        images = np.broadcast_to(labels[:, None, None], (len(labels), 28, 28))
        (directory / f"{prefix}-images-idx3-ubyte.gz").write_bytes(idx(images))
        (directory / f"{prefix}-labels-idx1-ubyte.gz").write_bytes(idx(labels))


def test_idx_files_are_read_as_written(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a.gz").write_bytes(idx(array))
    np.testing.assert_array_equal(make_fashion_mnist.read_idx(tmp_path / "a.gz"), array)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"nothing of the kind"))
    with pytest.raises(ValueError, match="expected an IDX file"):
        make_fashion_mnist.read_idx(tmp_path / "a.gz")


def test_images_keep_their_labels_and_classes_alternate(tmp_path):
    originals(tmp_path, 500)
    make_fashion_mnist.make(tmp_path, tmp_path / "made.npz")
    with np.load(tmp_path / "made.npz", allow_pickle=False) as arrays:
        for split, count in (("train", 5000), ("test", 1000)):
            labels = arrays[f"{split}_labels"]
            np.testing.assert_array_equal(labels, np.tile(np.arange(10), count // 10))
            np.testing.assert_array_equal(arrays[f"{split}_images"][:, 3, 4, 0], labels)


@needs_originals
def test_making_it_again_gives_the_bundled_arrays_and_twice_the_same_bytes(tmp_path):
    for name in ("a.npz", "b.npz"):
        make_fashion_mnist.make(make_fashion_mnist.ORIGINAL, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    with np.load(tmp_path / "a.npz") as made, np.load(make_fashion_mnist.ARCHIVE) as bundled:
        assert sorted(made) == sorted(bundled)
        for name in made:
            np.testing.assert_array_equal(made[name], bundled[name])
