"""Every field that a run reads, its default, its limits and its meaning: written here only."""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

from condinit_jax.config._values import Limits


def _field(
    default: Any,
    doc: str,
    *,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its meaning and limits; mappings get a fresh copy per instance."""
    metadata = {"doc": doc, "limits": Limits(minimum, above, maximum, below)}
    if isinstance(default, dict):
        return dataclasses.field(default_factory=lambda: dict(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Where the examples come from and how they are prepared."""

    source: Literal["bundled", "tfds", "tfds_dir", "folder"] = _field(
        "bundled",
        "bundled: the images inside the package; tfds: a dataset that TFDS has prepared (none is "
        "downloaded); tfds_dir: its directory; folder: image files, one directory per class",
    )
    name: str = _field("", "for tfds: the dataset's name, such as cifar10 or oxford_iiit_pet:4.0.0")
    dir: str = _field(
        "",
        "for tfds: the data directory (empty: TFDS's own); for tfds_dir: a prepared dataset's "
        "directory; for folder: a directory with one directory per split",
    )
    train_split: str = _field("train", "split to train on, such as train or train[:90%]")
    eval_split: str = _field("test", "split to evaluate on")
    image_size: int = _field(28, "side of the square images given to the model, pixels", minimum=1)
    train_crop: Literal["none", "pad", "inception"] = _field(
        "none",
        "none: resize and centre; pad: zero-pad by an eighth and cut a random square; inception: "
        "random area and aspect ratio",
    )
    flip: bool = _field(False, "flip training images left-right with probability 1/2")
    eval_crop: float = _field(
        1.0, "part of the resized side that the centre crop keeps at evaluation", above=0, maximum=1
    )
    mean: tuple[float, ...] = _field(
        (0.5,), "per-channel mean subtracted, in units of [0, 1]", minimum=0, maximum=1
    )
    std: tuple[float, ...] = _field(
        (0.5,), "per-channel deviation divided by, in units of [0, 1]", above=0
    )
    workers: int = _field(
        0, "worker processes that prepare batches; 0 uses threads of this process", minimum=0
    )
    on_corrupt: Literal["skip", "fail"] = _field(
        "skip",
        "a file that cannot be decoded: skip (count it, name it, take the next example) or fail "
        "(stop the run)",
    )


@dataclasses.dataclass(frozen=True)
class TaskConfig:
    """What a batch means."""

    name: Literal["classification"] = _field(
        "classification", "what the model learns and is scored by"
    )
    label_smoothing: float = _field(
        0.0, "mass moved from the true class to all classes", minimum=0, below=1
    )


@dataclasses.dataclass(frozen=True)
class ScheduleConfig:
    """The learning rate over steps."""

    name: Literal["cosine", "linear", "one_cycle", "constant", "rsqrt"] = _field(
        "cosine", "shape of the rate after the warm-up"
    )
    warmup_steps: int = _field(
        0, "steps of linear warm-up from warmup_lr to optimizer.lr", minimum=0
    )
    warmup_lr: float = _field(0.0, "learning rate at step 0 where there is a warm-up", minimum=0)
    end_lr: float = _field(
        0.0, "learning rate reached after the last step (cosine, linear, one_cycle)", minimum=0
    )


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """The update rule."""

    name: Literal["adamw", "sgd", "lamb"] = _field("adamw", "the update rule")
    lr: float = _field(1e-3, "peak learning rate", minimum=0)
    weight_decay: float = _field(
        0.05,
        "decoupled weight decay of kernels and embeddings; biases, norms and what no_decay names "
        "are left out",
        minimum=0,
    )
    no_decay: tuple[str, ...] = _field(
        ("pos_embed", "cls_token"), "names of parameters without decay"
    )
    b1: float = _field(0.9, "decay of the first moment (sgd: momentum)", minimum=0, below=1)
    b2: float = _field(0.999, "decay of the second moment", minimum=0, below=1)
    eps: float = _field(1e-8, "added to the root of the second moment", above=0)
    clip_norm: float = _field(0.0, "largest global gradient norm; 0 does not clip", minimum=0)
    accumulate: int = _field(1, "micro-batches whose gradients are averaged in one step", minimum=1)


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """How devices are arranged: batches are split over both axes, parameters over fsdp."""

    data: int = _field(-1, "devices along the data axis; -1 takes what fsdp leaves", minimum=-1)
    fsdp: int = _field(1, "devices over which parameters and optimizer state are split", minimum=1)


@dataclasses.dataclass(frozen=True)
class CheckpointConfig:
    """When the state is saved, and what is kept."""

    every: int = _field(
        500, "steps between checkpoints; the last step and every new best are saved too", minimum=1
    )
    keep: int = _field(
        2, "how many of the latest checkpoints are kept, besides the best one", minimum=1
    )


@dataclasses.dataclass(frozen=True)
class ProbeConfig:
    """Spectra of attention's Jacobians that a run measures as it goes.

    The defaults take under 2 % of the default run's time, nearly all of it compilation
    (`benchmarks/probe_cost.py`). They are caps, so that a larger model pays for a few small heads,
    not for all that it has. A probe that cannot work is a warning with these defaults, and an error
    before the first step where any of the fields was changed.
    """

    every: int = _field(
        500,
        "steps between probes of attention's Jacobian, besides one before the first step and one "
        "after the last; 0 probes never",
        minimum=0,
    )
    layers: int = _field(
        4, "layers probed, evenly spaced from the first to the last; 0: all", minimum=0
    )
    heads: int = _field(1, "heads probed in each layer, from the first; 0: all", minimum=0)
    examples: int = _field(
        1, "examples probed: the first readable ones of the evaluation split", minimum=1
    )
    tokens: int = _field(
        32,
        "rows of attention's output that a Jacobian is taken of, evenly spaced tokens; they attend "
        "to all; 0: all",
        minimum=0,
    )
    quantities: tuple[Literal["jacobian", "kernels", "bound"], ...] = _field(
        ("jacobian",),
        "what is measured: jacobian, kappa(J) of each head; kernels, that of each kernel; bound, "
        "the paper's bound of kappa(J)",
    )
    method: Literal["auto", "gram", "qr", "matrix_free"] = _field(
        "auto", "how a spectrum is computed (condinit_jax.spectra); auto takes what is exact"
    )
    memory: float = _field(2.0, "memory that one head's spectrum may take, GiB", above=0)
    rtol: float = _field(
        0.0,
        "singular values up to this share of the largest count as zero; 0: the longer side of J "
        "times the epsilon of float64",
        minimum=0,
        below=1,
    )


@dataclasses.dataclass(frozen=True)
class Config:
    """One training run."""

    seed: int = _field(
        0, "seed of initialization, data order and regularisation", minimum=0, maximum=2**32 - 1
    )
    steps: int = _field(0, "optimizer steps; 0 takes epochs instead", minimum=0)
    epochs: float = _field(0.0, "passes over the training split; 0 takes steps instead", minimum=0)
    batch_size: int = _field(64, "examples in one step, over all devices", minimum=1)
    eval_batch_size: int = _field(
        0, "examples in one evaluation batch, over all devices; 0: batch_size", minimum=0
    )
    compute_dtype: Literal["float32", "bfloat16"] = _field(
        "float32", "type of activations; parameters stay float32"
    )
    ema_decay: float = _field(
        0.0,
        "decay of the parameter average that evaluation uses; 0 keeps none",
        minimum=0,
        below=1,
    )
    log_every: int = _field(50, "steps between lines of training metrics", minimum=1)
    eval_every: int = _field(
        500, "steps between evaluations on the whole evaluation split", minimum=1
    )
    model: Mapping[str, Any] = _field({"name": "vit"}, "name of the model and its fields")
    init: Mapping[str, Any] = _field(
        {"method": "default"},
        "initialization method of the attention kernels and its arguments; refine: scales learned "
        "before training",
    )
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    task: TaskConfig = dataclasses.field(default_factory=TaskConfig)
    optimizer: OptimizerConfig = dataclasses.field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = dataclasses.field(default_factory=ScheduleConfig)
    mesh: MeshConfig = dataclasses.field(default_factory=MeshConfig)
    checkpoint: CheckpointConfig = dataclasses.field(default_factory=CheckpointConfig)
    probe: ProbeConfig = dataclasses.field(default_factory=ProbeConfig)
