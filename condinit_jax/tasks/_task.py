"""What the training loop knows of a task, and all it knows."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

import chex
import jax

from condinit_jax.spectra import Recording

Batch: TypeAlias = Mapping[str, Any]
"""Arrays by name; the first axis of each counts examples."""

Variables: TypeAlias = dict[str, chex.ArrayTree]
"""A model's variables: "params" and, if the model has any, other collections."""

OFFSETS = "offsets"
"""The collection of constants that a forward pass adds to parameters; see `with_offsets`."""


class Corrupt(Protocol):
    """Examples that could not be read and were left out."""

    @property
    def count(self) -> int:
        """How many so far."""

    @property
    def names(self) -> Sequence[str]:
        """What they are called, in the order met; may be cut short."""


class Batches(Protocol):
    """An iterator over host batches that counts what it could not read."""

    @property
    def corrupt(self) -> Corrupt:
        """The examples left out so far."""

    def __iter__(self) -> Iterator[Batch]:
        """Itself."""

    def __next__(self) -> Batch:
        """The next batch: this process's share, as NumPy arrays."""

    def close(self) -> None:
        """Ends the threads and processes behind it."""


@runtime_checkable
class Task(Protocol):
    """A model, a loss and the data they meet on."""

    @property
    def train_size(self) -> int:
        """Examples in the training split."""

    @property
    def eval_size(self) -> int:
        """Examples in the evaluation split."""

    @property
    def best_metric(self) -> str:
        """Evaluation metric by which the best step is chosen; larger is better."""

    def summary(self) -> str:
        """One line for people: model, data, sizes."""

    def facts(self) -> Mapping[str, Any]:
        """What initialization methods may want to know, such as `rows` and `columns` of tokens."""

    def init(self, key: jax.Array) -> Variables:
        """Draws the model's variables; pure, runs inside `jit`."""

    def loss(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], chex.ArrayTree]]:
        """Mean loss of a training batch; pure, runs inside `jit`.

        Args:
            params: Parameters, float32.
            collections: The model's other variables.
            batch: Training batch.
            key: Randomness, such as dropout.

        Returns:
            The scalar to differentiate, and (scalar metrics with "loss" and "accuracy" among
            them, the collections after the batch).
        """

    def evaluate(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch
    ) -> dict[str, jax.Array]:
        """Sums of the metrics over an evaluation batch; pure, runs inside `jit`.

        Args:
            params: Parameters, float32.
            collections: The model's other variables.
            batch: Evaluation batch; its "mask" is 0 for padding.

        Returns:
            Sums over the real examples, with their number as "count".
        """

    def attention_inputs(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch
    ) -> Recording:
        """What the model's attention blocks read; pure, runs inside `jit`.

        Args:
            params: Parameters, float32.
            collections: The model's other variables.
            batch: Evaluation examples, none of them padding.

        Returns:
            The recording of a forward pass in evaluation mode, in float32 whatever a run computes
            in: rounded further, tokens that are nearly the same have other condition numbers.

        Raises:
            UserError: If the model has no attention block.
        """

    def train_batches(self, start_step: int) -> Batches:
        """Endless training batches, of which batch k depends on the seed and k alone.

        Args:
            start_step: Number of the first batch to give.
        """

    def eval_batches(self) -> Batches:
        """Batches over the whole evaluation split, the last padded; as many on every process."""
