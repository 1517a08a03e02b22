"""What a source of examples must offer, and the one whose examples already lie in memory."""

import dataclasses
from typing import Protocol, TypedDict, runtime_checkable

import numpy as np
from jaxtyping import UInt8


class Example(TypedDict):
    """One image, encoded (PNG, JPEG, ...) or decoded (uint8 [height, width, channels])."""

    image: bytes | np.ndarray
    label: int


@runtime_checkable
class Source(Protocol):
    """Random access to the examples of one split; it must survive pickling (worker processes).

    An example that cannot be read raises `UndecodableError` or `OSError`.

    Attributes:
        num_classes: labels are in [0, num_classes).
        channels: 1 where images are to be grayscale, 3 where they are to be RGB.
        class_names: one per class, in the order of the labels.
        name: what to call the source in messages.
    """

    @property
    def num_classes(self) -> int: ...  # noqa: D102

    @property
    def channels(self) -> int: ...  # noqa: D102

    @property
    def class_names(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    def name(self) -> str: ...  # noqa: D102

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Example: ...

    def example_name(self, index: int, /) -> str:
        """What to call an example in a message: its file, or its place in the split."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class ArraySource:
    """Examples of one size in memory, so that a batch is one indexing operation.

    Attributes:
        images: uint8 [examples, height, width, channels].
        labels: integers [examples].
        class_names: one per class.
        name: what to call the source in messages.
    """

    images: UInt8[np.ndarray, "examples height width channels"]
    labels: np.ndarray
    class_names: tuple[str, ...]
    name: str

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @property
    def channels(self) -> int:
        """Channels of the stored images."""
        return self.images.shape[-1]

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int, /) -> Example:
        return {"image": self.images[index], "label": int(self.labels[index])}

    def example_name(self, index: int, /) -> str:
        """The example's place in the source."""
        return f"{self.name}[{index}]"
