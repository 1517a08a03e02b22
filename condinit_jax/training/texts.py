"""What a run says of itself in one line."""

import jax
from jax.sharding import Mesh

from condinit_jax.config import Config
from condinit_jax.methods import REFINE
from condinit_jax.refine import NONE
from condinit_jax.surgery import attention_blocks
from condinit_jax.training.state import State


def setup_text(config: Config, shapes: State, mesh: Mesh, rewritten: bool) -> str:
    """Parameters, initialization and devices.

    Args:
        config: The run's fields.
        shapes: The state, by shape.
        mesh: The run's mesh.
        rewritten: Whether a method changes the model's attention blocks, and those alone.

    Returns:
        The line.
    """
    count = sum(leaf.size for leaf in jax.tree.leaves(shapes.params))
    layers = sum(b.layers for b in attention_blocks(shapes.params)) if rewritten else 0
    init = init_text(config, f" of {layers} attention blocks" if rewritten else "")
    axes = " x ".join(f"{name} {size}" for name, size in mesh.shape.items())
    device = mesh.devices.flat[0].device_kind
    return f"{count:,} parameters; {init}; {config.compute_dtype} on {mesh.size} {device} ({axes})"


def init_text(config: Config, of: str = "") -> str:
    """The initialization, and the refinement where there is one.

    Args:
        config: The run's fields.
        of: What the initialization rewrites, to stand behind its name.

    Returns:
        Their names.

    Example:
        >>> init_text(Config(init={"method": "default", "refine": {"name": "nio"}}))
        'init default, refined by nio'
    """
    name = config.init.get(REFINE, {}).get("name", NONE)
    text = f"init {config.init['method']}{of}"
    return text + (f", refined by {name}" if name != NONE else "")


def advice(saved: int | None) -> str:
    """What to do where a run's figures are no numbers any more.

    Args:
        saved: Step of the latest checkpoint, if there is one.

    Returns:
        The advice.
    """
    good = f"last good checkpoint: step {saved}" if saved else "no checkpoint yet"
    return f"{good}; lower optimizer.lr, set optimizer.clip_norm, or lengthen the warm-up"
