import jax
import pytest

from condinit_jax import config as configs
from condinit_jax.training import Silent, train

RECIPE = """
from condinit_jax import config as configs


def get_config():
    config = configs.default()
    config.model = {"name": "vit", "patch_size": 14, "width": 16, "depth": 3, "num_heads": 2}
    config.init = {"method": "conditioned"}
    config.data.eval_split = "test[:20]"
    config.steps = 4
    config.batch_size = 8
    config.mesh.data = 1
    config.log_every = config.eval_every = 4
    config.checkpoint.every = 2
    config.checkpoint.keep = 5
    config.probe.every = 2
    config.probe.layers = config.probe.heads = 0
    return config
"""


@pytest.fixture(scope="session", autouse=True)
def _compile_once(tmp_path_factory):
    """Commands that run the same program in one session compile it once."""
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    yield
    jax.config.update("jax_compilation_cache_dir", None)


@pytest.fixture(scope="session")
def recipe(tmp_path_factory):
    """The file of a small config: 5 tokens of width 16, 3 layers of 2 heads."""
    path = tmp_path_factory.mktemp("recipe") / "small.py"
    path.write_text(RECIPE)
    return path


@pytest.fixture(scope="session")
def run(recipe, tmp_path_factory):
    """a finished run, with checkpoints of steps 2 and 4 and probes there and at step 0."""
    workdir = tmp_path_factory.mktemp("runs") / "small"
    train(configs.load(str(recipe)), workdir, progress=Silent())
    return workdir
