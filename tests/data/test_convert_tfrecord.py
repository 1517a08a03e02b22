import json
import shutil
import struct
import subprocess
import sys

import pytest
from array_record.python.array_record_data_source import ArrayRecordDataSource

from condinit_jax.config import DataConfig
from condinit_jax.data.convert_tfrecord import convert_tfrecord
from condinit_jax.data.sources.tfds import open_tfds
from condinit_jax.errors import UserError


@pytest.fixture
def tfrecords(tfds_data_dir, tmp_path):
    """The tiny set as TFDS would have prepared it as TFRecord."""
    directory = tmp_path / "tiny" / "1.0.0"
    shutil.copytree(tfds_data_dir / "tiny" / "1.0.0", directory)
    for shard in directory.glob("*.array_record*"):
        with open(shard.with_name(shard.name.replace("array_record", "tfrecord")), "wb") as file:
            for record in ArrayRecordDataSource([str(shard)]):
                file.write(struct.pack("<QI", len(record), 0) + record + bytes(4))
        shard.unlink()
    info = directory / "dataset_info.json"
    content = json.loads(info.read_text()) | {"fileFormat": "tfrecord"}
    info.write_text(json.dumps(content))
    return directory


def test_the_converted_set_holds_the_same_examples(tfrecords, tfds_data_dir):
    before = DataConfig(source="tfds", name="tiny", dir=str(tfds_data_dir))
    after = DataConfig(source="tfds", name="tiny", dir=str(tfrecords.parent.parent))
    with pytest.raises(UserError, match="convert_tfrecord"):
        open_tfds(after, "train")
    assert convert_tfrecord(tfrecords) == 17
    for split in ("train", "test"):
        old, new = open_tfds(before, split), open_tfds(after, split)
        assert [old[i] for i in range(len(old))] == [new[i] for i in range(len(new))]


def test_the_tfrecord_files_stay_and_it_may_run_again(tfrecords):
    assert convert_tfrecord(tfrecords) == convert_tfrecord(tfrecords) == 17
    info = json.loads((tfrecords / "dataset_info.json").read_text())
    assert info["fileFormat"] == "tfrecord"
    assert info["alternativeFileFormats"] == ["array_record"]
    assert len(list(tfrecords.glob("*.tfrecord*"))) == 2
    assert not list(tfrecords.glob("*.partial"))


def test_a_damaged_shard_is_named_and_changes_nothing(tfrecords):
    shard = next(tfrecords.glob("*train.tfrecord*"))
    shard.write_bytes(shard.read_bytes()[:-30])
    before = (tfrecords / "dataset_info.json").read_text()
    with pytest.raises(UserError, match=f"{shard.name}: damaged after 11 examples"):
        convert_tfrecord(tfrecords)
    assert (tfrecords / "dataset_info.json").read_text() == before


def test_a_missing_shard_is_noticed(tfrecords):
    next(tfrecords.glob("*train.tfrecord*")).unlink()
    with pytest.raises(UserError, match=r"5 examples in 1 shards, but dataset_info.json counts 17"):
        convert_tfrecord(tfrecords)


def test_other_directories_are_refused(tmp_path, tfds_data_dir):
    with pytest.raises(UserError, match="not found"):
        convert_tfrecord(tmp_path)
    with pytest.raises(UserError, match="expected a data set prepared as tfrecord, found array_r"):
        convert_tfrecord(tfds_data_dir / "tiny" / "1.0.0")


def test_the_command_says_what_is_wrong_in_one_line(tmp_path):
    command = [sys.executable, "-m", "condinit_jax.data.convert_tfrecord", str(tmp_path)]
    output = subprocess.run(command, capture_output=True, text=True)
    assert output.returncode == 1
    assert output.stderr.startswith("error: ")
    assert output.stderr.count("\n") == 1
