"""Every kind of pixels that a folder may hold."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from test_data_folder import encoded, plain

from classwise.data.sources import open_data

__all__ = ["plain"]  # a fixture


def chunk(kind, content):
    tail = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + tail


def colour_png_of_16_bits():
    row = b"\0" + struct.pack(">3H", 65535, 32768, 0) * 8
    head = struct.pack(">IIBBBBB", 8, 8, 16, 2, 0, 0, 0)
    packed = chunk(b"IDAT", zlib.compress(row * 8))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + packed + chunk(b"IEND", b"")


def palette():
    picture = Image.new("P", (8, 8), 1)
    picture.putpalette([0, 0, 0, 9, 80, 7])
    return picture


def grey16(value):
    return Image.fromarray(np.full((8, 8), value, np.uint16))


MODES = {
    "grey.png": (encoded(Image.new("L", (8, 8), 77), "PNG"), (77, 77, 77), "grey"),
    "bits.png": (encoded(Image.new("1", (8, 8), 1), "PNG"), (255, 255, 255), "grey"),
    "grey.pgm": (b"P5\n8 8\n255\n" + b"M" * 64, (77, 77, 77), "grey"),
    "half.png": (
        encoded(Image.new("RGBA", (8, 8), (255, 0, 0, 128)), "PNG"),
        (255, 127, 127),
        "transparent",
    ),
    "glass.png": (encoded(Image.new("LA", (8, 8), (0, 0)), "PNG"), (255,) * 3, "transparent"),
    "p.png": (encoded(palette(), "PNG"), (9, 80, 7), "palette"),
    "pt.png": (encoded(palette(), "PNG", transparency=1), (255, 255, 255), "palette"),
    "p.gif": (encoded(palette(), "GIF"), (9, 80, 7), "palette"),
    "deep.png": (encoded(grey16(65535), "PNG"), (255, 255, 255), "16-bit"),
    "deep2.png": (encoded(grey16(128 * 257), "PNG"), (128, 128, 128), "16-bit"),
    "deep.tif": (encoded(grey16(257), "TIFF"), (1, 1, 1), "16-bit"),
    "deep.pgm": (b"P5\n8 8\n65535\n" + b"\x80\x80" * 64, (128, 128, 128), "16-bit"),
    "deep.ppm": (b"P6\n8 8\n65535\n" + b"\xff\xff\x80\x80\0\0" * 64, (255, 128, 0), "16-bit"),
    "deepc.png": (colour_png_of_16_bits(), (255, 128, 0), "16-bit"),
    "ink.jpg": (
        encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100),
        (255, 0, 0),
        "CMYK",
    ),
    "plain.bmp": (encoded(Image.new("RGB", (8, 8), (1, 2, 3)), "BMP"), (1, 2, 3), None),
}


@pytest.mark.parametrize("name", MODES)
def test_every_kind_of_pixels_becomes_rgb_and_is_counted(plain, name, capsys):
    content, colour, kind = MODES[name]
    (plain / "cat" / name).write_bytes(content)
    source = open_data(f"folder:{plain}")
    pixels = torch.cat([source.train.images, source.test.images]).flatten(2).int()
    wanted = torch.tensor(colour)[:, None].int()
    assert bool(((pixels - wanted).abs() <= 1).flatten(1).all(1).any())
    told = capsys.readouterr().err
    assert ("converted to RGB" in told) == bool(kind)
    assert f"converted to RGB: 1 {kind}" in told or not kind


def test_photos_are_turned_upright(tmp_path):
    picture = Image.new("RGB", (6, 4), (0, 0, 0))
    picture.paste((255, 255, 255), (0, 0, 6, 2))  # bright upper half
    for name in "ab":
        for i in range(2):
            path = tmp_path / "x" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            exif = Image.Exif()
            exif[0x0112] = 6  # the camera was held sideways
            picture.save(path, exif=exif)
    image = open_data(f"folder:{tmp_path / 'x'}").train.images[0]
    assert image.shape == (3, 6, 4)
    assert image[0, :, 3].tolist() == [255] * 6
    assert image[0, :, 0].tolist() == [0] * 6
