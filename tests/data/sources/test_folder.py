import shutil

import pytest

from condinit_jax.config import DataConfig
from condinit_jax.data.sources.folder import open_folder
from condinit_jax.errors import UserError


def config(root, **fields) -> DataConfig:
    return DataConfig(source="folder", dir=str(root), **fields)


def names(source) -> list[str]:
    return ["/".join(source.example_name(i).split("/")[-2:]) for i in range(len(source))]


def test_classes_and_files_are_sorted_and_numbered(image_folder):
    source = open_folder(config(image_folder(("dog", "cat"), 2)), "train")
    assert source.class_names == ("cat", "dog")
    assert source.num_classes == 2
    assert source.channels == 3
    assert names(source) == ["cat/0.png", "cat/1.png", "dog/0.png", "dog/1.png"]
    assert [source[i]["label"] for i in range(4)] == [0, 0, 1, 1]
    assert source[0]["image"].startswith(b"\x89PNG")


def test_other_files_are_ignored_and_extensions_may_be_capital(image_folder):
    root = image_folder()
    (root / "train" / "cat" / "0.png").rename(root / "train" / "cat" / "0.PNG")
    for noise in ("notes.txt", "._1.png", ".DS_Store", "Thumbs.db"):
        (root / "train" / "cat" / noise).write_text("noise")
    (root / "train" / "cat" / "deeper.png").mkdir()
    (root / "train" / "README.md").write_text("noise")
    (root / "train" / ".cache").mkdir()
    source = open_folder(config(root), "train")
    assert names(source)[:3] == ["cat/0.PNG", "cat/1.png", "cat/2.png"]
    assert len(source) == 6


def test_labels_agree_where_a_split_lacks_a_class(image_folder):
    root = image_folder(("ant", "bee", "cow"))
    shutil.rmtree(root / "test" / "ant")
    source = open_folder(config(root), "test")
    assert source.class_names == ("ant", "bee", "cow")
    assert {source[i]["label"] for i in range(len(source))} == {1, 2}


def test_links_to_files_and_directories_are_followed(image_folder, tmp_path):
    root = image_folder()
    linked = tmp_path / "linked"
    (linked / "train").mkdir(parents=True)
    (linked / "train" / "cat").symlink_to(root / "train" / "cat")
    (linked / "train" / "dog").mkdir()
    (linked / "train" / "dog" / "a.png").symlink_to(root / "train" / "dog" / "0.png")
    assert names(open_folder(config(linked), "train"))[-1] == "dog/a.png"


def test_slices_hold_all_classes_and_partition_the_split(image_folder):
    root = image_folder(("ant", "bee", "cow"), 20)
    first, rest = (open_folder(config(root), f"train[{part}]") for part in (":50%", "50%:"))
    assert len(first) == len(rest) == 30
    assert sorted(names(first) + names(rest)) == names(open_folder(config(root), "train"))
    for part in (first, rest):
        assert {part[i]["label"] for i in range(30)} == {0, 1, 2}


def test_slices_do_not_depend_on_where_the_directory_lies(image_folder, tmp_path):
    root = image_folder(per_class=10)
    shutil.copytree(root, tmp_path / "moved")
    first, second = (
        open_folder(config(where), "train[:7]") for where in (root, tmp_path / "moved")
    )
    assert names(first) == names(second)


def test_the_training_split_may_be_a_slice(image_folder):
    root = image_folder()
    held_out = open_folder(config(root, train_split="train[:50%]"), "train[50%:]")
    assert held_out.class_names == ("cat", "dog")


def _nothing(root):
    shutil.rmtree(root)


def _no_splits(root):
    for split in ("train", "test"):
        shutil.rmtree(root / split)


def _classes_at_the_top(root):
    (root / "train" / "cat").rename(root / "cat")
    _no_splits(root)


def _no_test(root):
    shutil.rmtree(root / "test")


def _no_classes(root):
    shutil.rmtree(root / "test")
    (root / "test").mkdir()


def _no_train_classes(root):
    shutil.rmtree(root / "train")
    (root / "train").mkdir()


def _empty_class(root):
    for file in (root / "test" / "dog").iterdir():
        file.unlink()


def _unknown_class(root):
    (root / "test" / "dog").rename(root / "test" / "dgo")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_nothing, "is not a directory; expected DIR/<split>/<class>/<image>"),
        (_no_splits, "'train' is not in .*; splits there: none"),
        (_classes_at_the_top, "holds classes but no split 'train'.*move the class directories"),
        (_no_test, "'test' is not in .*; splits there: train"),
        (_no_classes, "test: no class directories; expected"),
        (_no_train_classes, "train: no class directories; expected"),
        (_empty_class, "dog: no images .*png, jpg"),
        (_unknown_class, "'dgo' is not a class of .*train"),
    ],
)
def test_what_is_missing_is_said_in_one_line(image_folder, damage, message):
    root = image_folder()
    damage(root)
    with pytest.raises(UserError, match=message) as caught:
        open_folder(config(root), "test")
    assert "\n" not in str(caught.value)


def test_an_empty_directory_field_is_said():
    with pytest.raises(UserError, match=r"^config.data.dir = '': must be a directory"):
        open_folder(config(""), "train")
