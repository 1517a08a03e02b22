"""One attention block of a model and what entered it, checked against what came out of it."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from condinit_jax.errors import UserError
from condinit_jax.kernels import ROLES, AttentionKernels
from condinit_jax.spectra._condition_number import ConditionNumber
from condinit_jax.spectra._head import Head, TokenMap, attention_heads, head_output
from condinit_jax.spectra._precision import float64, on_host

Attention = Callable[[Head], Array]
"""A function of one head that gives its output (N, v), as `head_output` is."""

_NOISE = {"float64": 1e-10, "float32": 2e-5, "float16": 1e-2, "bfloat16": 3e-2}
"""How far a block's outputs may be from exact ones, relative to their norm, by computing dtype."""

_SLACK = {"float64": 1e-6, "float32": 1e-3, "float16": 5e-2, "bfloat16": 2e-1}
"""The same, relative to how much the outputs differ between queries.

Where attention is nearly uniform a wrong scale or mask changes outputs little against their norm,
but much against what the attention weights contribute.
"""


ROBUST = 100.0
"""Roundings of the tokens, relative to the largest singular value of J, above which one is real.

They enter J with the norms of the tokens and the mixed tokens P Y, which J's own norm is nearly
that of, or some times smaller where attention averages tokens away.
"""


@dataclasses.dataclass(frozen=True)
class CapturedBlock:
    """An attention block of one layer, its kernels, and what entered it in one forward pass.

    Arrays are on the host, NumPy, in float32 or float64.

    Attributes:
        path: where the block stands in the parameter tree, names joined by "/".
        layer: its place among the model's attention blocks in depth order, from 0.
        tokens: (B, N, D), what entered the query kernel.
        context: (B, M, E), what entered the key and value kernels; None if those are the tokens.
        kernels: query (D, H, d), key (E, H_kv, d), value (E, H_kv, v), out or None.
        biases: of query (H, d), key and value; each may be None.
        query_map: what the model does to queries before the product, such as QK-norm; or None.
        key_map: the same for keys.
        mask: (B, H or 1, N, M), the `mask` that the block was called with, or None.
        logit_bias: the same for its `bias`.
        output: (B, N, H, v), what entered the out kernel: the heads' real outputs; None if there is
            no out projection.
        dtype: what the block computed in.
        examples: the index in the batch of each example held; empty if all are.
    """

    path: str
    layer: int
    tokens: Float[np.ndarray, "batch tokens width"]
    context: Float[np.ndarray, "batch context context_width"] | None
    kernels: AttentionKernels
    biases: tuple[np.ndarray | None, np.ndarray | None, np.ndarray | None]
    query_map: TokenMap | None = None
    key_map: TokenMap | None = None
    mask: Bool[np.ndarray, "batch #heads tokens context"] | None = None
    logit_bias: Float[np.ndarray, "batch #heads tokens context"] | None = None
    output: Float[np.ndarray, "batch tokens heads value_dim"] | None = None
    dtype: str = "float32"
    examples: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What messages call the block."""
        return f"layer {self.layer} ({self.path or 'the model itself'})"

    @property
    def num_heads(self) -> int:
        """Query heads."""
        return self.kernels.query.shape[1]

    def heads(
        self,
        example: int = 0,
        *,
        tokens: int | None = None,
        mask: Bool[Array, "#heads tokens context"] | None = None,
        logit_bias: Float[Array, "#heads tokens context"] | None = None,
        scale: float | None = None,
        query_map: TokenMap | None = None,
        key_map: TokenMap | None = None,
        attention: Attention = head_output,
    ) -> Head:
        """The heads of one example, proven to compute what the model computed.

        Their outputs are computed anew in float64, for all queries, and compared with the model's.

        Args:
            example: position along the batch axis of what was captured.
            tokens: how many queries to keep, evenly spaced, the first and the last among them; they
                attend over all keys, as in the model. None keeps all.
            mask: (H or 1, N, M) or (N, M), in place of the captured one; or (B, H or 1, N, M), of
                which the example's is taken.
            logit_bias: like `mask`, added to the scaled logits.
            scale: what multiplies Q K^T; None for 1/sqrt(d).
            query_map: in place of the captured one; see `TokenMap`.
            key_map: the same for keys.
            attention: the function of a head that gives its output (N, v), if it is not softmax
                attention.

        Returns:
            A stack of heads, NumPy arrays in float64. Queries that see no key, which a model
            averages over all keys and then ignores, are left out.

        Raises:
            UserError: if outputs do not agree, or an argument does not fit; the message names the
                layer.

        Example:
            >>> import numpy as np
            >>> from condinit_jax.kernels import AttentionKernels
            >>> from condinit_jax.spectra import CapturedBlock
            >>> rng = np.random.default_rng(0)
            >>> kernels = AttentionKernels(*rng.normal(size=(3, 6, 2, 3)))
            >>> tokens = rng.normal(size=(1, 5, 6))
            >>> block = CapturedBlock("attention", 0, tokens, None, kernels, (None, None, None))
            >>> block.heads(tokens=3).tokens.shape
            (2, 3, 6)
        """
        if not 0 <= example < len(self.tokens):
            raise UserError(f"example = {example}: {self.name} holds {len(self.tokens)} examples")
        parts = {
            "kernels": self.kernels,
            "tokens": self.tokens[example],
            "context": None if self.context is None else self.context[example],
            "biases": self.biases,
            "logit_bias": _of_example(
                self.logit_bias if logit_bias is None else logit_bias, example
            ),
            "mask": _of_example(self.mask if mask is None else mask, example),
            "scale": scale,
            "query_map": query_map or self.query_map,
            "key_map": key_map or self.key_map,
        }
        with float64():
            try:
                heads, outputs = on_host(_heads_of(attention, on_host(parts)))
                seeing = np.ones(self.tokens.shape[1], bool)
                if heads.mask is not None:
                    seeing = heads.mask.any(axis=-1).all(axis=0)
                self._compare(np.moveaxis(outputs, 0, 1), example, seeing)
            except UserError as error:
                raise UserError(f"{self.name}: {error}") from error
            except Exception as error:
                error.add_note(f"while computing the heads of {self.name} anew")
                raise
        return some_queries(_queries(heads, np.flatnonzero(seeing)), tokens)

    def warning(self, example: int = 0, *, robust: bool = False) -> str:
        """Why a kappa of this block should be read with care; empty if there is no reason.

        That is what the comparison in `heads` could not see, and tokens whose rank is that of their
        rounding: after a layer norm every token sums to zero but for that.

        Args:
            example: position along the batch axis of what was captured.
            robust: leaves out what `is_robust` rules out for a kappa.
        """
        notes = [self._unseen(example), "" if robust else self._rounded(example)]
        return "; ".join(note for note in notes if note)

    def is_robust(self, record: ConditionNumber | None) -> bool:
        """Whether kappa(J) of a head is not that of the rounding of its tokens.

        Without the part of the tokens that is rounding, J would be another by about that, relative
        to its norm, and so would its singular values (Weyl). The least that counts is far above.
        """
        if record is None:
            return False
        limit = ROBUST * float(jnp.finfo(self.dtype).eps)
        return record.sigma_min > limit * record.sigma_max

    def _unseen(self, example: int) -> str:
        if self.output is None:
            return "no out projection: the heads' outputs could not be compared with the model's"
        real = on_host(self.output[example])
        noise = _tolerance(_NOISE, self.dtype) * np.linalg.norm(real, axis=(0, 2))
        if len(real) > 1 and (noise > _spread(real) / 4).any():
            return (
                f"computed in {self.dtype}: too coarse to see whether a scale, mask or bias is "
                "missing here; capture a model that computes more precisely"
            )
        return ""

    def _rounded(self, example: int) -> str:
        rounding = float(jnp.finfo(self.dtype).eps)
        for name, array in (("tokens", self.tokens), ("context", self.context)):
            if array is not None:
                matrix = on_host(array[example])
                values = np.linalg.svd(matrix, compute_uv=False)
                zero = max(matrix.shape) * np.finfo(np.float64).eps * values[0]
                count = np.count_nonzero((values > zero) & (values <= rounding * values[0]))
                if count:
                    return (
                        f"rank of the {name}: {count} of its {len(values)} singular values are no "
                        f"larger than the rounding of {self.dtype}, and kappa may be that of "
                        f"rounding; an rtol such as {rounding:.0e} leaves them out"
                    )
        return ""

    def _compare(self, computed: np.ndarray, example: int, seeing: np.ndarray) -> None:
        if not seeing.any():
            raise UserError("mask: lets no query see any key")
        if self.output is None:
            return
        real = on_host(self.output[example])
        if computed.shape != real.shape:
            raise UserError(
                f"attention: gives heads' outputs of shape {computed.shape}, the model's are "
                f"{real.shape}"
            )
        computed, real = computed[seeing], real[seeing]
        distance = np.linalg.norm(computed - real, axis=(0, 2))
        norm, spread = np.linalg.norm(real, axis=(0, 2)), _spread(real)
        allowed = _tolerance(_NOISE, self.dtype) * norm + _tolerance(_SLACK, self.dtype) * spread
        if not (distance <= allowed).all():
            head = int(np.argmax(np.nan_to_num(distance - allowed, nan=np.inf)))
            relative = distance[head] / max(norm[head], np.finfo(np.float64).tiny)
            raise UserError(
                f"head {head}: softmax attention of what was captured differs from the model's "
                f"output by {relative:.1e} relative ({allowed[head] / norm[head]:.1e} allowed); "
                "does the model use a mask, a bias, another scale, rotary positions, dropout or "
                "another attention? Pass mask=, logit_bias=, scale=, query_map= and key_map=, or "
                "attention="
            )


def _heads_of(attention: Attention, parts: dict[str, Any]) -> tuple[Head, Any]:
    """The heads of a block and their outputs; by NumPy, which needs no compiling, if it can."""
    if attention is not head_output or parts["query_map"] or parts["key_map"]:
        return _heads(attention, parts)
    heads = attention_heads(**parts)
    count = heads.query.shape[0]
    singles = [jax.tree.map(lambda a, n=number: a[n], heads) for number in range(count)]
    return heads, np.stack([head_output(head) for head in singles])


@functools.partial(jax.jit, static_argnums=0)
def _heads(attention: Attention, parts: dict[str, Any]) -> tuple[Head, Array]:
    """The heads of a block and their outputs, as one program: many small ones compile slowly."""
    heads = attention_heads(**parts)
    return heads, jax.vmap(attention)(heads)


def _tolerance(table: dict[str, float], dtype: str) -> float:
    return table.get(dtype, table["bfloat16"])


def _spread(outputs: np.ndarray) -> np.ndarray:
    """For each head, the norm of its outputs (N, H, v) less their mean over queries."""
    return np.linalg.norm(outputs - outputs.mean(axis=0), axis=(0, 2))


def _of_example(array: Any, example: int) -> Any:
    """The part of a pairwise array that belongs to one example, if it has a batch axis."""
    if array is None or np.ndim(array) < 4:
        return array
    return np.asarray(array)[example if len(array) > 1 else 0]


def some_queries(heads: Head, tokens: int | None) -> Head:
    """A stack of heads with that many queries, evenly spaced; None keeps all."""
    if tokens is None:
        return heads
    if tokens < 1:
        raise UserError(f"tokens = {tokens}: must be at least 1")
    count = heads.tokens.shape[1]
    return _queries(heads, np.linspace(0, count - 1, min(tokens, count)).round())


def _queries(heads: Head, chosen: np.ndarray) -> Head:
    """A stack of heads with these queries alone, and all of their keys."""
    chosen = np.asarray(chosen, int)
    if len(chosen) == heads.tokens.shape[1]:
        return heads

    def rows(array: Any) -> Any:
        return None if array is None else array[:, chosen]

    return dataclasses.replace(
        heads,
        tokens=rows(heads.tokens),
        context=heads.keys_from,
        logit_bias=rows(heads.logit_bias),
        mask=rows(heads.mask),
    )


def check_block(block: CapturedBlock) -> None:
    """Raises a UserError that names the layer if tokens, kernels or biases are not finite."""
    arrays: dict[str, Any] = {"tokens": block.tokens, "context": block.context}
    for role, kernel, bias in zip(ROLES, block.kernels, block.biases, strict=False):
        arrays |= {f"{role} kernel": kernel, f"{role} bias": bias}
    for name, array in arrays.items():
        bad = 0 if array is None else np.count_nonzero(~np.isfinite(array))
        if array is not None and bad:
            raise UserError(f"{block.name}: {name}: {bad} of {array.size} numbers are not finite")
