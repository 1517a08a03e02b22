"""Batches of one process, prepared by Grain's threads or worker processes.

A batch is made of chunks: at most 32 images that are to be decoded, or all of a process's images
where they lie in memory. Grain maps chunk numbers to chunks, so that threads and workers share the
work of one batch, and the first batch does not wait for a whole one per thread. A chunk is a pure
function of its number; so the stream does not depend on who makes it, and resuming means starting
to count elsewhere. Chunks hold uint8, a quarter of what would otherwise cross process borders;
`Batches` joins and normalises them in one pass.
"""

import gc
import math
import os
import sys
import typing
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from jaxtyping import Float32, Int32

from condinit_jax.config import DataConfig
from condinit_jax.data.chunks import (
    MOST_REPLACEMENTS,
    Chunk,
    EvalChunks,
    Layout,
    TrainChunks,
)
from condinit_jax.data.corrupt import Corrupt
from condinit_jax.data.images import normalise
from condinit_jax.data.sources import ArraySource, Source
from condinit_jax.data.worker import start_worker
from condinit_jax.errors import UserError

if TYPE_CHECKING:
    import grain

_DECODED_PER_CHUNK = 32
_MOST_THREADS = 16


class Batch(TypedDict):
    """What one process gets of one batch."""

    image: Float32[np.ndarray, "batch side side channels"]
    label: Int32[np.ndarray, " batch"]
    mask: Float32[np.ndarray, " batch"]


class Batches(Iterator[Batch]):
    """An iterator over batches that counts what could not be decoded.

    Worker processes and threads end with `close`, at the end, or when nothing refers to the
    iterator any more.

    Attributes:
        corrupt: the unreadable examples of the batches given out so far.
    """

    def __init__(
        self,
        chunks: TrainChunks | EvalChunks,
        first: int,
        stop: int,
        config: DataConfig,
    ) -> None:
        self.corrupt = Corrupt()
        self._chunks = chunks
        self._config = config
        # In a list, so that closing also drops it: Grain's iterators complain where they outlive
        # the interpreter's modules.
        self._open = [_iterate(chunks, first, stop, config.workers)]
        self._finalizer = weakref.finalize(self, _close, self._open, config.workers)

    def __next__(self) -> Batch:
        if self._open:
            try:
                return self._assemble(self._open[0])
            except StopIteration:
                pass  # closed below: in here, the exception would keep shared memory in use
            except BaseException:
                # Half a batch may be gone: what followed would be misaligned.
                self.close()
                raise
            self.close()
        raise StopIteration

    def _assemble(self, iterator: "grain.DatasetIterator[Chunk]") -> Batch:
        layout, config = self._chunks.layout, self._config
        rows = layout.per_process
        image = np.empty((rows, *self._chunks.image_shape), np.float32)
        label, mask = np.empty(rows, np.int32), np.empty(rows, np.float32)
        for place in range(layout.chunks):
            chunk = next(iterator)
            self._check(chunk)
            part = slice(*layout.rows(place))
            normalise(chunk["image"], config.mean, config.std, out=image[part])
            label[part], mask[part] = chunk["label"], chunk["mask"]
        return {"image": image, "label": label, "mask": mask}

    def close(self) -> None:
        """Ends threads and worker processes; the iterator gives nothing afterwards."""
        self._finalizer()

    def _check(self, chunk: Chunk) -> None:
        source, unreadable = self._chunks.source, chunk["corrupt"]
        if (chunk["label"] < 0).any():
            raise UserError(f"{source.name}: holds examples without a label; choose another split")
        self.corrupt.add(unreadable)
        if unreadable and self._config.on_corrupt == "fail":
            raise UserError(
                f"{unreadable[0]}; remove the file, or set config.data.on_corrupt=skip to go"
                " on without it"
            )
        if isinstance(self._chunks, TrainChunks) and not chunk["mask"].all():
            tried = min(len(source), MOST_REPLACEMENTS)
            raise UserError(
                f"{source.name}: {tried} examples in a row cannot be decoded, such as"
                f" {unreadable[-1]}; are these images?"
            )


def _close(iterators: "list[grain.DatasetIterator[Chunk]]", workers: int) -> None:
    while iterators:
        iterators.pop().close()
    if workers:
        # Grain's threads end in exceptions whose cycles hold each worker's last chunk. It lies in
        # shared memory, which Python reports as leaked where it is still there at exit.
        gc.collect()


def _iterate(
    chunks: TrainChunks | EvalChunks, first: int, stop: int, workers: int
) -> "grain.DatasetIterator[Chunk]":
    """Starts Grain on the chunks numbered `first` to `stop`."""
    import grain  # over a second, and a source can be looked at without it

    mapped = grain.MapDataset.range(first, stop).map(chunks)
    if workers:
        from absl import flags

        # Grain reads absl's flags where it starts workers, which fails outside `app.run`.
        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        one_thread = grain.ReadOptions(num_threads=1, prefetch_buffer_size=1)
        processes = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
        return iter(mapped.to_iter_dataset(one_thread).mp_prefetch(processes, start_worker))
    if isinstance(chunks.source, ArraySource):
        options = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    else:
        threads = min(_MOST_THREADS, os.cpu_count() or 1)
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    return iter(mapped.to_iter_dataset(options))


def _layout(source: Source, batch_size: int, process_index: int, process_count: int) -> Layout:
    if batch_size < 1 or batch_size % process_count:
        raise UserError(
            f"batch_size: {batch_size} is not a positive multiple of {process_count} processes"
        )
    share = batch_size // process_count
    in_memory = isinstance(source, ArraySource)
    return Layout(batch_size, share, process_index, share if in_memory else _DECODED_PER_CHUNK)


def check_config(config: DataConfig, source: Source) -> None:
    """Checks what needs the source, and names that would otherwise silently mean another.

    Args:
        config: how images are prepared.
        source: any split of the data.

    Raises:
        UserError: where a name is unknown, or mean or deviation do not fit the images' channels.
    """
    annotations = typing.get_type_hints(DataConfig)
    for field in ("train_crop", "on_corrupt"):
        value, allowed = getattr(config, field), typing.get_args(annotations[field])
        if value not in allowed:
            raise UserError(f"config.data.{field} = {value!r}: must be {' or '.join(allowed)}")
    for field, values in (("mean", config.mean), ("std", config.std)):
        if len(values) not in {1, source.channels}:
            wanted = "1 entry" if source.channels == 1 else f"1 entry or {source.channels}"
            raise UserError(
                f"config.data.{field} = {values!r}: must have {wanted}, as {source.name} has images"
                f" of {source.channels} channel{'s'[: source.channels - 1]}"
            )


def train_batches(
    source: Source,
    config: DataConfig,
    *,
    batch_size: int,
    seed: int,
    start_step: int = 0,
    process_index: int = 0,
    process_count: int = 1,
) -> Batches:
    """An endless stream of training batches; batch k is a pure function of the seed and k.

    Every epoch is a new permutation of the source, and batches run on across epochs. Process p
    gets the p-th part of every batch, so the parts of all processes, joined, are the batch that a
    single process would get.

    Args:
        source: the training split.
        config: how images are prepared; `workers` changes speed only.
        batch_size: examples per batch over all processes.
        seed: of order and augmentation; any integer.
        start_step: the number of the first batch.
        process_index: which part of the batches to give.
        process_count: processes that share a batch; must divide `batch_size`.

    Returns:
        An iterator with the counts of unreadable examples in `corrupt`. Such an example is
        replaced by the next one of its epoch where `config.on_corrupt` is "skip".

    Raises:
        UserError: where the config, the batch size or the source cannot work.

    Example:
        >>> from condinit_jax.data import open_source
        >>> config = DataConfig()
        >>> batches = train_batches(open_source(config, "train"), config, batch_size=64, seed=0)
        >>> {name: array.shape for name, array in next(batches).items()}
        {'image': (64, 28, 28, 1), 'label': (64,), 'mask': (64,)}
    """
    check_config(config, source)
    if not len(source):
        raise UserError(f"{source.name}: no examples to train on")
    layout = _layout(source, batch_size, process_index, process_count)
    chunks = TrainChunks(source, config, layout, seed % 2**64)
    return Batches(chunks, start_step * layout.chunks, sys.maxsize, config)


def eval_batches(
    source: Source,
    config: DataConfig,
    *,
    batch_size: int,
    process_index: int = 0,
    process_count: int = 1,
) -> Batches:
    """All examples once, over all processes together, in the source's order.

    Args:
        source: the evaluation split.
        config: how images are prepared.
        batch_size: examples per batch over all processes; the last batch is padded.
        process_index: which part of the batches to give.
        process_count: processes that share a batch; must divide `batch_size`.

    Returns:
        An iterator over ceil(examples / batch_size) batches, as many in every process. "mask" is 0
        for padding, and for unreadable examples where `config.on_corrupt` is "skip".

    Raises:
        UserError: where the config or the batch size cannot work.
    """
    check_config(config, source)
    layout = _layout(source, batch_size, process_index, process_count)
    batches = math.ceil(len(source) / batch_size)
    return Batches(EvalChunks(source, config, layout), 0, batches * layout.chunks, config)
