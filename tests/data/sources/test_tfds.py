import json
import pickle
import shutil

import pytest
import tensorflow_datasets as tfds

from condinit_jax.config import DataConfig
from condinit_jax.data.corrupt import UndecodableError
from condinit_jax.data.sources.tfds import open_tfds, open_tfds_dir
from condinit_jax.errors import UserError


def by_name(directory, name="tiny") -> DataConfig:
    return DataConfig(source="tfds", name=name, dir=str(directory))


@pytest.fixture
def copied(tfds_data_dir, tmp_path):
    """A data directory that a test may damage."""
    shutil.copytree(tfds_data_dir / "tiny", tmp_path / "tiny")
    return tmp_path


@pytest.mark.parametrize("name", ["tiny", "tiny:1.0.0"])
def test_a_prepared_set_opens_by_name(tfds_data_dir, name):
    source = open_tfds(by_name(tfds_data_dir, name), "train")
    assert len(source) == 12
    assert source.class_names == ("even", "odd")
    assert source.num_classes == 2
    assert source.channels == 3
    assert source[0]["image"].startswith(b"\x89PNG")
    assert sorted(source[i]["label"] for i in range(12)) == [0] * 6 + [1] * 6
    assert source.example_name(3) == f"{name} train[3]"


def test_a_prepared_set_opens_by_directory(tfds_data_dir):
    directory = str(tfds_data_dir / "tiny" / "1.0.0")
    source = open_tfds_dir(DataConfig(source="tfds_dir", dir=directory), "test")
    assert len(source) == 5


def test_the_default_data_directory_is_that_of_tfds(tfds_data_dir, monkeypatch):
    monkeypatch.setattr(tfds.core.constants, "DATA_DIR", str(tfds_data_dir))
    assert len(open_tfds(by_name(""), "test")) == 5


def test_slices_and_sums_of_splits_are_those_of_tfds(tfds_data_dir):
    config = by_name(tfds_data_dir)
    whole = [open_tfds(config, "train")[i]["image"] for i in range(12)]
    part = open_tfds(config, "train[25%:50%]")
    assert [part[i]["image"] for i in range(len(part))] == whole[3:6]
    assert len(open_tfds(config, "train+test")) == 17


def test_a_source_survives_pickling(tfds_data_dir):
    source = open_tfds(by_name(tfds_data_dir), "test")
    again = pickle.loads(pickle.dumps(source))
    assert [again[i] for i in range(5)] == [source[i] for i in range(5)]


def test_the_newest_version_is_taken(copied):
    for version in ("1.2.0", "1.10.0"):
        shutil.copytree(copied / "tiny" / "1.0.0", copied / "tiny" / version)
        info = copied / "tiny" / version / "dataset_info.json"
        info.write_text(info.read_text().replace('"1.0.0"', f'"{version}"'))
    (copied / "tiny" / "2.0.0.incomplete").mkdir()
    source = open_tfds(by_name(copied), "test")
    assert source.records.dataset_info.version == "1.10.0"


def test_a_single_config_is_found_and_several_are_named(copied):
    shutil.move(copied / "tiny", copied / "only")
    shutil.move(copied / "only", copied / "tiny" / "small")
    assert len(open_tfds(by_name(copied), "test")) == 5
    assert len(open_tfds(by_name(copied, "tiny/small:1.0.0"), "test")) == 5
    shutil.copytree(copied / "tiny" / "small", copied / "tiny" / "large")
    with pytest.raises(UserError, match="tiny/large, tiny/small"):
        open_tfds(by_name(copied), "test")


@pytest.mark.parametrize("name", ["cifar10", "tiny:3.0.0", "tiny/other"])
def test_what_is_not_prepared_comes_with_the_command_that_prepares_it(tfds_data_dir, name):
    with pytest.raises(UserError) as caught:
        open_tfds(by_name(tfds_data_dir, name), "train")
    message = str(caught.value)
    assert "\n" not in message
    assert f"config.data.name = {name!r}: is not prepared in {tfds_data_dir}" in message
    assert message.endswith(
        'pip install tensorflow && python -c "import tensorflow_datasets as t; '
        f"t.builder('{name}', data_dir='{tfds_data_dir}')"
        ".download_and_prepare(file_format='array_record')\""
    )
    assert ("there: 1.0.0" in message) == (name == "tiny:3.0.0")


@pytest.mark.parametrize("name", ["", "a b", "../etc", "tiny:latest", "ns:tiny"])
def test_other_names_are_refused(tfds_data_dir, name):
    with pytest.raises(UserError, match=r"^config.data.name = .*: must be a TFDS name"):
        open_tfds(by_name(tfds_data_dir, name), "train")


@pytest.mark.parametrize("split", ["validation", "validation[:10%]", "train+validation"])
def test_an_unknown_split_names_those_that_exist(tfds_data_dir, split):
    with pytest.raises(UserError, match=r"'validation' .* train, test"):
        open_tfds(by_name(tfds_data_dir), split)


def test_a_slice_without_examples_is_refused(tfds_data_dir):
    with pytest.raises(UserError, match="keeps no example"):
        open_tfds(by_name(tfds_data_dir), "test[:0]")


@pytest.mark.parametrize("directory", ["", "somewhere"])
def test_a_directory_that_is_no_prepared_set_is_refused(tmp_path, directory):
    config = DataConfig(source="tfds_dir", dir=directory and str(tmp_path / directory))
    with pytest.raises(UserError, match=r"dataset_info.json"):
        open_tfds_dir(config, "train")


@pytest.mark.parametrize(
    ("file_format", "way"),
    [
        ("tfrecord", r"run python -m condinit_jax.data.convert_tfrecord .*/tiny/1.0.0$"),
        (None, r"run python -m condinit_jax.data.convert_tfrecord .*/tiny/1.0.0$"),
        ("riegeli", r"prepare it again with file_format='array_record'$"),
    ],
)
def test_other_file_formats_say_how_to_convert(copied, file_format, way):
    info = copied / "tiny" / "1.0.0" / "dataset_info.json"
    content = json.loads(info.read_text()) | {"fileFormat": file_format}
    if file_format is None:  # as older releases wrote it
        del content["fileFormat"]
    info.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"prepared as {file_format or 'tfrecord'}, .*{way}"):
        open_tfds(by_name(copied), "train")


def test_a_missing_shard_is_named(copied):
    shard = next((copied / "tiny" / "1.0.0").glob("*train*"))
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name}: missing; copy it"):
        open_tfds(by_name(copied), "train[:50%]")
    assert len(open_tfds(by_name(copied), "test")) == 5


@pytest.mark.parametrize("damage", ["overwritten", "cut"])
def test_damaged_records_are_undecodable_not_fatal(copied, damage):
    shard = next((copied / "tiny" / "1.0.0").glob("*train*"))
    content = bytearray(shard.read_bytes())
    middle = len(content) // 2
    if damage == "cut":
        del content[middle:]
    else:
        content[middle : middle + 8] = bytes(255 - byte for byte in content[middle : middle + 8])
    shard.write_bytes(content)
    source = open_tfds(by_name(copied), "train")
    with pytest.raises(UndecodableError) as caught:
        source[11]
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("wrong", "right"), [("image", "picture"), ("label", "class")])
def test_a_set_without_image_or_label_names_its_features(copied, wrong, right):
    file = copied / "tiny" / "1.0.0" / "features.json"
    content = json.loads(file.read_text())
    features = content["featuresDict"]["features"]
    features[right] = features.pop(wrong)
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"features there: .*{right} \("):
        open_tfds(by_name(copied), "train")
