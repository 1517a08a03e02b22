"""How other models store the four kernels of a block, transcribed by NumPy alone.

Nothing here reads a description of the package, so that it can be held against one.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

import condinit_jax as cj
from condinit_jax import namings

KEY = jax.random.key(3)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """One block's: D, H, K, d, and how many layers are stacked (None: a single block)."""

    width: int
    heads: int
    kv_heads: int
    dim: int
    layers: int | None = None


def flax_kernels(sizes, seed=0):
    """Kernels as Flax keeps them, in NumPy; stacked layers in front."""
    rng = np.random.default_rng(seed)
    stack = () if sizes.layers is None else (sizes.layers,)

    def draw(*shape):
        return rng.standard_normal((*stack, *shape)).astype(np.float32)

    return {
        "query": draw(sizes.width, sizes.heads, sizes.dim),
        "key": draw(sizes.width, sizes.kv_heads, sizes.dim),
        "value": draw(sizes.width, sizes.kv_heads, sizes.dim),
        "out": draw(sizes.heads, sizes.dim, sizes.width),
    }


# Each entry stores the four kernels its own way, by NumPy alone. `many` marks layouts for grouped
# queries, `stacks` those that take stacked layers in front, `middle` those with the layers second.


def columns(kernel):
    """(..., D, H, d) to (..., D, H * d)."""
    return kernel.reshape(*kernel.shape[:-2], -1)


def rows(kernel):
    """(..., H, d, D) to (..., H * d, D)."""
    return kernel.reshape(*kernel.shape[:-3], -1, kernel.shape[-1])


def dense(*names):
    def store(k):
        flat = [columns(k[role]) for role in ("query", "key", "value")] + [rows(k["out"])]
        return dict(zip(names, flat, strict=True))

    return store


def side_by_side(k):
    """Every head's q, k and v together: (..., D, H, 3, d)."""
    return np.stack([k["query"], k["key"], k["value"]], axis=-2)


def by_group(k):
    """Group by group, its query heads, its key, its value."""
    heads, groups = k["query"].shape[-2], k["key"].shape[-2]
    pieces = []
    for group in range(groups):
        for head in range(group * heads // groups, (group + 1) * heads // groups):
            pieces.append(k["query"][..., head, :])
        pieces += [k["key"][..., group, :], k["value"][..., group, :]]
    return np.concatenate(pieces, axis=-1)


def all_heads(k):
    return np.concatenate([columns(k[role]) for role in ("query", "key", "value")], axis=-1)


def einsum_names(k):
    head_first = {role: np.swapaxes(k[role], -3, -2) for role in ("query", "key", "value")}
    stored = {"attn_vec_einsum/w": k["out"]}
    if k["query"].shape == k["key"].shape:
        return stored | {"qkv_einsum/w": np.stack(list(head_first.values()), axis=-4)}
    pair = np.stack([head_first["key"], head_first["value"]], axis=-4)
    return stored | {"q_einsum/w": head_first["query"], "kv_einsum/w": pair}


def layers_second(k):
    return {f"{role}/kernel": np.moveaxis(kernel, 0, 1) for role, kernel in k.items()}


def plain(k):
    return {f"{role}/kernel": kernel for role, kernel in k.items()}


@dataclasses.dataclass(frozen=True)
class Case:
    """A ready-made description, its own transcription of the layout, and what it covers."""

    names: object
    store: object
    block: str = "layer/attn"
    under: str = "layer/attn"
    many: bool = False
    layers: str = "none"


CASES = {
    "flax": Case(lambda s: namings.flax(), plain, many=True, layers="front"),
    "hf_vit": Case(
        lambda s: namings.hf_vit(s.heads),
        dense(*(f"attention/{r}/kernel" for r in ("query", "key", "value")), "output/dense/kernel"),
        "layer/0/attention",
        "layer/0/attention",
    ),
    "hf_bert": Case(
        lambda s: namings.hf_bert(s.heads),
        dense(*(f"self/{r}/kernel" for r in ("query", "key", "value")), "output/dense/kernel"),
    ),
    "hf_gpt2": Case(
        lambda s: namings.hf_gpt2(s.heads),
        lambda k: {"c_attn/kernel": all_heads(k).T, "c_proj/kernel": rows(k["out"]).T},
    ),
    "hf_gpt2_cross": Case(
        lambda s: namings.hf_gpt2_cross(s.heads),
        lambda k: {
            "q_attn/kernel": columns(k["query"]).T,
            "c_attn/kernel": np.concatenate([columns(k["key"]), columns(k["value"])], axis=1).T,
            "c_proj/kernel": rows(k["out"]).T,
        },
        "h/0/crossattention",
        "h/0/crossattention",
    ),
    "hf_llama": Case(
        lambda s: namings.hf_llama(s.heads),
        dense(*(f"{name}_proj/kernel" for name in "qkvo")),
        many=True,
    ),
    "hf_bart": Case(
        lambda s: namings.hf_bart(s.heads),
        dense(*(f"{name}_proj/kernel" for name in ("q", "k", "v", "out"))),
    ),
    "hf_t5": Case(lambda s: namings.hf_t5(s.heads), dense(*(f"{name}/kernel" for name in "qkvo"))),
    "hf_bloom": Case(
        lambda s: namings.hf_bloom(s.heads),
        lambda k: {
            "query_key_value/kernel": columns(columns(side_by_side(k))),
            "dense/kernel": rows(k["out"]),
        },
        "h/0/self_attention",
        "h/0/self_attention",
    ),
    "gemma": Case(lambda s: namings.gemma(), einsum_names, many=True, layers="front"),
    "maxtext": Case(lambda s: namings.maxtext(), layers_second, many=True, layers="second"),
    "fused": Case(
        lambda s: namings.fused(s.heads),
        lambda k: {"qkv/kernel": all_heads(k), "proj/kernel": rows(k["out"])},
        layers="front",
    ),
    "interleaved": Case(
        lambda s: namings.interleaved(s.heads),
        lambda k: {
            "qkv/kernel": columns(columns(side_by_side(k))),
            "proj/kernel": rows(k["out"]),
        },
        layers="front",
    ),
    "concatenated": Case(
        lambda s: namings.concatenated(s.heads, s.kv_heads),
        lambda k: {"qkv/kernel": all_heads(k), "proj/kernel": rows(k["out"])},
        many=True,
        layers="front",
    ),
    "grouped": Case(
        lambda s: namings.grouped(s.heads, s.kv_heads),
        lambda k: {"qkv/kernel": by_group(k), "proj/kernel": rows(k["out"])},
        many=True,
        layers="front",
    ),
    "torch_fused": Case(
        lambda s: namings.torch_fused(s.heads),
        lambda k: {"in_proj_weight": all_heads(k).T, "out_proj/weight": rows(k["out"]).T},
    ),
    "torch_separate": Case(
        lambda s: namings.torch_separate(s.heads),
        lambda k: {
            **{f"{n}_proj/weight": columns(k[r]).T for n, r in zip("qkv", k, strict=False)},
            "o_proj/weight": rows(k["out"]).T,
        },
        many=True,
    ),
}


def foreign(case, kernels):
    """The stored tree, flattened, with a bias that must stay."""
    stored = {f"{case.under}/{end}": jnp.asarray(leaf) for end, leaf in case.store(kernels).items()}
    return stored | {f"{case.under}/bias": jnp.ones(3)}


def in_flax(case, kernels):
    return {f"{case.block}/{role}/kernel": jnp.asarray(leaf) for role, leaf in kernels.items()}


def marked(key, kernels):
    """Reads and writes all four kernels; each entry of the result tells where it came from."""
    shifts = jax.random.uniform(key, (4,))
    return cj.AttentionKernels(*(kernel * 2 + shifts[i] for i, kernel in enumerate(kernels)))
