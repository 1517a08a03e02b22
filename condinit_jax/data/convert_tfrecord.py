"""Gives a TFDS data set that was prepared as TFRecord the random access that training needs.

`python -m condinit_jax.data.convert_tfrecord DIR/cifar10/3.0.2` writes each shard a second time, as
ArrayRecord, beside the old one, and then names the new format in `dataset_info.json`. TFDS itself
goes on reading the TFRecord files; TensorFlow is not needed. Lengths are checked, and the number
of examples; the checksums inside the TFRecord files are not.
"""

import argparse
import json
import os
import pathlib
import sys
from typing import Any

from condinit_jax.errors import UserError


def convert_tfrecord(directory: pathlib.Path) -> int:
    """Writes the ArrayRecord shards of one prepared data set, and announces them.

    It may be interrupted and run again: the data set changes only when all shards are written.

    Args:
        directory: holds `dataset_info.json` and the `*.tfrecord*` shards.

    Returns:
        The number of examples converted.

    Raises:
        UserError: where the directory is no data set prepared as TFRecord, or a shard is damaged
            or missing.
    """
    info_file = directory / "dataset_info.json"
    if not info_file.exists():
        raise UserError(f"{info_file}: not found; give the directory of a prepared TFDS data set")
    info = json.loads(info_file.read_text(encoding="utf-8"))
    shards = sorted(path for path in directory.iterdir() if ".tfrecord" in path.name)
    if info.get("fileFormat", "tfrecord") != "tfrecord" or not shards:
        found = info.get("fileFormat", "no shards")
        raise UserError(f"{directory}: expected a data set prepared as tfrecord, found {found}")
    expected = _examples(info)
    converted = sum(_convert_shard(shard) for shard in shards)
    if converted != expected:
        raise UserError(
            f"{directory}: {converted} examples in {len(shards)} shards, but {info_file.name}"
            f" counts {expected}; a shard is missing or incomplete"
        )
    others = info.get("alternativeFileFormats", [])
    info["alternativeFileFormats"] = sorted({*others, "array_record"})
    partial = info_file.with_suffix(".json.partial")
    partial.write_text(json.dumps(info, indent=2), encoding="utf-8")
    os.replace(partial, info_file)
    return converted


def _examples(info: dict[str, Any]) -> int:
    return sum(int(length) for split in info["splits"] for length in split["shardLengths"])


def _convert_shard(shard: pathlib.Path) -> int:
    import grain
    from array_record.python.array_record_module import ArrayRecordWriter

    target = shard.with_name(shard.name.replace(".tfrecord", ".array_record"))
    partial = target.with_name(f"{target.name}.partial")
    # Groups of one record, as TFDS writes them: examples are read one at a time.
    writer = ArrayRecordWriter(str(partial), "group_size:1")
    count = 0
    try:
        for record in grain.experimental.TFRecordIterDataset(str(shard)):
            writer.write(record)
            count += 1
    except ValueError as error:
        raise UserError(f"{shard}: damaged after {count} examples; prepare it again") from error
    finally:
        writer.close()
    os.replace(partial, target)
    return count


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("directory", type=pathlib.Path, help="such as DIR/cifar10/3.0.2")
    try:
        print(f"{convert_tfrecord(parser.parse_args().directory)} examples converted")
    except UserError as error:
        sys.exit(f"error: {error}")
