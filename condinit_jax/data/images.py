"""One image, from encoded bytes to a square of uint8; and whole batches, from there to float32.

What changes an image's size (decoding, resizing, the inception crop) works on one image with
Pillow. What keeps it (the pad crop, the flip, normalisation) works on batches with NumPy. Neither
draws random numbers: every random choice is read off uniform numbers that the caller passes.
"""

import io
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Float32, UInt8
from PIL import Image

from condinit_jax.data.corrupt import UndecodableError

# Formats that Pillow decodes itself; others (EPS, for one) would start another program.
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
# A narrower strip is cut to this ratio first: resizing its short side would need a huge picture.
_LARGEST_RATIO = 16
_CROP_ATTEMPTS = 10
_AREA = (0.08, 1.0)
_LOG_RATIO = (math.log(3 / 4), math.log(4 / 3))
# Uniform numbers that `inception_box` reads: area and ratio per attempt, then left and top.
INCEPTION_DRAWS = 2 * _CROP_ATTEMPTS + 2


def decode(image: bytes | np.ndarray, channels: int) -> Image.Image:
    """Decodes an image and brings it to grayscale or RGB.

    Transparency is dropped, 16-bit images keep their upper 8 bits, and animations their first
    picture. EXIF orientation is not applied.

    Args:
        image: an encoded image in one of `FORMATS`, or uint8 [height, width, 1, 3 or 4].
        channels: 1 for grayscale, 3 for RGB.

    Returns:
        The decoded image, of mode "L" or "RGB".

    Raises:
        UndecodableError: where the bytes are no such image, are damaged or incomplete, or hold
            more pixels than Pillow's `Image.MAX_IMAGE_PIXELS` (a decompression bomb).
    """
    mode = "L" if channels == 1 else "RGB"
    if isinstance(image, np.ndarray):
        return Image.fromarray(image.squeeze(-1) if image.shape[-1] == 1 else image).convert(mode)
    # Decoders fail on damaged bytes in ways that nobody lists (SyntaxError and struct.error among
    # them), and a damaged file must not stop a run; running out of memory is no property of it.
    try:
        opened = Image.open(io.BytesIO(image), formats=FORMATS)
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and opened.width * opened.height > limit:
            raise UndecodableError(f"{opened.width} x {opened.height} pixels, limit {limit}")
        opened.load()
        return _convert(opened, mode)
    except (MemoryError, UndecodableError):
        raise
    except Image.UnidentifiedImageError:
        raise UndecodableError(f"not an image in a known format ({len(image)} bytes)") from None
    except Exception as error:
        raise UndecodableError.of(error) from error


def _convert(image: Image.Image, mode: str) -> Image.Image:
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode == "P" and "transparency" in image.info:
        # Pillow warns where such a palette is converted in one go.
        image = image.convert("RGBA")
    return image if image.mode == mode else image.convert(mode)


def resize_and_centre(image: Image.Image, side: int, keep: float = 1.0) -> Image.Image:
    """Resizes the shorter side to `side / keep` pixels and cuts out the central square.

    Args:
        image: any size.
        side: side of the result, pixels.
        keep: part of the resized shorter side that is kept, in (0, 1].

    Returns:
        A square image; resizing is bicubic with antialiasing.
    """
    width, height = image.size
    longest = _LARGEST_RATIO * min(width, height)
    if max(width, height) > longest:
        cut_width, cut_height = min(width, longest), min(height, longest)
        left, top = (width - cut_width) // 2, (height - cut_height) // 2
        image = image.crop((left, top, left + cut_width, top + cut_height))
        width, height = image.size
    scale = round(side / keep) / min(width, height)
    width, height = max(side, round(width * scale)), max(side, round(height * scale))
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    if (width, height) == (side, side):
        return image
    left, top = (width - side) // 2, (height - side) // 2
    return image.crop((left, top, left + side, top + side))


def inception_box(
    width: int, height: int, draws: Float[np.ndarray, " draws"]
) -> tuple[int, int, int, int]:
    """The random part of an image that the inception crop keeps.

    Its area is uniform in 8 to 100 % of the image's and the logarithm of its aspect ratio uniform
    between those of 3/4 and 4/3; the first of ten attempts that fits is taken, and otherwise the
    largest central part whose ratio is in that range.

    Args:
        width: of the image, pixels.
        height: of the image, pixels.
        draws: at least `INCEPTION_DRAWS` uniform numbers in [0, 1).

    Returns:
        left, top, right, bottom in pixels.

    References:
        Szegedy et al., "Going Deeper with Convolutions", 2014, arXiv:1409.4842, section 6.
    """
    for area, ratio in draws[: 2 * _CROP_ATTEMPTS].reshape(-1, 2):
        target = width * height * (_AREA[0] + (_AREA[1] - _AREA[0]) * area)
        aspect = math.exp(_LOG_RATIO[0] + (_LOG_RATIO[1] - _LOG_RATIO[0]) * ratio)
        box_width = round(math.sqrt(target * aspect))
        box_height = round(math.sqrt(target / aspect))
        if 0 < box_width <= width and 0 < box_height <= height:
            left = int((width - box_width + 1) * draws[2 * _CROP_ATTEMPTS])
            top = int((height - box_height + 1) * draws[2 * _CROP_ATTEMPTS + 1])
            return left, top, left + box_width, top + box_height
    box_width = min(width, max(1, round(height * math.exp(_LOG_RATIO[1]))))
    box_height = min(height, max(1, round(width / math.exp(_LOG_RATIO[0]))))
    left, top = (width - box_width) // 2, (height - box_height) // 2
    return left, top, left + box_width, top + box_height


def inception_crop(
    image: Image.Image, side: int, draws: Float[np.ndarray, " draws"]
) -> Image.Image:
    """Cuts out `inception_box` and resizes it to a square, bicubic with antialiasing.

    Args:
        image: any size.
        side: side of the result, pixels.
        draws: see `inception_box`.

    Returns:
        A square image.
    """
    # Not `resize(box=...)`, which lets pixels outside the box into the result's border.
    part = image.crop(inception_box(*image.size, draws))
    return part.resize((side, side), Image.Resampling.BICUBIC)


def as_array(image: Image.Image) -> UInt8[np.ndarray, "height width channels"]:
    """The pixels of a decoded image, with a channel axis also where it is grayscale.

    Args:
        image: of mode "L" or "RGB".

    Returns:
        uint8 [height, width, 1 or 3].
    """
    pixels = np.asarray(image)
    return pixels[..., None] if pixels.ndim == 2 else pixels


def pad_crop(
    images: UInt8[np.ndarray, "batch side side channels"], draws: Float[np.ndarray, "batch 2"]
) -> UInt8[np.ndarray, "batch side side channels"]:
    """Pads every side with zeros by an eighth, and cuts a square of the old size out of each image.

    Args:
        images: square images.
        draws: uniform numbers in [0, 1), for the row and the column of each image's corner.

    Returns:
        Images of the same shape.
    """
    side = images.shape[1]
    margin = side // 8
    padded = np.pad(images, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    corners = (draws * (2 * margin + 1)).astype(np.intp)
    span = np.arange(side)
    rows, columns = corners[:, 0, None] + span, corners[:, 1, None] + span
    return padded[np.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None, :]]


def flip(
    images: UInt8[np.ndarray, "batch height width channels"], draws: Float[np.ndarray, " batch"]
) -> UInt8[np.ndarray, "batch height width channels"]:
    """Mirrors an image left to right where its uniform number is below 1/2.

    Args:
        images: any size.
        draws: uniform numbers in [0, 1), one per image.

    Returns:
        Images of the same shape.
    """
    return np.where((draws < 0.5)[:, None, None, None], images[:, :, ::-1], images)


def normalise(
    images: UInt8[np.ndarray, "batch height width channels"],
    mean: Sequence[float],
    std: Sequence[float],
    out: Float32[np.ndarray, "batch height width channels"],
) -> None:
    """Writes `(images / 255 - mean) / std`.

    Args:
        images: pixels in [0, 255].
        mean: one value per channel, or a single one, in units of [0, 1].
        std: like `mean`; positive.
        out: where the result goes, so that the parts of a batch are not copied once more.
    """
    scale = 1 / (255 * np.asarray(std, np.float64))
    shift = -np.asarray(mean, np.float64) / np.asarray(std, np.float64)
    np.multiply(images, scale.astype(np.float32), out=out)
    out += shift.astype(np.float32)
