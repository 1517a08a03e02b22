"""A recipe of four steps, for grids whose runs take seconds or are not made at all."""

import pytest

from condinit_jax import config as configs

RECIPE = """
from condinit_jax import config as configs


def get_config():
    config = configs.default()
    config.model = {"name": "vit", "patch_size": 14, "width": 16, "depth": 2, "num_heads": 2}
    config.init = {"method": "conditioned"}
    config.data.eval_split = "test[:20]"
    config.steps = 4
    config.batch_size = 8
    config.mesh.data = 1
    config.log_every = config.eval_every = 2
    config.checkpoint.every = 2
    config.probe.every = 4
    config.probe.layers = config.probe.heads = 0
    return config
"""


@pytest.fixture(scope="session")
def recipe_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("recipe") / "small.py"
    path.write_text(RECIPE)
    return path


@pytest.fixture
def recipe(recipe_file):
    return configs.load(str(recipe_file))
