"""ViT: timm's numbers to the unit, timm's outputs and gradients, and what its fields promise."""

import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from hypothesis import given, settings
from hypothesis import strategies as st

from condinit_jax.errors import UserError
from condinit_jax.models import MODELS
from condinit_jax.models.residual import SKIPS
from condinit_jax.models.token_conditioning import TOKEN_CONDITIONING, gray_dct
from condinit_jax.models.vit import VARIANTS, PatchEmbed, ViT, vit
from condinit_jax.spectra import capture

_GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
_spec = importlib.util.spec_from_file_location("make_vit_golden", _GOLDEN / "make_vit_golden.py")
make_vit_golden = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_vit_golden)

TINY = {"patch_size": 4, "width": 16, "depth": 3, "num_heads": 2, "num_classes": 5}
IMAGES = np.random.default_rng(7).standard_normal((4, 8, 8, 3)).astype(np.float32)


def tiny(**fields):
    return ViT(**{**TINY, **fields})


def parameter_shapes(model, image=(1, 224, 224, 3)):
    variables = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros(image))
    shapes = jax.tree.map(lambda leaf: leaf.shape, variables["params"])
    return traverse_util.flatten_dict(shapes, sep="/", is_leaf=lambda _, leaf: type(leaf) is tuple)


def count(model, image=(1, 224, 224, 3)):
    return sum(int(np.prod(shape)) for shape in parameter_shapes(model, image).values())


@pytest.fixture(scope="module")
def golden():
    with np.load(_GOLDEN / "vit.npz", allow_pickle=False) as file:
        return dict(file)


@pytest.fixture(scope="module")
def variables(draw_variables):
    return draw_variables(tiny(), IMAGES)


@pytest.mark.parametrize(
    ("variant", "fields", "image", "expected"),
    [
        ("ti", {"num_classes": 1000}, 224, 5_717_416),
        ("ti", {"num_classes": 10}, 224, 5_526_346),
        ("ti", {"num_classes": 37}, 224, 5_531_557),
        ("ti", {"num_classes": 100}, 224, 5_543_716),
        ("ti", {"num_classes": 102}, 224, 5_544_102),
        ("ti", {"num_classes": 10, "patch_size": 2}, 32, 5_392_714),
        ("b", {}, 224, 86_567_656),
    ],
)
def test_counts_published_for_timm_are_met_to_the_unit(variant, fields, image, expected):
    assert count(vit(variant, **fields), (1, image, image, 3)) == expected


@pytest.mark.parametrize(
    ("size", "label"),
    [(size, "plain") for size in make_vit_golden.SIZES]
    + [("s", label) for label in make_vit_golden.COUNTS if label != "plain"],
)
def test_every_size_and_option_counts_as_timm_does(golden, size, label):
    model = vit(size, **make_vit_golden.COUNTS[label])
    assert count(model) == golden[f"count:{size}:{label}"]


@pytest.mark.parametrize("label", make_vit_golden.CASES)
def test_outputs_and_gradients_equal_timms(golden, quick_jit, label):
    case = make_vit_golden.CASES[label]
    model = ViT(**{**make_vit_golden.TINY, **case})
    weights = make_vit_golden.draw(case)
    images, cotangent = make_vit_golden.draw_batch(case)
    assert parameter_shapes(model, images.shape) == make_vit_golden.shapes(case)

    @quick_jit
    def outputs_and_gradients(weights):
        def forward(weights):
            params = traverse_util.unflatten_dict(weights, sep="/")
            return model.apply({"params": params}, images)

        outputs, backward = jax.vjp(forward, weights)
        return outputs, backward(cotangent)[0]

    outputs, gradients = outputs_and_gradients(weights)
    np.testing.assert_allclose(outputs, golden[f"{label}:outputs"], rtol=0, atol=1e-5)
    sizes = [np.size(weights[name]) for name in sorted(weights)]
    expected = np.split(golden[f"{label}:gradients"], np.cumsum(sizes)[:-1])
    for name, gradient in zip(sorted(weights), expected, strict=True):
        # Gradients sum over tokens and examples: 1e-5 of their largest value.
        atol = 1e-5 * max(1.0, float(np.abs(gradient).max()))
        found = np.ravel(gradients[name])
        np.testing.assert_allclose(found, gradient, rtol=0, atol=atol, err_msg=name)


def test_kernels_are_named_and_shaped_as_flax_attention_with_a_leading_layer_axis():
    shapes = parameter_shapes(tiny(), IMAGES.shape)
    attention = {k.split("attention/")[1]: v for k, v in shapes.items() if "attention/" in k}
    assert attention == {
        "query/kernel": (3, 16, 2, 8),
        "key/kernel": (3, 16, 2, 8),
        "value/kernel": (3, 16, 2, 8),
        "out/kernel": (3, 2, 8, 16),
        "query/bias": (3, 2, 8),
        "key/bias": (3, 2, 8),
        "value/bias": (3, 2, 8),
        "out/bias": (3, 16),
    }


def test_initial_distributions_are_timms(quick_jit):
    model = vit("ti", depth=2, num_classes=50, patch_size=8)
    init = quick_jit(model.init)(jax.random.key(0), jnp.zeros((1, 64, 64, 3)))
    params = traverse_util.flatten_dict(init["params"], sep="/")
    bound = (8 * 8 * 3) ** -0.5
    for name, value in params.items():
        if name.startswith("patch_embed"):
            assert bound * 0.9 < jnp.abs(value).max() <= bound, name
        elif name == "cls_token":
            np.testing.assert_allclose(value.std(), 1e-6, rtol=0.2)
        elif name.endswith("kernel") or name == "pos_embed":
            np.testing.assert_allclose(value.std(), 0.02, rtol=0.03, err_msg=name)
        else:
            expected = 1.0 if name.endswith("scale") else 0.0
            np.testing.assert_array_equal(value, expected, err_msg=name)
    queries, keys = (params[f"blocks/attention/{name}/kernel"] for name in ("query", "key"))
    assert not np.any(queries[0] == queries[1])
    assert not np.any(queries == keys)


@pytest.fixture(scope="module")
def logits_and_gradients(variables, quick_jit):
    """Computes the logits of a model on the shared weights, and the gradients of their sum."""

    def compute(model):
        def forward_and_back(v):
            logits, backward = jax.vjp(lambda v: model.apply(v, IMAGES), v)
            return logits, backward(jnp.ones_like(logits))[0]

        return quick_jit(forward_and_back)(variables)

    return compute


@pytest.fixture(scope="module")
def plain(logits_and_gradients):
    return logits_and_gradients(tiny())


@pytest.mark.parametrize(
    "fields",
    [{"scan_unroll": 2}, {"scan_unroll": 99}, {"remat": True, "scan_unroll": 3}],
)
def test_unrolling_and_rematerialising_change_no_result(plain, logits_and_gradients, fields):
    def check(found, expected):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)

    jax.tree.map(check, logits_and_gradients(tiny(**fields)), plain)


@pytest.mark.parametrize(
    "fields",
    [
        *({"residual": name} for name in sorted(set(SKIPS) - {"pre_norm"})),
        *({"token_conditioning": name} for name in sorted(set(TOKEN_CONDITIONING) - {"none"})),
    ],
)
def test_a_switch_changes_the_logits_and_no_parameter(plain, logits_and_gradients, fields):
    logits, gradients = logits_and_gradients(tiny(**fields))
    assert np.abs(logits - plain[0]).max() > 1e-3
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradients))
    assert parameter_shapes(tiny(**fields), IMAGES.shape) == parameter_shapes(tiny(), IMAGES.shape)


def test_tokens_are_conditioned_after_positions_and_before_the_first_block(variables):
    model = tiny(depth=1, residual="post_norm", token_conditioning="gray_dct", token_exponent=0.5)
    params = {**variables["params"]}
    params["blocks"] = jax.tree.map(lambda leaf: leaf[:1], params["blocks"])
    (block,) = capture(model, {"params": params}, IMAGES)
    patches = PatchEmbed(4, 16).apply({"params": params["patch_embed"]}, IMAGES)
    cls_token = jnp.broadcast_to(params["cls_token"], (len(IMAGES), 1, 16))
    tokens = jnp.concatenate([cls_token, patches], axis=1) + params["pos_embed"]
    np.testing.assert_allclose(block.tokens, gray_dct(tokens, 0.5), rtol=1e-4, atol=1e-5)


def test_no_norm_leaves_no_norms_parameters():
    shapes = parameter_shapes(tiny(norm="none"), IMAGES.shape)
    assert not [name for name in shapes if "norm" in name]
    kept = [name for name in parameter_shapes(tiny(), IMAGES.shape) if "norm" not in name]
    assert sorted(shapes) == sorted(kept)


def test_remat_stores_fewer_activations(variables):
    def stored(model):
        def residuals(v):
            return jax.tree.leaves(jax.vjp(lambda v: model.apply(v, IMAGES), v)[1])

        return sum(leaf.size for leaf in jax.eval_shape(residuals, variables))

    assert stored(tiny(remat=True)) < 0.7 * stored(tiny())


def test_bfloat16_computes_near_float32_and_gives_float32_logits(plain, variables, quick_jit):
    model = tiny(dtype=jnp.bfloat16)
    logits = quick_jit(model.apply)(variables, IMAGES)
    assert logits.dtype == jnp.float32
    error = np.abs(logits - plain[0]).max()
    assert 0 < error < 0.1 * np.abs(plain[0]).max()
    shapes = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes)} == {jnp.dtype("float32")}


def test_drop_path_acts_in_training_only_and_per_key(plain, variables, quick_jit):
    model = tiny(drop_path=0.5)
    np.testing.assert_array_equal(quick_jit(model.apply)(variables, IMAGES), plain[0])
    train = quick_jit(lambda key: model.apply(variables, IMAGES, train=True, rngs={"dropout": key}))
    first, second = train(jax.random.key(0)), train(jax.random.key(1))
    assert not np.allclose(first, second)
    assert not np.allclose(first, plain[0])
    np.testing.assert_array_equal(first, train(jax.random.key(0)))


def test_without_drop_path_training_needs_no_key(plain, variables, quick_jit):
    logits = quick_jit(lambda v: tiny().apply(v, IMAGES, train=True))(variables)
    np.testing.assert_allclose(logits, plain[0], rtol=1e-4, atol=1e-4)


def test_an_example_does_not_depend_on_its_batch(plain, variables, quick_jit):
    alone = quick_jit(jax.vmap(lambda image: tiny().apply(variables, image[None])[0]))
    np.testing.assert_allclose(alone(IMAGES), plain[0], rtol=1e-4, atol=1e-4)


def test_tokens_entering_the_attention_of_every_layer_can_be_captured(variables):
    def capture(v):
        return tiny().apply(
            v,
            IMAGES,
            capture_intermediates=lambda module, _: module.name == "norm1",
            mutable=["intermediates"],
        )[1]

    captured = jax.eval_shape(capture, variables)
    (tokens,) = captured["intermediates"]["blocks"]["norm1"]["__call__"]
    assert tokens.shape == (3, 4, 5, 16)


@settings(max_examples=12, deadline=None)
@given(
    patch=st.integers(1, 9),
    grid=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    channels=st.integers(1, 4),
    heads=st.integers(1, 4),
    pool=st.sampled_from(["cls", "gap"]),
    positions=st.sampled_from(["learned", "sincos2d"]),
    classes=st.integers(0, 3),
)
def test_any_patch_and_image_size_gives_logits(
    patch, grid, channels, heads, pool, positions, classes
):
    model = tiny(
        patch_size=patch,
        width=4 * heads,
        num_heads=heads,
        pool=pool,
        positions=positions,
        num_classes=classes,
    )
    images = jnp.zeros((2, grid[0] * patch, grid[1] * patch, channels))
    logits, variables = jax.eval_shape(model.init_with_output, jax.random.key(0), images)
    assert logits.shape == (2, classes or 4 * heads)
    tokens = grid[0] * grid[1] + (pool == "cls")
    learned = variables["params"].get("pos_embed")
    assert (learned is None) if positions == "sincos2d" else learned.shape == (tokens, 4 * heads)
    assert ("cls_token" in variables["params"]) == (pool == "cls")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"patch_size": 3}, "patch_size: 3 does not divide the image's side of 8 pixels"),
        ({"patch_size": 0}, "patch_size: 0 is not positive"),
        ({"num_heads": 3}, "num_heads: 3 does not divide width 16"),
        ({"width": 6, "positions": "sincos2d"}, "width: 6 is no multiple of 4"),
        ({"depth": 0}, "depth: 0 is not positive"),
        ({"scan_unroll": 0}, "scan_unroll: 0 is not positive"),
        ({"pool": "mean"}, "pool: 'mean' is none of cls, gap"),
        ({"positions": "rope"}, "positions: 'rope' is none of learned, sincos2d"),
        ({"norm": "batchnorm"}, "norm: 'batchnorm' is none of layernorm, rmsnorm"),
        ({"drop_path": 1.0}, "drop_path: 1.0 is no probability"),
        ({"mlp_ratio": 0.0}, "mlp_ratio: 0.0 leaves no hidden unit"),
        ({"norm_eps": 0.0}, "norm_eps: 0.0 is not positive"),
        ({"layer_scale": -0.1}, "layer_scale: -0.1 is negative"),
        ({"num_classes": -1}, "num_classes: -1 is negative"),
        ({"residual": "highway"}, "residual: 'highway' is none of pre_norm, post_norm, deepnorm"),
        ({"token_conditioning": "svd"}, "token_conditioning: 'svd' is none of none, gray_svd"),
        ({"token_exponent": 0.0}, "token_exponent: 0.0 is not in (0, 1]"),
        ({"token_exponent": 1.5}, "token_exponent: 1.5 is not in (0, 1]"),
        ({"norm": "none", "residual": "deepnorm"}, "norm: 'none' leaves residual deepnorm"),
        ({"norm": "none", "qk_norm": True}, "qk_norm: True normalises with norm"),
        ({"drop_path": 0.1, "residual": "skipless"}, "drop_path: 0.1 with residual skipless"),
    ],
)
def test_a_wrong_field_is_named_in_one_line(fields, message):
    with pytest.raises(UserError) as error:
        jax.eval_shape(tiny(**fields).init, jax.random.key(0), IMAGES)
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_another_image_size_than_the_positions_were_learned_for_is_refused(variables):
    with pytest.raises(
        UserError, match=r"^positions: learned for 4 patches, .* has 9 of patch_size"
    ):
        jax.eval_shape(tiny().apply, variables, jnp.zeros((1, 12, 12, 3)))


def test_fixed_positions_take_another_image_size():
    model = tiny(positions="sincos2d")
    variables = jax.eval_shape(model.init, jax.random.key(0), IMAGES)
    assert jax.eval_shape(model.apply, variables, jnp.zeros((1, 12, 12, 3))).shape == (1, 5)


def test_images_without_a_batch_axis_are_refused():
    with pytest.raises(UserError, match=r"^images: shape \(8, 8, 3\)"):
        jax.eval_shape(tiny().init, jax.random.key(0), IMAGES[0])


def test_named_sizes_take_fields_and_unknown_names_are_refused():
    model = vit("micro", patch_size=7, depth=2)
    assert (model.width, model.depth, model.patch_size) == (64, 2, 7)
    with pytest.raises(UserError, match=r"^variant: 'huge' is none of micro, ti, s, b, l$"):
        vit("huge")
    assert all(set(fields) == {"width", "depth", "num_heads"} for fields in VARIANTS.values())


def test_the_table_of_models_has_it():
    assert MODELS["vit"] is ViT
