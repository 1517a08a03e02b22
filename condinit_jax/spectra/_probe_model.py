"""Condition numbers over the layers and heads of a model, as it reads a batch."""

import contextlib
import dataclasses
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import flax.linen as nn
import jax
import numpy as np

from condinit_jax.errors import UserError
from condinit_jax.spectra._bound import bound
from condinit_jax.spectra._capture import capture
from condinit_jax.spectra._captured_block import Attention, CapturedBlock, some_queries
from condinit_jax.spectra._condition_number import ConditionNumber, condition_number
from condinit_jax.spectra._dense import attention_jacobian
from condinit_jax.spectra._head import Head, TokenMap, head_output
from condinit_jax.spectra._jacobian_spectrum import jacobian_spectrum
from condinit_jax.spectra._options import SpectrumOptions, check_names
from condinit_jax.spectra._precision import float64
from condinit_jax.spectra._probe_table import COLUMNS, Place, Probe
from condinit_jax.spectra._progress import Told, told

Quantity = Literal["jacobian", "kernels", "bound"]


@dataclasses.dataclass(frozen=True)
class _Job:
    block: CapturedBlock
    position: int
    heads: tuple[int, ...]

    @property
    def example(self) -> int:
        return self.block.examples[self.position] if self.block.examples else self.position


def probe_model(
    model: nn.Module,
    variables: Any,
    *args: Any,
    kwargs: Mapping[str, Any] | None = None,
    examples: int | Sequence[int] = 1,
    **options: Any,
) -> Probe:
    """The condition numbers of a linen model's attention, layer by layer and head by head.

    One forward pass (`capture`) gives what enters each block, then `probe_blocks` goes over them.
    J is the Jacobian of one head's output in its three kernels, on one example.

    Args:
        model: see `record`; its code is not changed.
        variables: its variables, {"params": ...}, or the parameters alone.
        *args: of the model's call, such as a batch of images.
        kwargs: keyword arguments of the model's call, such as {"train": False}.
        examples: how many examples of the batch, the first ones, or their indices; each is a
            Jacobian of its own.
        **options: of `probe_blocks` and, through it, of `jacobian_spectrum`.

    Returns:
        The probe.

    Raises:
        UserError: see `record` and `probe_blocks`; the message names the layer.

    Example:
        >>> import flax.linen as nn
        >>> import jax, jax.numpy as jnp
        >>> from condinit_jax.spectra import probe_model
        >>> model = nn.MultiHeadDotProductAttention(num_heads=2)
        >>> tokens = jax.random.normal(jax.random.key(0), (3, 5, 8))
        >>> variables = model.init(jax.random.key(1), tokens)
        >>> probe = probe_model(model, variables, tokens, examples=2)
        >>> [(row["layer"], row["head"], row["example"], row["size"]) for row in probe.rows]
        [(0, 0, 0, 20), (0, 1, 0, 20), (0, 0, 1, 20), (0, 1, 1, 20)]
    """
    if isinstance(examples, int | np.integer):
        if examples < 1:
            raise UserError(f"examples = {examples}: must be at least 1")
        examples = range(examples)
    if len(examples) == 0:
        raise UserError("examples: is empty; give at least one")
    blocks = capture(model, variables, *args, examples=examples, **(kwargs or {}))
    return probe_blocks(blocks, **options)


def probe_blocks(
    blocks: Sequence[CapturedBlock],
    *,
    layers: int | Sequence[int] | None = None,
    heads: int | Sequence[int] | None = None,
    tokens: int | None = None,
    quantities: Sequence[Quantity] = ("jacobian",),
    values: Literal["extremes", "all"] = "extremes",
    run: str = "",
    step: int = 0,
    progress: bool | Told = False,
    mask: Any = None,
    logit_bias: Any = None,
    scale: float | None = None,
    query_map: TokenMap | None = None,
    key_map: TokenMap | None = None,
    attention: Attention = head_output,
    **options: Any,
) -> Probe:
    """The condition numbers of captured attention blocks, for every example that they hold.

    Args:
        blocks: what `capture` or `assemble` returned.
        layers: which layers, counted from 0, negative ones from the end; None takes all.
        heads: which heads of each layer, counted alike; None takes all.
        tokens: how many queries J has rows for, evenly spaced over the sequence, the first and the
            last among them; None takes all. They attend over all keys, so that attention weights
            are the model's; but J is another matrix then, some of the rows of the whole one: its
            kappa is no larger than the whole one's where that has full row rank, and is compared
            only with others of the same `tokens`.
        quantities: "jacobian" for kappa(J), "kernels" for kappa of the head's query, key and value
            kernels, "bound" for B(J) of Theorem 3.1 (of all tokens, whatever `tokens` says), held
            against kappa(J) where that is of all tokens too.
        values: "extremes", or "all" to keep every singular value of J in `Probe.spectra`.
        run: what the rows say under "run".
        step: what the rows say under "step".
        progress: True for a bar with the time left on a terminal (nothing elsewhere), or a callable
            that is told (done, total, what comes next).
        mask: (H or 1, N, M), or (B, H or 1, N, M) for the examples held, if the model masks
            logits in a way that `capture` cannot see.
        logit_bias: like `mask`, for what is added to the logits.
        scale: what multiplies Q K^T, if not 1/sqrt(d).
        query_map: what is done to queries before the product, if it is not done by modules.
        key_map: the same for keys.
        attention: a function of a `Head` that gives its output (N, v), if the model's attention is
            not softmax attention; its Jacobian is then built densely, which suits small sizes.
        **options: of `jacobian_spectrum`: `method`, `memory`, `rtol`, `accuracy`, `device`.

    Returns:
        The probe: one row for each layer, example and head, in this order.

    Raises:
        UserError: if an argument does not fit or is unknown, a layer's attention is not what was
            captured, or a spectrum cannot be computed; the message names the layer, and the head.
    """
    _check_names("quantities", quantities, get_args(Quantity))
    _check_names("values", (values,), ("extremes", "all"))
    _check_options(options)
    jobs = [
        _Job(block, position, _chosen("heads", heads, block.num_heads))
        for block in (blocks[layer] for layer in _chosen("layers", layers, len(blocks)))
        for position in range(len(block.tokens))
    ]
    probe = Probe([])
    with told(progress, sum(len(job.heads) for job in jobs)) as tell:
        for job in jobs:
            block, position = job.block, job.position
            whole = block.heads(
                position,
                mask=mask,
                logit_bias=logit_bias,
                scale=scale,
                query_map=query_map,
                key_map=key_map,
                attention=attention,
            )
            some = some_queries(whole, tokens)
            notes = [block.warning(position, robust=robust) for robust in (False, True)]
            for number in job.heads:
                tell(f"{block.name}, head {number}")
                head, whole_head = (
                    jax.tree.map(lambda array, n=number: array[n], stack) for stack in (some, whole)
                )
                with _naming(f"{block.name}, head {number}"):
                    record = None
                    if "jacobian" in quantities:
                        record = _jacobian(head, attention, values, options)
                    row: dict[str, Any] = dict.fromkeys(COLUMNS) | {
                        "run": run,
                        "step": step,
                        "layer": block.layer,
                        "path": block.path,
                        "head": number,
                        "example": job.example,
                        "tokens": len(head.tokens),
                        "warning": "",
                        "bound_note": "",
                    }
                    row |= _figures(record)
                    if "kernels" in quantities:
                        row |= _kernels(whole_head)
                    if "bound" in quantities:
                        same = len(head.tokens) == len(whole_head.tokens)
                        row |= _bound(whole_head, attention, record if same else None, options)
                own = row["warning"], notes[block.is_robust(record)]
                row["warning"] = "; ".join(text for text in own if text)
                probe.rows.append(row)
                if values == "all" and record is not None and record.singular_values is not None:
                    place = Place(run, step, block.layer, number, job.example)
                    zeros = record.size - len(record.singular_values)
                    probe.spectra[place] = np.pad(record.singular_values, (0, zeros))
    return probe


def _jacobian(
    head: Head, attention: Attention, values: Any, options: Mapping[str, Any]
) -> ConditionNumber:
    """The spectrum of one head's Jacobian, by the dense way if its attention is unknown."""
    if attention is head_output:
        return jacobian_spectrum(head, values=values, **options)
    dense = {name: options[name] for name in ("rtol",) if name in options}

    def output(kernels: tuple[jax.Array, ...], rest: Head) -> jax.Array:
        query, key, value = kernels
        return attention(dataclasses.replace(rest, query=query, key=key, value=value))

    with float64(options.get("device")):
        matrix = attention_jacobian(
            jax.tree_util.Partial(lambda rest, kernels, _: output(kernels, rest), head),
            head.kernels,
            head.tokens,
        )
    return condition_number(matrix, method="dense", **dense)


def _figures(record: ConditionNumber | None) -> dict[str, Any]:
    if record is None:
        return {}
    return {
        field.name: getattr(record, field.name)
        for field in dataclasses.fields(record)
        if field.name in COLUMNS
    }


def _kernels(head: Head) -> dict[str, Any]:
    return {
        f"kappa_{role}": condition_number(kernel).kappa
        for role, kernel in zip(("query", "key", "value"), head.kernels, strict=True)
    }


def _bound(
    head: Head, attention: Attention, measured: ConditionNumber | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """B(J), or why this kind of attention has none: other layers of the model may have one."""
    if attention is not head_output:
        return {"bound_note": "attention: Theorem 3.1 is about softmax attention"}
    for name, what in (
        ("context", "is about self-attention"),
        ("query_map", "has no factor for a map of queries"),
        ("key_map", "has no factor for a map of keys"),
    ):
        if getattr(head, name) is not None:
            return {"bound_note": f"{name}: Theorem 3.1 {what}"}
    found = bound(head, jacobian=measured, rtol=options.get("rtol"))
    return {"bound": found.limit, "bound_note": found.note}


def _chosen(name: str, wanted: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    if wanted is None:
        return tuple(range(count))
    wanted = (int(wanted),) if isinstance(wanted, int | np.integer) else tuple(wanted)
    for number in wanted:
        if not isinstance(number, int | np.integer):
            raise UserError(f"{name} = {number!r}: must be an integer")
        if not -count <= number < count:
            raise UserError(f"{name} = {number}: there are {count}, counted from 0")
    return tuple(number % count for number in wanted)


def _check_names(name: str, given: Sequence[str], known: Sequence[str]) -> None:
    unknown = [given] if isinstance(given, str) else [one for one in given if one not in known]
    if unknown:
        of = ", ".join(map(repr, known))
        raise UserError(f"{name}: {unknown[0]!r} is not among {of}; give a tuple of these")


def _check_options(options: Mapping[str, Any]) -> None:
    """An option that nothing reads, such as one of the Jacobian for kernels alone, is a mistake."""
    own = inspect.signature(probe_blocks).parameters.values()
    known = [one.name for one in own if one.kind is inspect.Parameter.KEYWORD_ONLY]
    check_names(options, [*SpectrumOptions.__annotations__, *known])


@contextlib.contextmanager
def _naming(where: str) -> Iterator[None]:
    """Errors inside say where they happened."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    except Exception as error:
        error.add_note(f"while probing {where}")
        raise
