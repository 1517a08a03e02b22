"""The part of a batch that one thread or worker prepares, as a pure function of its number."""

import dataclasses
from collections.abc import Callable
from typing import TypedDict

import numpy as np
from jaxtyping import Float32, Float64, Int, Int32, UInt8

from condinit_jax.config import DataConfig
from condinit_jax.data import order
from condinit_jax.data.corrupt import UndecodableError
from condinit_jax.data.images import (
    INCEPTION_DRAWS,
    as_array,
    decode,
    flip,
    inception_crop,
    pad_crop,
    resize_and_centre,
)
from condinit_jax.data.sources import ArraySource, Source

# So many unreadable examples next to each other in a shuffled order mean a wrong directory, not
# a damaged file; reading on until the end of a large set would only hide that.
MOST_REPLACEMENTS = 100

_FLIP_DRAW = INCEPTION_DRAWS
_PAD_DRAWS = slice(INCEPTION_DRAWS + 1, INCEPTION_DRAWS + 3)


class Chunk(TypedDict):
    """Some rows of a batch, and the names of the unreadable examples met on the way."""

    image: UInt8[np.ndarray, "rows side side channels"]
    label: Int32[np.ndarray, " rows"]
    mask: Float32[np.ndarray, " rows"]
    corrupt: list[str]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the stream of positions is cut into batches, processes and chunks.

    Attributes:
        batch_size: examples per batch, over all processes.
        per_process: examples of a batch that this process prepares.
        process_index: which of them, counted in parts of `per_process`.
        per_chunk: most examples in a chunk.

    Example:
        >>> layout = Layout(batch_size=8, per_process=4, process_index=1, per_chunk=3)
        >>> [layout.positions(number) for number in range(4)]
        [(4, 7), (7, 8), (12, 15), (15, 16)]
    """

    batch_size: int
    per_process: int
    process_index: int
    per_chunk: int

    @property
    def chunks(self) -> int:
        """Chunks in this process's part of a batch."""
        return -(-self.per_process // self.per_chunk)

    def rows(self, place: int) -> tuple[int, int]:
        """First row of a chunk in this process's part of a batch, and the row after its last."""
        start = place * self.per_chunk
        return start, min(start + self.per_chunk, self.per_process)

    def positions(self, number: int) -> tuple[int, int]:
        """First position of a chunk in the stream, and the position after its last."""
        step, place = divmod(number, self.chunks)
        offset = step * self.batch_size + self.process_index * self.per_process
        start, stop = self.rows(place)
        return offset + start, offset + stop


Square = UInt8[np.ndarray, "side side channels"]


def _blank(rows: int, shape: tuple[int, int, int]) -> Chunk:
    return {
        "image": np.zeros((rows, *shape), np.uint8),
        "label": np.zeros(rows, np.int32),
        "mask": np.zeros(rows, np.float32),
        "corrupt": [],
    }


def _gather(source: ArraySource, indices: Int[np.ndarray, " rows"]) -> Chunk:
    return {
        "image": source.images[indices],
        "label": source.labels[indices].astype(np.int32),
        "mask": np.ones(len(indices), np.float32),
        "corrupt": [],
    }


def _read(
    source: Source,
    index: int,
    prepare: Callable[[bytes | np.ndarray], Square],
    chunk: Chunk,
    row: int,
) -> bool:
    """Writes one example into a row of the chunk, or its name into the chunk's list."""
    try:
        example = source[index]
        chunk["image"][row] = prepare(example["image"])
    except (UndecodableError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        chunk["corrupt"].append(f"{source.example_name(index)}: {reason}")
        return False
    chunk["label"][row] = example["label"]
    chunk["mask"][row] = 1
    return True


def _array_source(source: Source, shape: tuple[int, int, int]) -> ArraySource | None:
    """The source, where its images can be taken as they are, many at a time."""
    if isinstance(source, ArraySource) and source.images.shape[1:] == shape:
        return source
    return None


def _image_shape(config: DataConfig, source: Source) -> tuple[int, int, int]:
    return config.image_size, config.image_size, source.channels


@dataclasses.dataclass(frozen=True)
class TrainChunks:
    """Chunks of the endless, shuffled and augmented training stream.

    Attributes:
        source: the training split, not empty.
        config: how images are prepared.
        layout: how the stream is cut.
        seed: of order and augmentation, not negative.
    """

    source: Source
    config: DataConfig
    layout: Layout
    seed: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every prepared image."""
        return _image_shape(self.config, self.source)

    def __call__(self, number: int) -> Chunk:
        """Prepares one chunk.

        Args:
            number: counts this process's chunks over all batches.

        Returns:
            The chunk. A mask of 0 means that no readable replacement was found, and ends it.
        """
        start, stop = self.layout.positions(number)
        draws = order.uniforms(self.seed, start, stop)
        arrays = _array_source(self.source, self.image_shape)
        if arrays is not None and self.config.train_crop != "inception":
            chunk = _gather(arrays, order.shuffled(self.seed, len(arrays), start, stop))
        else:
            chunk = _blank(stop - start, self.image_shape)
            for row in range(stop - start):
                if not self._fill(chunk, row, start + row, draws[row]):
                    break
        if self.config.train_crop == "pad":
            chunk["image"] = pad_crop(chunk["image"], draws[:, _PAD_DRAWS])
        if self.config.flip:
            chunk["image"] = flip(chunk["image"], draws[:, _FLIP_DRAW])
        return chunk

    def _fill(
        self, chunk: Chunk, row: int, position: int, draws: Float64[np.ndarray, " draws"]
    ) -> bool:
        """Reads the example at a position, or the next readable one of its epoch, into a row."""
        length = len(self.source)
        for ahead in range(min(length, MOST_REPLACEMENTS)):
            taken = order.next_in_epoch(length, position, ahead)
            index = int(order.shuffled(self.seed, length, taken, taken + 1)[0])
            if _read(self.source, index, lambda image: self._prepare(image, draws), chunk, row):
                return True
        return False

    def _prepare(self, image: bytes | np.ndarray, draws: Float64[np.ndarray, " draws"]) -> Square:
        picture, side = decode(image, self.source.channels), self.config.image_size
        if self.config.train_crop == "inception":
            return as_array(inception_crop(picture, side, draws))
        return as_array(resize_and_centre(picture, side))


@dataclasses.dataclass(frozen=True)
class EvalChunks:
    """Chunks of one pass through a source in its own order, padded to whole batches.

    Attributes:
        source: the evaluation split.
        config: how images are prepared.
        layout: how the stream is cut.
    """

    source: Source
    config: DataConfig
    layout: Layout

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of every prepared image."""
        return _image_shape(self.config, self.source)

    def __call__(self, number: int) -> Chunk:
        """Prepares one chunk.

        Args:
            number: counts this process's chunks over all batches.

        Returns:
            The chunk; rows beyond the source's end, and unreadable ones, have mask 0.
        """
        start, stop = self.layout.positions(number)
        chunk = _blank(stop - start, self.image_shape)
        real = max(0, min(stop, len(self.source)) - start)
        arrays = _array_source(self.source, self.image_shape)
        if arrays is not None and self.config.eval_crop == 1:
            kept = _gather(arrays, np.arange(start, start + real))
            chunk["image"][:real], chunk["label"][:real] = kept["image"], kept["label"]
            chunk["mask"][:real] = 1
        else:
            for row in range(real):
                _read(self.source, start + row, self._prepare, chunk, row)
        return chunk

    def _prepare(self, image: bytes | np.ndarray) -> Square:
        picture = decode(image, self.source.channels)
        return as_array(resize_and_centre(picture, self.config.image_size, self.config.eval_crop))
