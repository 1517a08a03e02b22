"""The default source: real images that come with the package, so that a first run just runs."""

import importlib.resources

import numpy as np

from condinit_jax.config import DataConfig
from condinit_jax.data.sources.source import ArraySource
from condinit_jax.data.sources.split import parse_split, resolve_slice, unknown_split

CLASS_NAMES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
SPLITS = ("train", "test")


def open_bundled(config: DataConfig, split: str) -> ArraySource:
    """Opens the bundled subset of Fashion-MNIST: 5,000 training and 1,000 test images.

    Args:
        config: not read; every source's opener takes it.
        split: "train", "test" or a slice of one of them.

    Returns:
        Grayscale images of 28 x 28 pixels, in memory; any ten neighbours hold all ten classes.

    Raises:
        UserError: where the split does not exist.

    References:
        Xiao, Rasul, Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
        Learning Algorithms", 2017, arXiv:1708.07747.
    """
    del config
    name, *_ = parse_split(split)
    if name not in SPLITS:
        raise unknown_split(name, "the bundled data", list(SPLITS))
    archive = importlib.resources.files("condinit_jax.data.bundled") / "fashion_mnist.npz"
    with archive.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        images, labels = arrays[f"{name}_images"], arrays[f"{name}_labels"]
    kept = resolve_slice(split, len(images))
    part = slice(kept.start, kept.stop)
    return ArraySource(images[part], labels[part], CLASS_NAMES, f"bundled {split}")
