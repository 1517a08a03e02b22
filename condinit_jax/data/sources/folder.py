"""A directory of images: one directory per split, in it one directory per class."""

import dataclasses
import hashlib
import os
import pathlib

from condinit_jax.config import DataConfig
from condinit_jax.data.sources.source import Example
from condinit_jax.data.sources.split import parse_split, resolve_slice, unknown_split
from condinit_jax.errors import UserError

EXTENSIONS = (
    ".png",
    ".jpg",
    ".jpeg",
    ".webp",
    ".bmp",
    ".gif",
    ".tif",
    ".tiff",
    ".ppm",
    ".pgm",
)
_LAYOUT = "expected DIR/<split>/<class>/<image>, such as train/cat/1.png"


@dataclasses.dataclass(frozen=True, eq=False)
class FolderSource:
    """Image files on disk, read when they are asked for.

    Attributes:
        files: path and label of each example.
        class_names: the training split's class directories, sorted.
        name: what to call the source in messages.
        channels: 3, since files of one directory may differ; grayscale ones become RGB.
    """

    files: list[tuple[str, int]]
    class_names: tuple[str, ...]
    name: str
    channels: int = 3

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> Example:
        path, label = self.files[index]
        with open(path, "rb") as file:
            return {"image": file.read(), "label": label}

    def example_name(self, index: int, /) -> str:
        """The example's file."""
        return self.files[index][0]


def open_folder(config: DataConfig, split: str) -> FolderSource:
    """Opens one split of a directory of images.

    Labels number the class directories of the training split in sorted order, whichever split is
    opened. Files that are not images by their extension, and hidden ones, are ignored; links are
    followed. Examples are sorted by class and file name; a slice such as "train[:90%]" first puts
    them into an order of its own that depends on their names only, so that it holds all classes.

    Args:
        config: `dir` is the directory that holds the splits, `train_split` defines the classes.
        split: the name of a directory there, or a slice of it.

    Returns:
        RGB images of any size.

    Raises:
        UserError: where the directory, the split or a class's images are missing, or a class is
            not in the training split.
    """
    if not config.dir:
        raise UserError(f"config.data.dir = '': must be a directory; {_LAYOUT}")
    root = pathlib.Path(config.dir).expanduser()
    if not root.is_dir():
        raise UserError(f"config.data.dir = {config.dir!r}: is not a directory; {_LAYOUT}")
    name, *_ = parse_split(split)
    train, *_ = parse_split(config.train_split)
    splits = _directories(root)
    for wanted in (train, name):
        if wanted not in splits:
            if any(_images(root / directory) for directory in splits):
                raise UserError(
                    f"config.data.dir = {config.dir!r}: holds classes but no split {wanted!r};"
                    f" {_LAYOUT}: move the class directories into {root / wanted}"
                )
            raise unknown_split(wanted, str(root), splits)
    classes = _directories(root / train)
    if not classes:
        raise UserError(f"{root / train}: no class directories; {_LAYOUT}")
    files = []
    for class_name in _directories(root / name):
        directory = root / name / class_name
        if class_name not in classes:
            raise UserError(f"{directory}: {class_name!r} is not a class of {root / train}")
        images = _images(directory)
        if not images:
            kinds = ", ".join(extension[1:] for extension in EXTENSIONS)
            raise UserError(f"{directory}: no images ({kinds}); add some or remove the directory")
        label = classes.index(class_name)
        files += [(str(directory / image), label) for image in images]
    if not files:
        raise UserError(f"{root / name}: no class directories; {_LAYOUT}")
    if split != name:
        files.sort(key=lambda file: _shuffled_key(file[0], root))
        kept = resolve_slice(split, len(files))
        files = files[kept.start : kept.stop]
    return FolderSource(files, tuple(classes), f"{root / name}{split[len(name) :]}")


def _shuffled_key(path: str, root: pathlib.Path) -> bytes:
    """Sorts files as if shuffled, but the same way wherever the directory lies."""
    relative = pathlib.PurePath(path).relative_to(root).as_posix()
    return hashlib.blake2b(relative.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _directories(parent: pathlib.Path) -> list[str]:
    with os.scandir(parent) as entries:
        return sorted(
            entry.name for entry in entries if entry.is_dir() and not entry.name.startswith(".")
        )


def _images(directory: pathlib.Path) -> list[str]:
    with os.scandir(directory) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name.lower().endswith(EXTENSIONS)
            and not entry.name.startswith(".")
            and not entry.is_dir()
        )
