"""What enters each attention block of a linen model, seen in one forward pass.

The model's code is not changed: while it runs, every call of a module named query, key, value or
out also stores its input. `record` is the part that can be compiled and run anywhere, inside a
training run too; `assemble` makes blocks of one layer each out of what it returns.
"""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES

Path = tuple[str, ...]

_INPUT, _MASK, _BIAS = "probe_input", "probe_mask", "probe_bias"
"""Names in "intermediates"."""


@dataclasses.dataclass(frozen=True)
class ApplyModules:
    """The modules that queries or keys pass through one after the other, each token by itself."""

    modules: tuple[nn.Module, ...]

    def __call__(self, params: Sequence[Any], tokens: Array) -> Array:
        for module, own in zip(self.modules, params, strict=True):
            tokens = cast(Array, module.apply({"params": own}, tokens))
        return tokens


@dataclasses.dataclass(eq=False)
class Facts:
    """What a forward pass tells while it is traced; compared by identity, to be cheap to hash.

    Attributes:
        paths: of the attention blocks, in the order of their first call.
        maps: for (path, "query" or "key"), the modules between projection and product, by name.
        dtypes: what each block computes in.
        lost: blocks around which a transformation keeps no intermediates.
        examples: those kept of the batch; empty for all.
        stacks: for blocks under `nn.scan`, the outermost module whose layers are stacked.
    """

    paths: list[Path] = dataclasses.field(default_factory=list)
    maps: dict[tuple[Path, str], dict[str, nn.Module]] = dataclasses.field(default_factory=dict)
    dtypes: dict[Path, str] = dataclasses.field(default_factory=dict)
    lost: list[Path] = dataclasses.field(default_factory=list)
    examples: tuple[int, ...] = ()
    stacks: dict[Path, Path] = dataclasses.field(default_factory=dict)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["blocks"], meta_fields=["facts"])
@dataclasses.dataclass(frozen=True)
class Recording:
    """What `record` returns: a pytree of arrays, with what is static beside them.

    Attributes:
        blocks: for each attention block's path, its parameters and what entered its parts.
        facts: not for users.
    """

    blocks: dict[str, dict[str, Any]]
    facts: Facts


class _Recorder:
    """An interceptor that stores what the projections of attention blocks are given."""

    def __init__(self, examples: tuple[int, ...]) -> None:
        self.facts = Facts(examples=examples)
        # The arrays of the call that is being traced, by block: compared by identity only.
        self._inputs: dict[Path, dict[str, Array]] = {}
        self._outputs: dict[Path, dict[str, Array]] = {}
        self._masked: set[Path] = set()

    def __call__(
        self, call: Any, args: Any, kwargs: Any, context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        if context.method_name != "__call__" or module.scope is None:
            return call(*args, **kwargs)
        parent, name = module.path[:-1], (module.path or ("",))[-1]
        given: Any = args[0] if args else next(iter(kwargs.values()), None)
        if name in ROLES and _is_floats(given):
            self._enter(module, parent, name, given)
        result = call(*args, **kwargs)
        if name in ROLES and _is_floats(result):
            self._outputs.setdefault(parent, {})[name] = result
            if name == "query":
                self.facts.dtypes[parent] = str(result.dtype)
        else:
            self._follow(module, parent, name, given, result)
        if self._is_attention(module.path):
            self._keep_mask(module, args, kwargs)
        return result

    def finish(self) -> Facts:
        """What was found; no array is held any longer."""
        self.facts.paths = [path for path in self.facts.paths if self._is_attention(path)]
        self._inputs.clear()
        self._outputs.clear()
        return self.facts

    def _is_attention(self, path: Path) -> bool:
        return {"query", "key", "value"} <= self._inputs.get(path, {}).keys()

    def _enter(self, module: nn.Module, parent: Path, role: str, given: Array) -> None:
        if parent not in self.facts.paths:
            self.facts.paths.append(parent)
        if role in self._inputs.get(parent, {}):  # the block is called again
            self._inputs[parent], self._outputs[parent] = {}, {}
            self._masked.discard(parent)
        if role in ("query", "key"):
            self.facts.maps[parent, role] = {}
        self._inputs.setdefault(parent, {})[role] = given
        # What enters an out projection may have an axis of heads more.
        batch = self._inputs[parent].get("query", given).ndim - 2
        kept = module.sow("intermediates", _INPUT, self._selected(given, batch))
        if not kept and parent not in self.facts.lost:
            self.facts.lost.append(parent)

    def _follow(self, module: nn.Module, parent: Path, name: str, given: Any, result: Any) -> None:
        for role in ("query", "key"):
            if given is not None and given is self._outputs.get(parent, {}).get(role):
                # In float64 a norm that casts to its own dtype would round.
                fields: dict[str, Any] = {"dtype": None} if hasattr(module, "dtype") else {}
                self.facts.maps[parent, role][name] = module.clone(parent=None, **fields)
                self._outputs[parent][role] = result

    def _keep_mask(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        """Stores a `mask` and a `bias` that the block was called with, if they fit its logits."""
        path = module.path
        if path in self._masked:  # a subclass calls its parent's __call__
            return
        self._masked.add(path)
        with contextlib.suppress(TypeError, ValueError):
            given = inspect.signature(type(module).__call__).bind(module, *args, **kwargs).arguments
            given = {**given, **given.get("kwargs", {})}
            tokens, context = (self._inputs[path][role] for role in ("query", "key"))
            for name, where in (("mask", _MASK), ("bias", _BIAS)):
                array = given.get(name)
                if isinstance(array, jax.Array | np.ndarray) and array.ndim >= 2:
                    array = jnp.reshape(array, (1,) * (3 - array.ndim) + array.shape)
                    shape = (*tokens.shape[:-2], array.shape[-3], tokens.shape[-2])
                    array = jnp.broadcast_to(array, (*shape, context.shape[-2]))
                    module.sow("intermediates", where, self._selected(array, array.ndim - 3))

    def _selected(self, array: Array, batch: int) -> Array:
        """The examples to keep, counted over all leading `batch` axes."""
        chosen = self.facts.examples
        if not chosen or batch < 1:
            return array
        array = array.reshape(-1, *array.shape[batch:])
        if max(chosen) >= len(array) or min(chosen) < 0:
            raise UserError(
                f"examples = {chosen}: counted from 0, but the batch that enters attention has "
                f"{len(array)}"
            )
        return array[np.array(chosen)]


def _is_floats(value: Any) -> bool:
    return isinstance(value, jax.Array | np.ndarray) and jnp.issubdtype(value.dtype, jnp.floating)


def record(
    model: nn.Module,
    variables: Any,
    *args: Any,
    examples: Sequence[int] | None = None,
    **kwargs: Any,
) -> Recording:
    """Runs the model once and keeps what enters its attention blocks.

    Pure: call it inside `jax.jit`, with parameters sharded as they are, and pass what it returns to
    `assemble` on the host. On accelerators float32 products have full precision in this pass.

    Args:
        model: any linen module with attention blocks: modules that call children named query, key
            and value, with kernels (width, heads, head width), and perhaps out. `nn.scan` and
            `nn.remat` around them are fine, if the scan has "intermediates" in `variable_axes`.
        variables: its variables, {"params": ...}, or the parameters alone.
        *args: of the model's call.
        examples: which examples to keep, as indices along the batch axis of the attention's input
            (of several batch axes, such as images and windows, along them flattened); None keeps
            all.
        **kwargs: of the model's call; `rngs` and `method` as in `Module.apply`.

    Returns:
        The recording, a pytree.

    Raises:
        UserError: if the model is not a linen one, there is no attention block, or a scan drops
            what it stores; the message names it.

    Example:
        >>> import flax.linen as nn
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import assemble, record
        >>> model, tokens = nn.MultiHeadDotProductAttention(num_heads=2), jnp.ones((3, 5, 8))
        >>> params = model.init(jax.random.key(0), tokens)["params"]
        >>> run = jax.jit(lambda params, tokens: record(model, params, tokens))
        >>> recording = run(params, tokens)
        >>> assemble(recording)[0].tokens.shape
        (3, 5, 8)
    """
    check_model(model)
    variables = as_variables(variables)
    recorder = _Recorder(tuple(int(index) for index in examples or ()))
    with nn.intercept_methods(recorder), jax.default_matmul_precision("highest"):
        _, state = model.apply(variables, *args, mutable=["intermediates"], **kwargs)
    facts = recorder.finish()
    params, sown = variables["params"], state.get("intermediates", {})
    if not facts.paths:
        raise UserError(
            f"{type(model).__name__}: has no attention block; looked for a module that calls "
            "children named query, key and value"
        )
    lost = [path for path in facts.paths if path in facts.lost]
    if lost:
        raise UserError(
            f"{_name(lost[0])}: what enters it is dropped by the nn.scan (or nn.vmap) around it; "
            'add "intermediates": 0 to its variable_axes'
        )
    for path in facts.paths:
        _check_kernels(params, path)
    facts.stacks = {path: _stack(params, path) for path in facts.paths}
    return Recording({"/".join(path): _block(params, sown, path) for path in facts.paths}, facts)


def check_model(model: Any) -> None:
    if not isinstance(model, nn.Module):
        raise UserError(
            f"model: {type(model).__name__} is not a linen module (flax.linen.Module); of any "
            "other model, NNX ones included, take heads by `attention_heads` and their spectra by "
            "`jacobian_spectra`"
        )


def as_variables(variables: Any) -> dict[str, Any]:
    if not isinstance(variables, Mapping):
        raise UserError(
            f"variables: {type(variables).__name__} is not a dict; give what the model's init "
            'returned, or its "params"'
        )
    variables = dict(nn.meta.unbox(variables))
    if "params" not in variables:
        variables = {"params": variables}
    variables.pop("intermediates", None)
    return variables


def _block(params: Any, sown: Any, path: Path) -> dict[str, Any]:
    """The parameters and inputs of one block, out of the model's."""
    own = _at(sown, path)
    return {
        "params": _at(params, path),
        "inputs": {role: own[role][_INPUT] for role in ROLES if _INPUT in own.get(role, {})},
        "mask": own.get(_MASK, ()),
        "bias": own.get(_BIAS, ()),
    }


def _check_kernels(params: Any, path: Path) -> None:
    for role in ("query", "key", "value"):
        kernel = _at(params, path).get(role, {}).get("kernel")
        if kernel is None or kernel.ndim < 3:
            found = "none" if kernel is None else f"one of shape {kernel.shape}"
            raise UserError(
                f"{_name(path)}: its {role} needs a kernel (width, heads, head width), as "
                f"nn.DenseGeneral has, and has {found}"
            )


def _stack(params: Any, path: Path) -> Path:
    """The outermost module around a block whose parameters all have the block's layer axes."""
    axes = _at(params, path)["query"]["kernel"].shape[:-3]
    for depth in range(len(path)) if axes else ():
        leaves = jax.tree.leaves(_at(params, path[:depth]))
        if all(leaf.shape[: len(axes)] == axes for leaf in leaves):
            return path[:depth]
    return path


def _at(tree: Any, path: Path) -> Any:
    return functools.reduce(lambda node, name: node[name], path, tree)


def _name(path: Path) -> str:
    return f"attention block {'/'.join(path)!r}"
