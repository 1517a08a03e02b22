"""Eight simulated devices for every test, quick compilation, and how hypothesis searches."""

import os

# Tests compile hundreds of small programs and run each once or twice: optimising them costs three
# times what it saves. tests/initializers/test_optimised.py keeps XLA's defaults.
os.environ["XLA_FLAGS"] = " ".join(
    [
        os.environ.get("XLA_FLAGS", ""),
        "--xla_backend_optimization_level=0",
        "--xla_llvm_disable_expensive_passes=true",
    ]
).strip()

import hypothesis
import jax
import pytest

# Must come before the first computation; tests that shard use all eight, the others the first.
jax.config.update("jax_num_cpu_devices", 8)

# Every new shape compiles, which a deadline would take for flakiness; the same examples each time.
hypothesis.settings.register_profile(
    "condinit", deadline=None, max_examples=15, derandomize=True, database=None
)
hypothesis.settings.load_profile("condinit")


@pytest.fixture(scope="session", autouse=True)
def _compile_once(tmp_path_factory):
    """What one test of a worker compiled, the next ones do not compile again.

    Each worker has a directory of its own: JAX writes such files in place, and a worker that reads
    what another is writing would fail.
    """
    jax.config.update("jax_compilation_cache_dir", str(tmp_path_factory.mktemp("compiled")))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    yield
    jax.config.update("jax_compilation_cache_dir", None)
