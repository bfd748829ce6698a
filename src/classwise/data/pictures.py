"""One image file, of whatever kind, as RGB bytes of one size; needs Pillow."""

from __future__ import annotations

import io
import stat
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from classwise.errors import ClasswiseError
from classwise.limits import MOST_FILE_BYTES, MOST_PIXELS

Fit: TypeAlias = Literal["resize", "crop"]
SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".ppm", ".pgm", ".pbm", ".pnm"),
    *(".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp", ".tga"),
)
# By content, whatever the suffix says; nothing that would start another program (EPS) is tried.
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "DIB", "GIF", "TIFF", "WEBP", "TGA")
TURNED = (5, 6, 7, 8)  # EXIF orientations that swap height and width
ORIENTATION = 0x0112


class NotAnImage(Exception):
    """A file that cannot be decoded, with the reason in a few words."""


def pillow(what: str) -> Any:
    """Import Pillow when it is first needed."""
    try:
        from PIL import Image, ImageOps  # noqa: F401  (ImageOps is used below, and may be missing)
    except ImportError:
        raise ClasswiseError(f'{what} needs Pillow; run: pip install "classwise[images]"') from None
    Image.init()  # once, before threads ask for a format
    return Image


def picture_size(path: Path) -> tuple[int, int]:
    """Height and width as seen upright, from the header alone."""
    image_module = pillow("reading images")
    try:
        _check_file(path)
        with image_module.open(path, formats=FORMATS) as picture:
            _check_pixels(picture.size)
            width, height = picture.size
            turned = picture.getexif().get(ORIENTATION) in TURNED
    except NotAnImage:
        raise
    except Exception as reason:  # decoders raise whatever the broken bytes lead them to
        raise NotAnImage(_words(reason)) from None
    return (width, height) if turned else (height, width)


def read_picture(
    source: Path | bytes, size: tuple[int, int] | None, fit: Fit
) -> tuple[NDArray[np.uint8], str]:
    """Decode a file, or its bytes, to RGB planes (3×height×width); say what kind of pixels it had.

    Without a size it has its own. `resize` scales both sides to the size; `crop` scales until the
    size is covered and cuts out the middle. Transparent pixels are laid on white, 16 bits are
    scaled to 8.
    """
    image_module = pillow("reading images")
    from PIL import ImageOps

    try:
        if isinstance(source, Path):
            _check_file(source)
        file = source if isinstance(source, Path) else io.BytesIO(source)
        with image_module.open(file, formats=FORMATS) as picture:
            _check_pixels(picture.size)
            kind = pixel_kind(picture)
            picture.load()
            upright = ImageOps.exif_transpose(picture)
            colour = to_rgb(upright)
            box = colour.size if size is None else (size[1], size[0])
            if colour.size != box:
                way = image_module.Resampling.BILINEAR
                colour = (
                    ImageOps.fit(colour, box, way) if fit == "crop" else colour.resize(box, way)
                )
            pixels = np.asarray(colour, np.uint8).transpose(2, 0, 1)
    except NotAnImage:
        raise
    except Exception as reason:  # as above
        raise NotAnImage(_words(reason)) from None
    return pixels, kind


def _check_file(path: Path) -> None:
    """Refuse what is no plain file (a pipe would be waited for), or larger than any picture."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise NotAnImage("no plain file")
    if found.st_size > MOST_FILE_BYTES:
        raise NotAnImage(f"{found.st_size} bytes; {MOST_FILE_BYTES} are the most")


def _check_pixels(size: tuple[int, int]) -> None:
    """Refuse a picture that would fill the memory, by its header, before it is decoded."""
    if size[0] * size[1] > MOST_PIXELS:
        raise NotAnImage(f"{size[0]}×{size[1]} pixels; {MOST_PIXELS} are the most")


def pixel_kind(picture: Any) -> str:
    """Name the kind of pixels of an opened file; plain 8-bit RGB is `RGB`."""
    raw = " ".join(str(tile[-1]) for tile in picture.tile)
    if ";16" in raw or "65535" in raw or picture.mode.startswith("I"):
        return "16-bit"
    if picture.mode == "P":
        return "palette"
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        return "transparent"
    if picture.mode in ("L", "1"):
        return "grey"
    return str(picture.mode)


def to_rgb(picture: Any) -> Any:
    """Convert any Pillow image to 8-bit RGB."""
    image_module = pillow("reading images")
    if picture.mode.startswith("I"):
        return image_module.fromarray(_from_16_bits(np.asarray(picture))).convert("RGB")
    if picture.mode == "F":
        raise NotAnImage("it has floating-point pixels, whose range is not known")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        glass = picture.convert("RGBA")
        paper = image_module.new("RGBA", glass.size, "white")
        return image_module.alpha_composite(paper, glass).convert("RGB")
    return picture.convert("RGB")


def _from_16_bits(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    whole = pixels.astype(np.int64)
    if whole.min() < 0 or whole.max() > 65535:
        raise NotAnImage(f"its pixels run from {whole.min()} to {whole.max()}, beyond 16 bits")
    return ((whole + 128) // 257).astype(np.uint8)  # 65535 = 255 · 257, to the nearest


def _words(reason: Exception) -> str:
    """Pillow's words without the path, which the caller prints himself."""
    words = str(reason).splitlines()[0] if str(reason) else type(reason).__name__
    if "cannot identify" in words:
        return "no known image format"
    return words
