"""Real Flax models of Hugging Face, where transformers 4.57 is installed: are heads where we think?

The oracle is the model itself: an attention block's output does not change when its heads trade
places in all four kernels. Only kernels are permuted; the biases of a new model are zero.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import condinit_jax as cj
from condinit_jax import namings

pytest.importorskip("transformers.models.vit.modeling_flax_vit", exc_type=ImportError)
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 32}
LANGUAGE = SIZES | {"vocab_size": 20, "max_position_embeddings": 16}
GROUPED = LANGUAGE | {"num_attention_heads": 4, "num_key_value_heads": 2}
TOKENS = np.arange(6)[None]


def vit(hf):
    config = hf.ViTConfig(**SIZES, num_attention_heads=3, image_size=8, patch_size=4)
    image = np.random.default_rng(0).standard_normal((1, 3, 8, 8), dtype=np.float32)
    return hf.FlaxViTModel(config), namings.hf_vit(3), image


def bert(hf):
    config = hf.BertConfig(**LANGUAGE, num_attention_heads=3)
    return hf.FlaxBertModel(config), namings.hf_bert(3), TOKENS


def gpt2(hf):
    config = hf.GPT2Config(n_embd=24, n_head=3, n_layer=2, vocab_size=20, n_positions=16)
    return hf.FlaxGPT2Model(config), namings.hf_gpt2(3), TOKENS


def llama(hf):
    model = hf.FlaxLlamaModel(hf.LlamaConfig(**GROUPED), input_shape=(1, 4))
    return model, namings.hf_llama(4), TOKENS


def gemma(hf):
    config = hf.GemmaConfig(**GROUPED, head_dim=8, hidden_activation="gelu_pytorch_tanh")
    return hf.FlaxGemmaModel(config, input_shape=(1, 4)), namings.hf_llama(4), TOKENS


def bart(hf):
    sizes = {"d_model": 24, "vocab_size": 20, "max_position_embeddings": 16}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 1, f"{side}_attention_heads": 3, f"{side}_ffn_dim": 32}
    return hf.FlaxBartModel(hf.BartConfig(**sizes), input_shape=(1, 4)), namings.hf_bart(3), TOKENS


def reversed_heads(key, kernels):
    query, key_kernel, value, out = kernels
    return cj.AttentionKernels(query[:, ::-1], key_kernel[:, ::-1], value[:, ::-1], out[::-1])


def reversed_queries(key, kernels):
    return kernels._replace(query=kernels.query[:, ::-1])


@pytest.mark.parametrize("build", [vit, bert, gpt2, llama, gemma, bart])
def test_heads_may_trade_places_in_all_four_kernels(build):
    import transformers

    model, names, inputs = build(transformers)

    def larger(path, leaf):  # so that attention is far from uniform
        return leaf * 15 if path[-1].key == "kernel" else leaf

    params = jax.tree_util.tree_map_with_path(larger, model.params)

    def output(method):
        new = (
            params
            if method is None
            else cj.reinitialize(params, jax.random.key(0), method, names=names)
        )
        return np.asarray(model(inputs, params=new)[0])

    before = output(None)
    np.testing.assert_allclose(output(reversed_heads), before, atol=2e-5)
    assert np.abs(output(reversed_queries) - before).max() > 0.1


@pytest.mark.parametrize("build", [vit, gpt2])
def test_conditioned_logits_are_inner_products_of_orthonormal_projections(build):
    """W_Q^T W_Q = I in each head, as the stored columns of a head show without our layout."""
    import transformers

    model, names, _ = build(transformers)
    method = cj.methods.conditioned()
    new = cj.reinitialize(model.params, jax.random.key(0), method, names=names)
    if build is vit:
        query = new["encoder"]["layer"]["1"]["attention"]["attention"]["query"]["kernel"]
    else:
        query = new["h"]["1"]["attn"]["c_attn"]["kernel"].T[:, :24]
    for head in jnp.split(query, 3, axis=1):
        np.testing.assert_allclose(head.T @ head, np.eye(8), atol=5e-6)
