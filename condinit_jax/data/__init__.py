"""Images and labels, from opening a source to batches of float32 arrays.

`open_source` gives random access to the examples of one split; `train_batches` and `eval_batches`
turn a source into batches. Neither knows of models: a batch is a dict of NumPy arrays, "image"
float32 [batch, side, side, channels], "label" int32 [batch] and "mask" float32 [batch] (1 for an
example that counts, 0 for padding and for what cannot be decoded).
"""

from condinit_jax.data.corrupt import Corrupt, UndecodableError
from condinit_jax.data.loader import Batch, Batches, check_config, eval_batches, train_batches
from condinit_jax.data.sources import SOURCES, Source, SplitError, open_source

__all__ = [
    "SOURCES",
    "Batch",
    "Batches",
    "Corrupt",
    "Source",
    "SplitError",
    "UndecodableError",
    "check_config",
    "eval_batches",
    "open_source",
    "train_batches",
]
