import contextlib
import io
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from condinit_jax.data import images
from condinit_jax.data.corrupt import UndecodableError


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def encoded(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_lossless_formats_decode_to_the_pixels_that_were_encoded(kind):
    pixels = picture(9, 7)
    options = {"lossless": True} if kind == "WEBP" else {}
    decoded = images.decode(encoded(Image.fromarray(pixels), kind, **options), channels=3)
    np.testing.assert_array_equal(images.as_array(decoded), pixels)


def test_jpeg_decodes_close_to_the_pixels_that_were_encoded():
    ramp = np.tile(np.arange(0, 128, 2, dtype=np.uint8)[None, :, None], (32, 1, 3))
    decoded = images.decode(encoded(Image.fromarray(ramp), "JPEG", quality=95), channels=3)
    np.testing.assert_allclose(images.as_array(decoded).astype(int), ramp, atol=4)


def _palette_with_transparency() -> Image.Image:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.info["transparency"] = b"\x00\xff"
    return image


@pytest.mark.parametrize(
    ("image", "rgb", "gray"),
    [
        (Image.new("L", (4, 4), 77), (77, 77, 77), 77),
        (Image.new("RGB", (4, 4), (255, 0, 0)), (255, 0, 0), 76),
        (Image.new("RGBA", (4, 4), (9, 8, 7, 0)), (9, 8, 7), 8),
        (Image.new("LA", (4, 4), (50, 10)), (50, 50, 50), 50),
        (Image.new("1", (4, 4), 1), (255, 255, 255), 255),
        (_palette_with_transparency(), (10, 20, 30), 18),
        (Image.fromarray(np.full((4, 4), 0x8012, np.uint16)), (0x80, 0x80, 0x80), 0x80),
    ],
    ids=["L", "RGB", "RGBA", "LA", "1", "P", "I;16"],
)
def test_every_mode_becomes_rgb_or_grayscale(image, rgb, gray):
    data = encoded(image)
    np.testing.assert_array_equal(
        images.as_array(images.decode(data, 3)), np.full((4, 4, 3), rgb, np.uint8)
    )
    np.testing.assert_array_equal(
        images.as_array(images.decode(data, 1)), np.full((4, 4, 1), gray, np.uint8)
    )


@pytest.mark.parametrize("stored", [1, 3])
@pytest.mark.parametrize("wanted", [1, 3])
def test_arrays_are_taken_as_pixels(stored, wanted):
    pixels = picture(5, 6, stored).reshape(5, 6, stored)
    decoded = images.as_array(images.decode(pixels, wanted))
    assert decoded.shape == (5, 6, wanted)
    if stored == wanted:
        np.testing.assert_array_equal(decoded, pixels)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not an image"),
        (b"hello, I am a text file", "not an image"),
        (encoded(Image.fromarray(picture(64, 64)))[:-3000], "truncated|broken|end"),
        (encoded(Image.fromarray(picture(64, 64)), "JPEG")[:-800], "truncated"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    ],
    ids=["empty", "text", "truncated png", "truncated jpeg", "postscript"],
)
def test_damaged_bytes_are_undecodable_and_say_why(data, reason):
    with pytest.raises(UndecodableError, match=reason) as caught:
        images.decode(data, 3)
    assert "\n" not in str(caught.value)


@given(position=st.integers(0, 10**6), value=st.integers(0, 255))
def test_a_changed_byte_either_decodes_or_is_undecodable(position, value):
    data = bytearray(encoded(Image.fromarray(picture(8, 8))))
    data[position % len(data)] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with contextlib.suppress(UndecodableError):
            images.decode(bytes(data), 3)


@pytest.mark.parametrize("excess", [1.5, 3.0])
def test_a_decompression_bomb_is_undecodable(excess, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(100 * 100 / excess))
    data = encoded(Image.new("RGB", (100, 100)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        with pytest.raises(UndecodableError, match="pixels"):
            images.decode(data, 3)


@pytest.mark.parametrize("size", [(40, 60), (60, 40), (31, 31), (20, 500)])
@pytest.mark.parametrize(("side", "keep"), [(16, 1.0), (28, 0.875), (64, 1.0)])
def test_resize_and_centre_agrees_with_resizing_all_and_cutting_later(size, side, keep):
    height, width = size
    image = Image.fromarray(picture(height, width))
    shorter = round(side / keep)
    scale = shorter / min(size)
    whole = image.resize((round(width * scale), round(height * scale)), Image.Resampling.BICUBIC)
    left, top = (whole.width - side) // 2, (whole.height - side) // 2
    expected = np.asarray(whole)[top : top + side, left : left + side]
    np.testing.assert_array_equal(
        images.as_array(images.resize_and_centre(image, side, keep)), expected
    )


def test_images_of_the_right_size_are_not_touched():
    pixels = picture(28, 28)
    same = images.resize_and_centre(Image.fromarray(pixels), 28)
    np.testing.assert_array_equal(images.as_array(same), pixels)


def test_shrinking_averages_instead_of_picking_pixels():
    checkerboard = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
    small = images.as_array(images.resize_and_centre(Image.fromarray(checkerboard), 8))
    np.testing.assert_allclose(small[2:-2, 2:-2].astype(float), 127.5, atol=4)


@pytest.mark.parametrize("size", [(1, 5000), (5000, 1), (1, 1)])
def test_extreme_shapes_give_squares_without_huge_pictures(size):
    square = images.resize_and_centre(Image.new("RGB", size, (1, 2, 3)), 32, 0.875)
    assert square.size == (32, 32)
    assert square.getpixel((5, 5)) == (1, 2, 3)


unit = st.floats(0, 1, exclude_max=True)


@given(
    width=st.integers(1, 300),
    height=st.integers(1, 300),
    draws=st.lists(unit, min_size=images.INCEPTION_DRAWS, max_size=images.INCEPTION_DRAWS),
)
def test_inception_boxes_lie_inside_with_area_and_ratio_in_range(width, height, draws):
    left, top, right, bottom = images.inception_box(width, height, np.array(draws))
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    # Half a pixel of rounding on each side widens both ranges.
    box_width, box_height = right - left, bottom - top
    if min(box_width, box_height) > 1:
        assert (box_width + 0.5) / (box_height - 0.5) >= 3 / 4
        assert (box_width - 0.5) / (box_height + 0.5) <= 4 / 3
    if 3 / 4 <= width / height <= 4 / 3:
        assert (box_width + 0.5) * (box_height + 0.5) >= 0.08 * width * height


def test_inception_boxes_reach_small_and_large_areas_everywhere():
    rng = np.random.default_rng(0)
    boxes = [images.inception_box(200, 200, rng.random(images.INCEPTION_DRAWS)) for _ in range(500)]
    areas = np.array([(r - l) * (b - t) for l, t, r, b in boxes]) / 200**2  # noqa: E741
    assert areas.min() < 0.12
    assert areas.max() > 0.9
    assert min(box[0] for box in boxes) == 0
    assert max(box[2] for box in boxes) == 200


def test_inception_falls_back_to_the_central_part_of_a_strip():
    box = images.inception_box(1000, 30, np.full(images.INCEPTION_DRAWS, 0.999))
    assert box == (480, 0, 520, 30)


def test_inception_crop_is_the_box_alone_resized():
    pixels, draws = picture(50, 40), np.random.default_rng(1).random(images.INCEPTION_DRAWS)
    left, top, right, bottom = images.inception_box(40, 50, draws)
    part = Image.fromarray(pixels[top:bottom, left:right])
    np.testing.assert_array_equal(
        images.as_array(images.inception_crop(Image.fromarray(pixels), 16, draws)),
        np.asarray(part.resize((16, 16), Image.Resampling.BICUBIC)),
    )


@given(side=st.sampled_from([4, 8, 28, 33]), draws=st.lists(st.tuples(unit, unit), min_size=1))
def test_pad_crop_is_a_window_of_the_padded_image(side, draws):
    margin = side // 8
    batch = picture(side, side, 3)[None].repeat(len(draws), 0)
    result = images.pad_crop(batch, np.array(draws))
    for image, cut, (row, column) in zip(batch, result, draws, strict=True):
        padded = np.zeros((side + 2 * margin, side + 2 * margin, 3), np.uint8)
        padded[margin : margin + side, margin : margin + side] = image
        top, left = int(row * (2 * margin + 1)), int(column * (2 * margin + 1))
        np.testing.assert_array_equal(cut, padded[top : top + side, left : left + side])


def test_flip_mirrors_exactly_the_drawn_images():
    batch = picture(4, 6, 3)[None].repeat(3, 0)
    result = images.flip(batch, np.array([0.49, 0.5, 0.0]))
    np.testing.assert_array_equal(result[0], batch[0, :, ::-1])
    np.testing.assert_array_equal(result[1], batch[1])
    np.testing.assert_array_equal(result[2], batch[2, :, ::-1])


@pytest.mark.parametrize(
    ("mean", "std"),
    [((0.5,), (0.5,)), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.1,), (1.0, 2.0, 3.0))],
)
def test_normalise_is_its_formula(mean, std):
    batch = picture(4, 6, 3)[None]
    out = np.empty(batch.shape, np.float32)
    images.normalise(batch, mean, std, out)
    expected = (batch / 255 - np.array(mean)) / np.array(std)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-6)


def test_inception_keeps_all_at_full_area_and_ratio_one():
    draws = np.zeros(images.INCEPTION_DRAWS)
    draws[:2] = 1 - 1e-12, 0.5
    assert images.inception_box(100, 100, draws) == (0, 0, 100, 100)
