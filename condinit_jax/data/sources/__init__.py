"""The one table of data sources, and the function that opens what a config names."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from condinit_jax.config import DataConfig
from condinit_jax.data.sources.bundled import open_bundled
from condinit_jax.data.sources.folder import open_folder
from condinit_jax.data.sources.source import ArraySource, Example, Source
from condinit_jax.data.sources.split import SplitError
from condinit_jax.data.sources.tfds import open_tfds, open_tfds_dir
from condinit_jax.errors import UserError

__all__ = ["SOURCES", "ArraySource", "Example", "Source", "SplitError", "open_source"]

SOURCES: Mapping[str, Callable[[DataConfig, str], Source]] = MappingProxyType(
    {
        "bundled": open_bundled,
        "tfds": open_tfds,
        "tfds_dir": open_tfds_dir,
        "folder": open_folder,
    }
)


def open_source(config: DataConfig, split: str) -> Source:
    """Opens one split of the source that the config names.

    Args:
        config: `source` picks the opener, which reads `name`, `dir` and `train_split`.
        split: a split's name, or a slice of it such as "train[:90%]" or "train[-500:]".

    Returns:
        Random access to the split's examples.

    Raises:
        UserError: where the source is unknown or the data are not there (the line says what to
            run); as `SplitError` where the split does not exist.

    Example:
        >>> source = open_source(DataConfig(), "test")
        >>> len(source), source.num_classes, source.class_names[:2]
        (1000, 10, ('T-shirt/top', 'Trouser'))
    """
    if config.source not in SOURCES:
        known = ", ".join(SOURCES)
        raise UserError(f"config.data.source = {config.source!r}: must be one of {known}")
    return SOURCES[config.source](config, split)
