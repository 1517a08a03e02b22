"""Descriptions of where known models keep their attention kernels, for `reinitialize(names=...)`.

Hugging Face means the Flax models of transformers 4.57; which of its models a description fits is
said for those whose source was read. `num_heads` is asked for where shapes cannot tell it.
"""

from collections.abc import Callable

from condinit_jax.surgery._naming import Naming


def flax(num_heads: int | None = None) -> Naming:
    """Flax's own names: what `names=None` reads, also with flat kernels.

    Args:
        num_heads: H, for flat kernels, (D, H*d) and (H*d, D); None for (D, H, d) and (H, d, D).

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> flax().leaves[0]
        ('query/kernel', 'query: ... width heads dim')
    """
    heads = "heads dim" if num_heads is None else "(heads dim)"
    return Naming(
        {f"{role}/kernel": f"{role}: ... width {heads}" for role in ("query", "key", "value")}
        | {"out/kernel": f"out: ... {heads} width"},
        num_heads,
    )


def _dense(query: str, key: str, value: str, out: str) -> dict[str, str]:
    """Four dense layers, kernels (inputs, outputs)."""
    inputs = {"query": query, "key": key, "value": value}
    return {f"{name}/kernel": f"{role}: width (heads dim)" for role, name in inputs.items()} | {
        f"{out}/kernel": "out: (heads dim) width"
    }


def hf_vit(num_heads: int) -> Naming:
    """Hugging Face Flax ViT, also BEiT and DINOv2: "attention/attention/query", "output/dense".

    Args:
        num_heads: `config.num_attention_heads`.

    Returns:
        The description; blocks have paths such as "encoder/layer/0/attention".

    Example:
        >>> hf_vit(12).num_heads
        12
    """
    at = "attention/attention"
    names = _dense(f"{at}/query", f"{at}/key", f"{at}/value", "attention/output/dense")
    return Naming(names, num_heads)


def hf_bert(num_heads: int) -> Naming:
    """Hugging Face Flax BERT, also RoBERTa and ELECTRA, with cross-attention where there is one.

    Args:
        num_heads: `config.num_attention_heads`.

    Returns:
        The description; blocks have paths such as "encoder/layer/0/attention" and
        "encoder/layer/0/crossattention".

    Example:
        >>> hf_bert(12).leaves[-1]
        ('output/dense/kernel', 'out: (heads dim) width')
    """
    return Naming(_dense("self/query", "self/key", "self/value", "output/dense"), num_heads)


def hf_gpt2(num_heads: int) -> Naming:
    """Hugging Face Flax GPT-2: one fused kernel, stored transposed, (3 * D, D).

    Its cross-attention, where there is one, is described by `hf_gpt2_cross`.

    Args:
        num_heads: `config.n_head`.

    Returns:
        The description; blocks have paths such as "h/0/attn".

    Example:
        >>> hf_gpt2(12).leaves[0]
        ('attn/c_attn/kernel', 'query key value: (part heads dim) width')
    """
    return Naming(
        {
            "attn/c_attn/kernel": "query key value: (part heads dim) width",
            "attn/c_proj/kernel": "out: width (heads dim)",
        },
        num_heads,
    )


def hf_gpt2_cross(num_heads: int) -> Naming:
    """The cross-attention of Hugging Face's Flax GPT-2: keys and values fused, queries apart.

    Args:
        num_heads: `config.n_head`.

    Returns:
        The description; blocks have paths such as "h/0/crossattention".

    Example:
        >>> hf_gpt2_cross(12).leaves[1]
        ('crossattention/c_attn/kernel', 'key value: (part heads dim) width')
    """
    return Naming(
        {
            "crossattention/q_attn/kernel": "query: (heads dim) width",
            "crossattention/c_attn/kernel": "key value: (part heads dim) width",
            "crossattention/c_proj/kernel": "out: width (heads dim)",
        },
        num_heads,
        num_heads,
    )


def hf_llama(num_heads: int, num_kv_heads: int | None = None) -> Naming:
    """Hugging Face Flax Llama, also Mistral and Gemma: q_proj, k_proj, v_proj, o_proj.

    Args:
        num_heads: `config.num_attention_heads`.
        num_kv_heads: `config.num_key_value_heads`; None: as the shapes tell.

    Returns:
        The description; blocks have paths such as "layers/0/self_attn".

    Example:
        >>> hf_llama(32, 8).num_kv_heads
        8
    """
    return Naming(_dense("q_proj", "k_proj", "v_proj", "o_proj"), num_heads, num_kv_heads)


def hf_bart(num_heads: int) -> Naming:
    """Hugging Face Flax BART, also CLIP, GPT-J, GPT-Neo, OPT, Whisper and XGLM: out_proj.

    Args:
        num_heads: `config.num_attention_heads`, however the model calls it.

    Returns:
        The description; cross-attention is a block of its own, "encoder_attn".

    Example:
        >>> hf_bart(16).leaves[-1]
        ('out_proj/kernel', 'out: (heads dim) width')
    """
    return Naming(_dense("q_proj", "k_proj", "v_proj", "out_proj"), num_heads)


def hf_t5(num_heads: int) -> Naming:
    """Hugging Face Flax T5: q, k, v and o; H*d may be another number than D.

    Args:
        num_heads: `config.num_heads`.

    Returns:
        The description.

    Example:
        >>> hf_t5(8).leaves[0]
        ('q/kernel', 'query: width (heads dim)')
    """
    return Naming(_dense("q", "k", "v", "o"), num_heads)


def hf_bloom(num_heads: int) -> Naming:
    """Hugging Face Flax BLOOM: one fused kernel, (D, 3 * D), every head's q, k and v together.

    Args:
        num_heads: `config.n_head`.

    Returns:
        The description.

    Example:
        >>> hf_bloom(16).leaves[0]
        ('self_attention/query_key_value/kernel', 'query key value: width (heads part dim)')
    """
    return Naming(
        {
            "self_attention/query_key_value/kernel": "query key value: width (heads part dim)",
            "self_attention/dense/kernel": "out: (heads dim) width",
        },
        num_heads,
    )


def gemma() -> Naming:
    """Gemma, as Google's JAX code stores it: q_einsum (H, D, d), kv_einsum (2, K, D, d).

    Where there are as many key heads as query heads, qkv_einsum (3, H, D, d). attn_vec_einsum is
    (H, d, D). The array is called `w`.

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> gemma().leaves[1]
        ('kv_einsum/w', 'key value: ... part heads width dim')
    """
    return Naming(
        {
            "q_einsum/w": "query: ... heads width dim",
            "kv_einsum/w": "key value: ... part heads width dim",
            "qkv_einsum/w": "query key value: ... part heads width dim",
            "attn_vec_einsum/w": "out: ... heads dim width",
        }
    )


def maxtext(scanned: bool = True) -> Naming:
    """MaxText: Flax's names; the axis of scanned layers is the second, `param_scan_axis: 1`.

    Args:
        scanned: whether layers are scanned, `scan_layers`, its default.

    Returns:
        The description, fused (`qkv_proj`, (D, 3, H, d)) or not.

    Example:
        >>> maxtext().leaves[0]
        ('query/kernel', 'query: width layers heads dim')
    """
    layers = "layers " if scanned else ""
    inputs = {f"{r}/kernel": f"{r}: width {layers}heads dim" for r in ("query", "key", "value")}
    return Naming(
        inputs
        | {
            "qkv_proj/kernel": f"query key value: width {layers}part heads dim",
            "out/kernel": f"out: heads {layers}dim width",
        }
    )


def fused(num_heads: int, qkv: str = "qkv/kernel", out: str | None = "proj/kernel") -> Naming:
    """One kernel [q | k | v], (D, 3 * H * d), as most vision transformers with fused kernels have.

    Args:
        num_heads: H.
        qkv: the end of its path.
        out: the end of the out kernel's path, (H*d, D); None for none.

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> fused(12, "c_attn/kernel", None).leaves
        (('c_attn/kernel', 'query key value: ... width (part heads dim)'),)
    """
    return _fused(qkv, "... width (part heads dim)", out, "... (heads dim) width", num_heads, None)


def interleaved(num_heads: int, qkv: str = "qkv/kernel", out: str | None = "proj/kernel") -> Naming:
    """One kernel, (D, H * 3 * d), in which every head has its q, k and v side by side.

    The order of GPT-NeoX, of BLOOM and of Megatron.

    Args:
        num_heads: H.
        qkv: the end of its path.
        out: the end of the out kernel's path, (H*d, D); None for none.

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> interleaved(12).leaves[0]
        ('qkv/kernel', 'query key value: ... width (heads part dim)')
    """
    return _fused(qkv, "... width (heads part dim)", out, "... (heads dim) width", num_heads, None)


def concatenated(
    num_heads: int, num_kv_heads: int, qkv: str = "qkv/kernel", out: str | None = "proj/kernel"
) -> Naming:
    """One kernel [q heads | k heads | v heads] of grouped queries, (D, (H + 2 K) * d).

    Args:
        num_heads: H.
        num_kv_heads: K.
        qkv: the end of its path.
        out: the end of the out kernel's path, (H*d, D); None for none.

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> concatenated(32, 8).leaves[0]
        ('qkv/kernel', 'query key value: ... width (heads dim)')
    """
    return _fused(
        qkv, "... width (heads dim)", out, "... (heads dim) width", num_heads, num_kv_heads
    )


def grouped(
    num_heads: int, num_kv_heads: int, qkv: str = "qkv/kernel", out: str | None = "proj/kernel"
) -> Naming:
    """One kernel of grouped queries, (D, K * (H/K + 2) * d): each group's q heads, its k, its v.

    The order of Falcon's `new_decoder_architecture`.

    Args:
        num_heads: H.
        num_kv_heads: K.
        qkv: the end of its path.
        out: the end of the out kernel's path, (H*d, D); None for none.

    Returns:
        The description; any number of leading layer axes.

    Example:
        >>> grouped(71, 1).leaves[0]
        ('qkv/kernel', 'query key value: ... width (groups heads dim)')
    """
    return _fused(
        qkv, "... width (groups heads dim)", out, "... (heads dim) width", num_heads, num_kv_heads
    )


def torch_fused(
    num_heads: int, qkv: str = "in_proj_weight", out: str | None = "out_proj/weight"
) -> Naming:
    """PyTorch's `nn.MultiheadAttention` in a tree: (3 * H * d, D) and (D, H * d), transposed.

    Args:
        num_heads: H.
        qkv: the end of the fused weight's path.
        out: the end of the out weight's path, (D, H*d); None for none.

    Returns:
        The description.

    Example:
        >>> torch_fused(8).leaves[1]
        ('out_proj/weight', 'out: width (heads dim)')
    """
    return _fused(qkv, "(part heads dim) width", out, "width (heads dim)", num_heads, None)


def torch_separate(num_heads: int, num_kv_heads: int | None = None) -> Naming:
    """Separate weights of PyTorch linear layers, (outputs, inputs), by Llama's names.

    Args:
        num_heads: H.
        num_kv_heads: K; None: as the shapes tell.

    Returns:
        The description of q_proj, k_proj, v_proj and o_proj.

    Example:
        >>> torch_separate(8).leaves[0]
        ('q_proj/weight', 'query: (heads dim) width')
    """
    inputs = {"query": "q_proj", "key": "k_proj", "value": "v_proj"}
    return Naming(
        {f"{name}/weight": f"{role}: (heads dim) width" for role, name in inputs.items()}
        | {"o_proj/weight": "out: width (heads dim)"},
        num_heads,
        num_kv_heads,
    )


def _fused(
    qkv: str, axes: str, out: str | None, out_axes: str, heads: int, kv_heads: int | None
) -> Naming:
    leaves = {qkv: f"query key value: {axes}"}
    if out is not None:
        leaves[out] = f"out: {out_axes}"
    return Naming(leaves, heads, kv_heads)


NAMINGS: dict[str, Callable[..., Naming]] = {
    factory.__name__: factory
    for factory in (
        flax,
        hf_vit,
        hf_bert,
        hf_gpt2,
        hf_gpt2_cross,
        hf_llama,
        hf_bart,
        hf_t5,
        hf_bloom,
        gemma,
        maxtext,
        fused,
        interleaved,
        concatenated,
        grouped,
        torch_fused,
        torch_separate,
    )
}
"""Every description by its name."""
