"""Values that are possible one by one and impossible together."""

from collections.abc import Mapping
from typing import Any

from condinit_jax.config._fields import Config, DataConfig
from condinit_jax.config._schema import wrong
from condinit_jax.config._values import Limits

# A model's fields are declared without limits: those that models have in common.
_MODEL_LIMITS = {
    "width": Limits(minimum=1),
    "depth": Limits(minimum=1),
    "num_heads": Limits(minimum=1),
    "patch_size": Limits(minimum=1),
    "scan_unroll": Limits(minimum=1),
    "mlp_ratio": Limits(above=0),
    "drop_path": Limits(minimum=0, below=1),
    "layer_scale": Limits(minimum=0),
    "norm_eps": Limits(above=0),
    "token_exponent": Limits(above=0, maximum=1),
}


def check(config: Config) -> None:
    """Refuse a run whose fields contradict one another.

    The method's own factory judges `init`. What depends on the devices or on the opened data is
    checked by training.

    Raises:
        UserError: the first contradiction, with the field to change.
    """
    from condinit_jax import methods, refine

    _check_length(config)
    if config.batch_size % config.optimizer.accumulate:
        right = f"must divide config.batch_size = {config.batch_size}"
        raise wrong("optimizer.accumulate", config.optimizer.accumulate, right)
    if config.mesh.data == 0:
        raise wrong("mesh.data", 0, "must be -1 or at least 1")
    _check_data(config.data)
    if not config.probe.quantities:
        raise wrong("probe.quantities", (), "must name one at least; config.probe.every = 0 is off")
    _check_model(config.model, config.data.image_size)
    methods.build(config.init)
    refiner = refine.build(config.init)
    if refiner and config.batch_size % refiner.splits:
        right = f"must divide config.batch_size = {config.batch_size}"
        raise wrong("init.refine.splits", refiner.splits, right)


def _check_length(config: Config) -> None:
    if config.steps and config.epochs:
        right = f"must be 0 where config.steps = {config.steps}, or set that to 0"
        raise wrong("epochs", config.epochs, right)
    if not (config.steps or config.epochs):
        raise wrong("steps", 0, "must be above 0, or config.epochs must")


def _check_data(data: DataConfig) -> None:
    if data.source == "tfds" and not data.name:
        raise wrong("data.name", "", "must name the dataset where config.data.source = 'tfds'")
    if data.source in ("tfds_dir", "folder") and not data.dir:
        right = f"must be a directory where config.data.source = {data.source!r}"
        raise wrong("data.dir", "", right)
    # A dataset named beside the default source would be silently left unread.
    for path, value in {"data.name": data.name, "data.dir": data.dir}.items():
        if data.source == "bundled" and value:
            raise wrong(path, value, "must be empty where config.data.source = 'bundled'")
    for path, values in {"data.mean": data.mean, "data.std": data.std}.items():
        if len(values) not in (1, 3):
            raise wrong(path, values, "must have 1 entry, or 3 for colour images")
    if len(data.mean) != len(data.std):
        right = f"must have as many entries as config.data.mean = {data.mean!r}"
        raise wrong("data.std", data.std, right)


def _check_model(model: Mapping[str, Any], image_size: int) -> None:
    """The limits and arithmetic that models cut into patches and split into heads share."""
    for field, limits in _MODEL_LIMITS.items():
        if field in model and not limits.hold(model[field]):
            raise wrong(f"model.{field}", model[field], f"must be {limits.describe()}")
    if {"width", "num_heads"} <= model.keys() and model["width"] % model["num_heads"]:
        right = f"must divide config.model.width = {model['width']}"
        raise wrong("model.num_heads", model["num_heads"], right)
    patch = model.get("patch_size", 1)
    if patch > image_size:
        right = f"must be at most config.data.image_size = {image_size}"
        raise wrong("model.patch_size", patch, right)
    if image_size % patch:
        raise wrong("model.patch_size", patch, f"must divide config.data.image_size = {image_size}")
