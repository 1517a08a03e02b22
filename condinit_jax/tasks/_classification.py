"""Image classification: one label per image, softmax cross-entropy."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, cast

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from condinit_jax.config import Config, DataConfig
from condinit_jax.data import (
    Source,
    SplitError,
    check_config,
    eval_batches,
    open_source,
    train_batches,
)
from condinit_jax.errors import UserError
from condinit_jax.models import MODELS
from condinit_jax.spectra import Recording, record
from condinit_jax.surgery import with_offsets
from condinit_jax.tasks._task import OFFSETS, Batch, Batches, Variables


def cross_entropy(
    logits: Float[Array, "batch classes"], labels: Int[Array, " batch"], smoothing: float = 0.0
) -> Float[Array, " batch"]:
    """Cross-entropy of each example against its smoothed label, in float32.

    Args:
        logits: Unnormalised log-probabilities.
        labels: True classes.
        smoothing: Mass moved from the true class to all classes, in [0, 1).

    Returns:
        Losses in nats.

    Example:
        >>> loss = cross_entropy(jnp.zeros((1, 4)), jnp.array([2]), 0.1)
        >>> abs(float(loss[0]) - float(jnp.log(4.0))) < 1e-6
        True
    """
    targets = optax.smooth_labels(jax.nn.one_hot(labels, logits.shape[-1]), smoothing)
    return optax.softmax_cross_entropy(logits.astype(jnp.float32), targets)


@dataclasses.dataclass(frozen=True)
class Classification:
    """A classifier and its two splits.

    Evaluation reports the plain cross-entropy, without label smoothing, so that runs with
    different smoothing compare.

    Attributes:
        config: The run's fields.
        model: Maps images to logits.
        train_source: Training examples.
        eval_source: Evaluation examples.
    """

    config: Config
    model: nn.Module
    train_source: Source
    eval_source: Source
    best_metric: str = "accuracy"

    @property
    def train_size(self) -> int:
        """Examples in the training split."""
        return len(self.train_source)

    @property
    def eval_size(self) -> int:
        """Examples in the evaluation split."""
        return len(self.eval_source)

    def summary(self) -> str:
        """One line for people: model, data, sizes."""
        data = self.config.data
        return (
            f"classification: {self.config.model['name']} on {self.train_source.name}, "
            f"{self.train_source.num_classes} classes, {self.train_size} training and "
            f"{self.eval_size} evaluation images at {data.image_size} px"
        )

    def facts(self) -> Mapping[str, Any]:
        """The grid of the model's tokens, where they are its patches alone at fixed positions."""
        model: Any = self.model
        if (getattr(model, "positions", ""), getattr(model, "pool", "")) != ("sincos2d", "gap"):
            return {}
        side = self.config.data.image_size // model.patch_size
        return {"rows": side, "columns": side}

    def init(self, key: jax.Array) -> Variables:
        """Draws the model's variables."""
        size = self.config.data.image_size
        images = jnp.zeros((1, size, size, self.train_source.channels))
        try:
            return dict(self.model.init(key, images))
        except UserError as error:
            # The model knows its fields, not where they stand.
            raise UserError(f"config.model.{error}") from error

    def loss(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch, key: jax.Array
    ) -> tuple[jax.Array, tuple[dict[str, jax.Array], chex.ArrayTree]]:
        """Mean smoothed cross-entropy of a training batch; see `Task.loss`."""
        variables = _variables(params, collections)
        logits, changed = self.model.apply(
            variables,
            batch["image"],
            train=True,
            rngs={"dropout": key},
            mutable=[name for name in variables if name != "params"],
        )
        collections = {**collections, **changed}
        losses = cross_entropy(logits, batch["label"], self.config.task.label_smoothing)
        real = batch["mask"]
        count = jnp.maximum(jnp.sum(real), 1.0)
        loss = jnp.sum(losses * real) / count
        hits = jnp.sum((jnp.argmax(logits, axis=-1) == batch["label"]) * real)
        return loss, ({"loss": loss, "accuracy": hits / count}, collections)

    def evaluate(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch
    ) -> dict[str, jax.Array]:
        """Sums of cross-entropy and hits over the real examples; see `Task.evaluate`."""
        variables = _variables(params, collections)
        logits = cast(jax.Array, self.model.apply(variables, batch["image"], train=False))
        real = batch["mask"]
        hits = (jnp.argmax(logits, axis=-1) == batch["label"]) * real
        # Padding may hold anything, so it is replaced, not multiplied: 0 times NaN is NaN.
        losses = jnp.where(real > 0, cross_entropy(logits, batch["label"]), 0.0)
        return {"loss": jnp.sum(losses), "accuracy": jnp.sum(hits), "count": jnp.sum(real)}

    def attention_inputs(
        self, params: chex.ArrayTree, collections: chex.ArrayTree, batch: Batch
    ) -> Recording:
        """What enters the model's attention for these images; see `Task.attention_inputs`."""
        exact = {"dtype": jnp.float32} if hasattr(self.model, "dtype") else {}
        variables = _variables(params, collections)
        return record(self.model.clone(**exact), variables, batch["image"], train=False)

    def train_batches(self, start_step: int) -> Batches:
        """Endless training batches from the given one on."""
        return train_batches(
            self.train_source,
            self.config.data,
            batch_size=self.config.batch_size,
            seed=self.config.seed,
            start_step=start_step,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
        )

    def eval_batches(self) -> Batches:
        """Batches over the whole evaluation split."""
        return eval_batches(
            self.eval_source,
            self.config.data,
            batch_size=self.config.eval_batch_size or self.config.batch_size,
            process_index=jax.process_index(),
            process_count=jax.process_count(),
        )


def _variables(params: chex.ArrayTree, collections: Any) -> dict[str, Any]:
    """What the model is applied to: its own collections, and parameters with their offsets."""
    own = {name: tree for name, tree in collections.items() if name != OFFSETS}
    return {"params": with_offsets(params, collections.get(OFFSETS)), **own}


def build_model(config: Config, num_classes: int) -> nn.Module:
    """The model that a config names; its output and dtype follow from the data and the run.

    Args:
        config: The run's fields, as parsed.
        num_classes: Size of the output.

    Returns:
        The module, computing in `compute_dtype`.
    """
    fields: dict[str, Any] = dict(config.model)
    model = MODELS[fields.pop("name")]
    return model(**fields, num_classes=num_classes, dtype=jnp.dtype(config.compute_dtype))


def classification(config: Config) -> Classification:
    """Opens the data and builds the model of a classification run.

    Args:
        config: The run's fields.

    Returns:
        The task.

    Raises:
        UserError: If the data cannot be opened, do not fit the config, or the splits disagree
            about classes or channels.
    """
    train_source = _open_split(config.data, "train_split")
    eval_source = _open_split(config.data, "eval_split")
    for what in ("num_classes", "channels"):
        train, evaluation = getattr(train_source, what), getattr(eval_source, what)
        if train != evaluation:
            raise UserError(
                f"config.data.eval_split = {config.data.eval_split!r}: has {what} {evaluation}, "
                f"but must have the training split's {train}"
            )
    check_config(config.data, train_source)
    model = build_model(config, train_source.num_classes)
    return Classification(config, model, train_source, eval_source)


def _open_split(data: DataConfig, field: Literal["train_split", "eval_split"]) -> Source:
    split = getattr(data, field)
    try:
        return open_source(data, split)
    except SplitError as error:
        raise UserError(f"config.data.{field} = {split!r}: {error.reason}") from error
