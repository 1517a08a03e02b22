"""Makes `fashion_mnist.npz`, the bundled data set, from the four files of the original one.

Debian ships the originals: `apt-get install dataset-fashion-mnist` puts them into the directory
that is this command's default, and `python -m condinit_jax.data.bundled.make_fashion_mnist`
rewrites the archive with identical bytes (given the same zlib).
"""

import argparse
import gzip
import pathlib

import numpy as np

ORIGINAL = pathlib.Path("/usr/share/datasets/fashion-mnist")
ARCHIVE = pathlib.Path(__file__).with_name("fashion_mnist.npz")
TRAIN_PER_CLASS = 500
TEST_PER_CLASS = 100
NUM_CLASSES = 10


def read_idx(path: pathlib.Path) -> np.ndarray:
    """Reads one gzip-compressed IDX file of unsigned bytes.

    Args:
        path: the file; its header is 0, 0, 8 (unsigned byte), the number of axes, and then each
            axis' length as a big-endian 32-bit integer.

    Returns:
        The uint8 array of the shape that the header names.

    Raises:
        ValueError: where the file is not an IDX file of unsigned bytes.
    """
    raw = gzip.decompress(path.read_bytes())
    if raw[:3] != b"\x00\x00\x08":
        raise ValueError(f"{path}: expected an IDX file of unsigned bytes, found {raw[:4]!r}")
    axes = raw[3]
    shape = np.frombuffer(raw, ">u4", count=axes, offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(shape)


def balanced(labels: np.ndarray, per_class: int) -> np.ndarray:
    """Picks the first examples of every class, so that any ten neighbours hold all ten classes.

    Args:
        labels: class of each example, in [0, 10).
        per_class: examples to take from each class.

    Returns:
        Indices into `labels`, interleaved by class: a slice of a split is then balanced as well.

    Example:
        >>> balanced(np.array([1, 0, 1, 0] + list(range(2, 10))), 1)
        array([ 1,  0,  4,  5,  6,  7,  8,  9, 10, 11])
    """
    firsts = [np.flatnonzero(labels == index)[:per_class] for index in range(NUM_CLASSES)]
    return np.stack(firsts, axis=1).reshape(-1)


def make(original: pathlib.Path, archive: pathlib.Path) -> None:
    """Writes the archive.

    Args:
        original: directory with the four `*-ubyte.gz` files.
        archive: the file to write.
    """
    arrays = {}
    for split, prefix, per_class in (
        ("train", "train", TRAIN_PER_CLASS),
        ("test", "t10k", TEST_PER_CLASS),
    ):
        images = read_idx(original / f"{prefix}-images-idx3-ubyte.gz")
        labels = read_idx(original / f"{prefix}-labels-idx1-ubyte.gz")
        chosen = balanced(labels, per_class)
        arrays[f"{split}_images"] = images[chosen][..., None]
        arrays[f"{split}_labels"] = labels[chosen]
    np.savez_compressed(archive, **arrays)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--original", type=pathlib.Path, default=ORIGINAL)
    parser.add_argument("--archive", type=pathlib.Path, default=ARCHIVE)
    arguments = parser.parse_args()
    make(arguments.original, arguments.archive)
