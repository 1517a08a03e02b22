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

# Must come before the first computation; tests that shard use all eight, the others the first.
jax.config.update("jax_num_cpu_devices", 8)

# Every new shape compiles, which a deadline would take for flakiness; the same examples each time.
hypothesis.settings.register_profile(
    "condinit", deadline=None, max_examples=15, derandomize=True, database=None
)
hypothesis.settings.load_profile("condinit")
