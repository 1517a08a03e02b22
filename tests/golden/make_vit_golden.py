"""Writes vit.npz: outputs, gradients and parameter counts of timm's vision transformers.

Run it once, in an environment with torch and timm (the tests need neither):

    pip install torch==2.13.0 numpy pyyaml safetensors huggingface_hub
    pip install --no-deps timm==1.0.31 torchvision==0.28.0 pillow
    python tests/golden/make_vit_golden.py

The weights are drawn here in condinit_jax's layout, with the shapes written out by hand, so that
the test can draw them again and the file holds only results: per case the outputs and the
gradients of one scalar, all parameters one after the other in the order of their names. torch
differentiates through the conversion to timm's layout, so the gradients are in ours.
"""

import pathlib
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

GOLDEN = pathlib.Path(__file__).with_name("vit.npz")
IMAGE = (12, 8, 3)
TINY = {
    "patch_size": 4,
    "width": 16,
    "depth": 2,
    "num_heads": 2,
    "mlp_ratio": 2.0,
    "num_classes": 5,
}
CASES: dict[str, dict[str, Any]] = {
    "cls_learned": {},
    "gap": {"pool": "gap"},
    "sincos2d": {"positions": "sincos2d"},
    "layer_scale": {"layer_scale": 0.1},
    "qk_norm": {"qk_norm": True},
    "rmsnorm": {"norm": "rmsnorm"},
    "rmsnorm_qk_norm": {"norm": "rmsnorm", "qk_norm": True},
    "features": {"num_classes": 0},
}
SIZES = {
    "ti": {"embed_dim": 192, "depth": 12, "num_heads": 3},
    "s": {"embed_dim": 384, "depth": 12, "num_heads": 6},
    "b": {"embed_dim": 768, "depth": 12, "num_heads": 12},
    "l": {"embed_dim": 1024, "depth": 24, "num_heads": 16},
}
COUNTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "gap": {"pool": "gap"},
    "layer_scale": {"layer_scale": 1e-5},
    "qk_norm": {"qk_norm": True},
    "rmsnorm_qk_norm": {"norm": "rmsnorm", "qk_norm": True},
}


def shapes(case: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Gives the shape of every parameter of condinit_jax's ViT with the fields of a case."""
    fields = {"pool": "cls", "positions": "learned", "norm": "layernorm", **TINY, **case}
    layers, width, heads, patch = (fields[n] for n in ("depth", "width", "num_heads", "patch_size"))
    hidden, head_width = int(width * fields["mlp_ratio"]), width // heads
    prefix = 1 if fields["pool"] == "cls" else 0
    tokens = prefix + (IMAGE[0] // patch) * (IMAGE[1] // patch)
    found = {
        "patch_embed/kernel": (patch, patch, IMAGE[2], width),
        "patch_embed/bias": (width,),
        "blocks/attention/out/kernel": (layers, heads, head_width, width),
        "blocks/attention/out/bias": (layers, width),
        "blocks/mlp/fc1/kernel": (layers, width, hidden),
        "blocks/mlp/fc1/bias": (layers, hidden),
        "blocks/mlp/fc2/kernel": (layers, hidden, width),
        "blocks/mlp/fc2/bias": (layers, width),
    }
    for name in ("query", "key", "value"):
        found[f"blocks/attention/{name}/kernel"] = (layers, width, heads, head_width)
        found[f"blocks/attention/{name}/bias"] = (layers, heads, head_width)
    norms = {"blocks/norm1": (layers, width), "blocks/norm2": (layers, width), "norm": (width,)}
    if fields.get("qk_norm"):
        norms["blocks/attention/query_norm"] = (layers, head_width)
        norms["blocks/attention/key_norm"] = (layers, head_width)
    for name, shape in norms.items():
        found[f"{name}/scale"] = shape
        if fields["norm"] == "layernorm":
            found[f"{name}/bias"] = shape
    if fields.get("layer_scale"):
        found["blocks/layer_scale1"] = found["blocks/layer_scale2"] = (layers, width)
    if prefix:
        found["cls_token"] = (width,)
    if fields["positions"] == "learned":
        found["pos_embed"] = (tokens, width)
    if fields["num_classes"]:
        found["head/kernel"] = (width, fields["num_classes"])
        found["head/bias"] = (fields["num_classes"],)
    return found


def draw(case: Mapping[str, Any], seed: int = 0) -> dict[str, np.ndarray]:
    """Draws float32 weights for a case, parameter by parameter in the order of their names."""
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in sorted(shapes(case).items()):
        values = rng.standard_normal(shape)
        if name.endswith("kernel"):
            # Large enough for attention far from uniform, small enough for 1e-5 in float32.
            values *= 0.5
        elif name.endswith("scale"):
            values = 1.0 + 0.2 * values
        else:
            values *= 0.2
        weights[name] = values.astype(np.float32)
    return weights


def draw_batch(case: Mapping[str, Any], seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Draws images, and the weights of the outputs in the scalar whose gradients are stored."""
    rng = np.random.default_rng(seed)
    outputs = case.get("num_classes", TINY["num_classes"]) or TINY["width"]
    images = rng.standard_normal((3, *IMAGE)).astype(np.float32)
    return images, rng.standard_normal((3, outputs)).astype(np.float32)


def sincos2d(rows: int, columns: int, width: int) -> np.ndarray:
    """Writes the fixed positions number by number, from the formula."""
    quarter = width // 4
    table = np.zeros((rows * columns, width))
    for row in range(rows):
        for column in range(columns):
            for i in range(quarter):
                frequency = 10_000.0 ** (-i / (quarter - 1))
                token = table[row * columns + column]
                token[i] = np.sin(column * frequency)
                token[quarter + i] = np.cos(column * frequency)
                token[2 * quarter + i] = np.sin(row * frequency)
                token[3 * quarter + i] = np.cos(row * frequency)
    return table.astype(np.float32)


def to_timm(weights: Mapping[str, Any], case: Mapping[str, Any]) -> dict[str, Any]:
    """Converts torch tensors in condinit_jax's layout to a timm state dict, differentiably."""
    import torch

    fields = {**TINY, **case}
    width, layers = fields["width"], fields["depth"]
    cls, gap = "cls_token" in weights, fields.get("pool") == "gap"
    state = {
        "patch_embed.proj.weight": weights["patch_embed/kernel"].permute(3, 2, 0, 1),
        "patch_embed.proj.bias": weights["patch_embed/bias"],
    }
    if cls:
        state["cls_token"] = weights["cls_token"][None, None]
    if "pos_embed" in weights:
        state["pos_embed"] = weights["pos_embed"][None]
    else:
        grid = (IMAGE[0] // fields["patch_size"], IMAGE[1] // fields["patch_size"])
        table = np.pad(sincos2d(*grid, width), ((int(cls), 0), (0, 0)))
        state["pos_embed"] = torch.from_numpy(table)[None]
    if "head/kernel" in weights:
        state["head.weight"] = weights["head/kernel"].T
        state["head.bias"] = weights["head/bias"]

    def put_norm(ours: str, theirs: str, layer: Any) -> None:
        for suffix, name in (("scale", "weight"), ("bias", "bias")):
            if f"{ours}/{suffix}" in weights:
                state[f"{theirs}.{name}"] = weights[f"{ours}/{suffix}"][layer]

    put_norm("norm", "fc_norm" if gap else "norm", ...)
    for layer in range(layers):
        block, attention = f"blocks.{layer}", "blocks/attention"
        qkv = [weights[f"{attention}/{name}/kernel"][layer] for name in ("query", "key", "value")]
        state[f"{block}.attn.qkv.weight"] = torch.cat([k.reshape(width, -1).T for k in qkv])
        qkv = [weights[f"{attention}/{name}/bias"][layer] for name in ("query", "key", "value")]
        state[f"{block}.attn.qkv.bias"] = torch.cat([bias.reshape(-1) for bias in qkv])
        out = weights[f"{attention}/out/kernel"][layer]
        state[f"{block}.attn.proj.weight"] = out.reshape(-1, width).T
        state[f"{block}.attn.proj.bias"] = weights[f"{attention}/out/bias"][layer]
        put_norm(f"{attention}/query_norm", f"{block}.attn.q_norm", layer)
        put_norm(f"{attention}/key_norm", f"{block}.attn.k_norm", layer)
        for name in ("norm1", "norm2"):
            put_norm(f"blocks/{name}", f"{block}.{name}", layer)
        for name in ("fc1", "fc2"):
            state[f"{block}.mlp.{name}.weight"] = weights[f"blocks/mlp/{name}/kernel"][layer].T
            state[f"{block}.mlp.{name}.bias"] = weights[f"blocks/mlp/{name}/bias"][layer]
        for number in (1, 2):
            if f"blocks/layer_scale{number}" in weights:
                state[f"{block}.ls{number}.gamma"] = weights[f"blocks/layer_scale{number}"][layer]
    return state


def timm_fields(case: Mapping[str, Any]) -> dict[str, Any]:
    """Translates fields of condinit_jax's ViT to arguments of timm's VisionTransformer."""
    from timm.layers import RmsNorm

    gap = case.get("pool") == "gap"
    return {
        "global_pool": "avg" if gap else "token",
        "class_token": not gap,
        "init_values": case.get("layer_scale"),
        "qk_norm": case.get("qk_norm", False),
        "norm_layer": RmsNorm if case.get("norm") == "rmsnorm" else None,
    }


def main() -> None:
    """Computes everything with timm and writes the file."""
    sys.modules["torchvision._meta_registrations"] = types.ModuleType("stub")
    import torch
    from timm.models.vision_transformer import VisionTransformer

    golden: dict[str, np.ndarray] = {}
    for label, case in CASES.items():
        fields = {**TINY, **case}
        model = VisionTransformer(
            img_size=IMAGE[:2],
            patch_size=fields["patch_size"],
            embed_dim=fields["width"],
            depth=fields["depth"],
            num_heads=fields["num_heads"],
            mlp_ratio=fields["mlp_ratio"],
            num_classes=fields["num_classes"],
            **timm_fields(case),
        ).eval()
        weights = {k: torch.from_numpy(v).requires_grad_() for k, v in draw(case).items()}
        state = to_timm(weights, case)
        expected = {name: tuple(value.shape) for name, value in model.state_dict().items()}
        if expected != {name: tuple(value.shape) for name, value in state.items()}:
            raise SystemExit(f"{label}: the converted weights do not fill timm's model")
        images, cotangent = map(torch.from_numpy, draw_batch(case))
        outputs = torch.func.functional_call(model, state, (images.permute(0, 3, 1, 2),))
        (outputs * cotangent).sum().backward()
        golden[f"{label}:outputs"] = outputs.detach().numpy()
        golden[f"{label}:gradients"] = np.concatenate(
            [value.grad.numpy().ravel() for value in weights.values()]
        )

    for size, fields in SIZES.items():
        for label, case in COUNTS.items():
            with torch.device("meta"):
                model = VisionTransformer(**fields, **timm_fields(case), weight_init="skip")
            count = sum(parameter.numel() for parameter in model.parameters())
            golden[f"count:{size}:{label}"] = np.int64(count)
    np.savez_compressed(GOLDEN, **golden)


if __name__ == "__main__":
    main()
