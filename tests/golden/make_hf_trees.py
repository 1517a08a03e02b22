"""Writes hf_trees.json: paths and shapes of small Hugging Face Flax models' parameters.

    python tests/golden/make_hf_trees.py

Needs transformers 4.57, which still has Flax models; nothing else here needs it. The file was
written with transformers 4.57.6, jax 0.4.38 and flax 0.10.4, since its T5 calls what jax 0.10 no
longer has. Models are made from their configurations, so nothing is downloaded.
"""

import json
import pathlib

FILE = pathlib.Path(__file__).with_name("hf_trees.json")

SIZES = {"hidden_size": 24, "num_hidden_layers": 2, "intermediate_size": 32}
LANGUAGE = SIZES | {"vocab_size": 20, "max_position_embeddings": 16}


def models():
    """For each name a model without parameters."""
    import transformers as hf

    grouped = LANGUAGE | {"num_attention_heads": 4, "num_key_value_heads": 2}
    gpt2 = {"n_embd": 24, "n_head": 3, "n_layer": 2, "vocab_size": 20, "n_positions": 16}
    image = SIZES | {"num_attention_heads": 3, "image_size": 8, "patch_size": 4}
    t5 = {"d_model": 24, "d_kv": 6, "d_ff": 32, "num_layers": 2, "num_heads": 3, "vocab_size": 20}
    bart = {
        "d_model": 24,
        "encoder_layers": 1,
        "decoder_layers": 1,
        "encoder_attention_heads": 3,
        "decoder_attention_heads": 3,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "vocab_size": 20,
        "max_position_embeddings": 16,
    }
    bloom = {"hidden_size": 24, "n_head": 4, "n_layer": 2, "vocab_size": 20}
    bert = hf.BertConfig(**LANGUAGE, num_attention_heads=3)
    text = {"input_shape": (1, 4), "_do_init": False}
    activation = {"hidden_activation": "gelu_pytorch_tanh"}
    return {
        "hf_vit": hf.FlaxViTModel(hf.ViTConfig(**image), _do_init=False),
        "hf_bert": hf.FlaxBertModel(bert, **text),
        "hf_gpt2": hf.FlaxGPT2Model(hf.GPT2Config(**gpt2), **text),
        "hf_llama": hf.FlaxLlamaModel(hf.LlamaConfig(**grouped), **text),
        "hf_gemma": hf.FlaxGemmaModel(hf.GemmaConfig(**grouped, head_dim=8, **activation), **text),
        "hf_bart": hf.FlaxBartModel(hf.BartConfig(**bart), **text),
        "hf_t5": hf.FlaxT5Model(hf.T5Config(**t5), **text),
        "hf_bloom": hf.FlaxBloomModel(hf.BloomConfig(**bloom), **text),
    }


def main():
    from flax.traverse_util import flatten_dict

    trees = {}
    for name, model in models().items():
        flat = flatten_dict(dict(model.params_shape_tree), sep="/")
        trees[name] = {path: list(leaf.shape) for path, leaf in sorted(flat.items())}
    lines = ",\n".join(f'"{name}": {json.dumps(tree)}' for name, tree in trees.items())
    FILE.write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
