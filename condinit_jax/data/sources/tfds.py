"""TensorFlow Datasets without TensorFlow: prepared directories, read by random access.

Nothing is ever downloaded or prepared here: without a network that takes minutes to fail, and it
needs TensorFlow. What is missing is named together with the command that makes it.
"""

import dataclasses
import re
import shlex
from typing import Any

import numpy as np

from condinit_jax.config import DataConfig
from condinit_jax.data.corrupt import UndecodableError
from condinit_jax.data.sources.source import Example
from condinit_jax.data.sources.split import SplitError, parse_split, unknown_split
from condinit_jax.errors import UserError

_NAME = re.compile(
    r"(?P<dataset>[A-Za-z]\w*)(/(?P<config>[\w.\-+=]+))?(:(?P<version>\d+\.\d+\.\d+))?"
)
_VERSION = re.compile(r"\d+\.\d+\.\d+")


@dataclasses.dataclass(frozen=True, eq=False)
class TfdsSource:
    """The features "image" and "label" of a split; encoded images stay encoded.

    Attributes:
        records: TFDS's data source of serialized examples.
        features: TFDS's description of the two features, which deserializes them.
        decoders: what TFDS is to leave as it is.
        class_names: of the label feature.
        channels: 1 or 3, of the image feature.
        name: what to call the source in messages.
    """

    records: Any
    features: Any
    decoders: dict[str, Any]
    class_names: tuple[str, ...]
    channels: int
    name: str

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int, /) -> Example:
        # A damaged record shows as an error of the reader, of the parser, or as missing features.
        try:
            record = self.records[index]
            example = self.features.deserialize_example_np(record, decoders=self.decoders)
            return {"image": example["image"], "label": int(example["label"])}
        except MemoryError:
            raise
        except Exception as error:
            raise UndecodableError.of(error) from error

    def example_name(self, index: int, /) -> str:
        """The example's place in the split."""
        return f"{self.name}[{index}]"


def open_tfds(config: DataConfig, split: str) -> TfdsSource:
    """Opens a data set by its TFDS name, where it is already prepared.

    Args:
        config: `name` is "dataset", "dataset/config" or either followed by ":version" (the newest
            one without); `dir` is TFDS's data directory, TFDS's own default where empty.
        split: in TFDS's notation.

    Returns:
        The split's encoded images and labels.

    Raises:
        UserError: where the data set is not there, is prepared in another format, has no "image"
            and "label", or has no such split.
    """
    match = _NAME.fullmatch(config.name)
    if match is None:
        raise UserError(
            f"config.data.name = {config.name!r}: must be a TFDS name such as cifar10 or"
            " oxford_iiit_pet:4.0.0"
        )
    import tensorflow_datasets as tfds

    root = tfds.core.Path(config.dir or tfds.core.constants.DATA_DIR).expanduser()
    return _open(_find(root, **match.groupdict()), split, config.name)


def open_tfds_dir(config: DataConfig, split: str) -> TfdsSource:
    """Opens a prepared data set by its directory, whether TFDS knows its name or not.

    Args:
        config: `dir` is the directory that holds `dataset_info.json`.
        split: in TFDS's notation.

    Returns:
        The split's encoded images and labels.

    Raises:
        UserError: where the directory is no prepared data set, or as in `open_tfds`.
    """
    import tensorflow_datasets as tfds

    directory = tfds.core.Path(config.dir).expanduser()
    if not config.dir or not _is_prepared(directory):
        raise UserError(
            f"config.data.dir = {config.dir!r}: must be a prepared TFDS data set, the directory"
            " that holds dataset_info.json and features.json, such as DIR/cifar10/3.0.2"
        )
    return _open(directory, split, str(directory))


def _is_prepared(directory: Any) -> bool:
    return (directory / "dataset_info.json").exists() and (directory / "features.json").exists()


def _children(directory: Any) -> list[str]:
    return sorted(path.name for path in directory.iterdir()) if directory.is_dir() else []


def _versions(directory: Any) -> list[str]:
    """The prepared versions in a directory, oldest first."""
    found = [
        name
        for name in _children(directory)
        if _VERSION.fullmatch(name) and _is_prepared(directory / name)
    ]
    return sorted(found, key=lambda name: [int(number) for number in name.split(".")])


def _find(root: Any, dataset: str, config: str | None, version: str | None) -> Any:
    """The directory of a prepared data set."""
    base = root / dataset / config if config else root / dataset
    versions = _versions(base)
    if not versions and config is None:
        configs = [name for name in _children(base) if _versions(base / name)]
        if len(configs) > 1:
            choices = ", ".join(f"{dataset}/{name}" for name in configs)
            raise UserError(
                f"config.data.name = {dataset!r}: has several configs in {root}; use {choices}"
            )
        if configs:
            base = base / configs[0]
            versions = _versions(base)
    if version in versions:
        return base / version
    if versions and version is None:
        return base / versions[-1]
    name = f"{dataset}/{config}" if config else dataset
    full_name = f"{name}:{version}" if version else name
    code = (
        f"import tensorflow_datasets as t; t.builder({full_name!r}, data_dir={str(root)!r})"
        ".download_and_prepare(file_format='array_record')"
    )
    there = f" (there: {', '.join(versions)})" if versions else ""
    raise UserError(
        f"config.data.name = {full_name!r}: is not prepared in {root}{there}; prepare it once with"
        f' TensorFlow: pip install tensorflow && python -c "{code}"'
    )


def _open(directory: Any, split: str, name: str) -> TfdsSource:
    import tensorflow_datasets as tfds

    builder = tfds.builder_from_directory(directory)
    file_formats = {file_format.value for file_format in builder.info.available_file_formats()}
    if "array_record" not in file_formats:
        if "tfrecord" in file_formats:
            way = f"run python -m condinit_jax.data.convert_tfrecord {shlex.quote(str(directory))}"
        else:
            way = "prepare it again with file_format='array_record'"
        found = ", ".join(sorted(file_formats)) or "an unknown format"
        raise UserError(f"{directory}: prepared as {found}, which has no random access; {way}")
    features, decoders, channels = _features(builder.info.features, str(directory))
    known = list(builder.info.splits)
    for base, *_ in map(parse_split, split.split("+")):
        if base not in known:
            raise unknown_split(base, str(directory), known)
    if not builder.info.splits[split].num_examples:
        raise SplitError(split, f"keeps no example of {directory}")
    records = builder.as_data_source(
        split=split, deserialize_method=tfds.decode.DeserializeMethod.RAW_BYTES
    )
    # Records are opened when they are read: without this look, in the middle of a run.
    for part in builder.info.splits[split].file_instructions:
        if not tfds.core.Path(part.filename).exists():
            raise UserError(f"{part.filename}: missing; copy it there or prepare the set again")
    return TfdsSource(
        records=records,
        features=features,
        decoders=decoders,
        class_names=tuple(features["label"].names),
        channels=channels,
        name=f"{name} {split}",
    )


def _features(all_features: Any, where: str) -> tuple[Any, dict[str, Any], int]:
    """Keeps image and label of a data set's features, and images encoded.

    Other features (masks, captions) would cost time, and some cannot be read without TensorFlow.
    """
    import tensorflow_datasets as tfds

    kinds = tfds.features
    named = dict(all_features)
    image, label = named.get("image"), named.get("label")
    if not isinstance(image, kinds.Image | kinds.Tensor) or not isinstance(label, kinds.ClassLabel):
        found = ", ".join(f"{name} ({type(feature).__name__})" for name, feature in named.items())
        raise UserError(f"{where}: needs an 'image' and a class 'label'; features there: {found}")
    if image.np_dtype != np.uint8 or len(image.shape) != 3:
        raise UserError(f"{where}: 'image' is {image.np_dtype} {image.shape}; needs uint8 images")
    encoded = isinstance(image, kinds.Image)
    return (
        kinds.FeaturesDict({"image": image, "label": label}),
        {"image": tfds.decode.SkipDecoding()} if encoded else {},
        1 if image.shape[-1] == 1 else 3,
    )
