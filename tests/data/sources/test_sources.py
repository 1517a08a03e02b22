import subprocess
import sys

import pytest

from condinit_jax.config import DataConfig
from condinit_jax.data.sources import SOURCES, Source, open_source
from condinit_jax.errors import UserError


def test_the_config_documents_every_source():
    documented = DataConfig.__dataclass_fields__["source"].metadata["doc"]
    assert all(name in documented for name in SOURCES)


def test_an_unknown_source_names_the_known_ones():
    with pytest.raises(
        UserError, match=r"config.data.source = 'imagenet': .* bundled, tfds, tfds_"
    ):
        open_source(DataConfig(source="imagenet"), "train")


def test_every_source_keeps_the_protocol(image_folder, tfds_data_dir):
    for config in (
        DataConfig(),
        DataConfig(source="folder", dir=str(image_folder())),
        DataConfig(source="tfds", name="tiny", dir=str(tfds_data_dir)),
        DataConfig(source="tfds_dir", dir=str(tfds_data_dir / "tiny" / "1.0.0")),
    ):
        source = open_source(config, "test")
        assert isinstance(source, Source)
        assert len(source.class_names) == source.num_classes
        assert 0 <= source[0]["label"] < source.num_classes


def test_looking_at_data_loads_neither_grain_nor_tfds():
    code = (
        "import sys, condinit_jax.data as data; from condinit_jax.config import DataConfig;"
        "data.open_source(DataConfig(), 'test')[0];"
        "print([m for m in ('grain', 'tensorflow_datasets', 'tensorflow') if m in sys.modules])"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert output.stdout.strip() == "[]", output.stderr
