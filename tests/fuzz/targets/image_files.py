"""Images of every format that is read, changed as bytes and as what they are made of."""

import io
import os
import random
import struct
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Case

from dprotonet.data.image import decode_image, probed_extent, read_mask, read_picture
from dprotonet.data.image_memory import VARIABLE
from dprotonet.data.upload import UploadLimits, read_upload

MEGABYTES = 400
"""What one image may take in a campaign: below the limit that a worker has, so that ours is reached first."""

_UPLOADS = UploadLimits(megabytes=1.0, megapixels=20.0)
_SIZE = 16


class ImageFiles:
    """Files of a few hundred bytes, decoded as training images, uploads, masks, pictures, and by the scan."""

    def __init__(self, place: Path) -> None:
        os.environ[VARIABLE] = str(MEGABYTES)
        place.mkdir(parents=True, exist_ok=True)
        self.place, self.seeds = place, seeds()

    def draw(self, generator: random.Random) -> Case:
        kind = generator.choice(list(self.seeds))
        data = generator.choice(self.seeds[kind])
        others = [data for found in self.seeds.values() for data in found]
        pieces = _PIECES.get(kind)
        if pieces is not None and generator.random() < 0.6:
            data = pieces(generator, data)
            if generator.random() < 0.7:
                return Case(kind, data)
        return Case(kind, mutated(generator, data, others))

    def feed(self, case: Case) -> None:
        """By the sum of its bytes one reader or the other; a file that one refuses none may take."""
        _READERS[zlib.crc32(case.content) % len(_READERS)](case.content, self.place / "image")

    def left(self) -> Iterable[str]:
        (self.place / "image").unlink(missing_ok=True)
        return [path.name for path in self.place.iterdir()]


def _as_file(read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def reader(data: bytes, path: Path) -> object:
        path.write_bytes(data)
        return read(path)

    return reader


_READERS: tuple[Callable[[bytes, Path], object], ...] = (
    lambda data, path: decode_image(data, name="image", size=_SIZE),
    lambda data, path: read_upload(data, size=_SIZE, limits=_UPLOADS),
    lambda data, path: probed_extent(data, name="image"),
    _as_file(lambda path: read_mask(path, size=_SIZE)),
    _as_file(lambda path: read_picture(path, longest=64)),
)


def seeds() -> dict[str, list[bytes]]:
    """Small valid files by format."""
    colours = np.random.default_rng(0).integers(0, 256, (12, 17, 4), dtype=np.uint8)
    rgba = Image.fromarray(colours)
    rgb, grey = rgba.convert("RGB"), rgba.convert("L")
    deep = Image.fromarray(colours[..., 0].astype(np.uint16) * 257)
    floats = Image.fromarray(colours[..., 0].astype(np.float32))
    palette, exif = rgb.quantize(16), Image.Exif()
    exif[0x0112] = 6
    return {
        "png": [_saved(one, "PNG") for one in (rgba, rgb, grey, deep, palette, grey.convert("1"))]
        + [_saved(rgb, "PNG", exif=exif), _saved(palette, "PNG", transparency=3)],
        "jpeg": [_saved(one, "JPEG") for one in (rgb, grey, rgb.convert("CMYK"))]
        + [_saved(rgb, "JPEG", progressive=True), _saved(rgb, "JPEG", exif=exif, subsampling=0)],
        "webp": [_saved(rgb, "WEBP"), _saved(rgba, "WEBP", lossless=True), _moving(rgba, "WEBP")],
        "gif": [_saved(palette, "GIF"), _moving(rgb, "GIF")],
        "bmp": [_saved(one, "BMP") for one in (rgb, rgba, grey, palette)],
        "tiff": [_saved(one, "TIFF") for one in (rgb, rgba, grey, deep, floats, palette)]
        + [_saved(rgb, "TIFF", compression=name) for name in ("tiff_lzw", "tiff_adobe_deflate", "packbits")]
        + [_saved(rgb, "TIFF", compression="jpeg"), _saved(grey.convert("1"), "TIFF", compression="group4")],
        "ppm": [_saved(one, "PPM") for one in (rgb, grey, grey.convert("1"), deep.convert("I"))]
        + [b"P3 2 2 255 " + b"1 2 3 " * 4, b"P2 3 2 9\n# words\n1 2 3 4 5 6"],
    }


def _saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def _moving(image: Image.Image, kind: str) -> bytes:
    return _saved(image, kind, save_all=True, append_images=[image.rotate(90)])


def png_pieces(generator: random.Random, data: bytes) -> bytes:
    """Chunks changed, twice, elsewhere or gone; lengths and checksums are right again."""
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        chunks.append((data[at + 4 : at + 8], data[at + 8 : at + 8 + length]))
        at += 12 + length
    chunks = _shuffled(generator, chunks, _odd_chunk)
    parts = (struct.pack(">I", len(b)) + n + b + struct.pack(">I", zlib.crc32(n + b)) for n, b in chunks)
    return data[:8] + b"".join(parts)


_CHUNKS = (b"eXIf", b"tRNS", b"PLTE", b"zTXt", b"iCCP", b"acTL", b"fcTL", b"gAMA", b"IEND")


def _odd_chunk(generator: random.Random, chunk: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    name, body = chunk
    if name == b"IHDR" and generator.random() < 0.7:
        sides = [generator.choice((0, 1, 12, 17, 3000, 2**20, 2**31 - 1, 2**32 - 1)) for _ in range(2)]
        rest = [generator.choice((0, 1, 2, 3, 4, 6, 8, 16)) for _ in range(5)]
        return name, struct.pack(">II5B", *sides, *rest) if generator.random() < 0.5 else mutated(
            generator, body
        )
    if name == b"IDAT" and generator.random() < 0.7:
        with suppress(zlib.error):  # it was changed before
            return name, zlib.compress(mutated(generator, zlib.decompress(body)))
    if generator.random() < 0.3:
        name = generator.choice(
            (b"eXIf", b"tRNS", b"PLTE", b"zTXt", b"iCCP", b"acTL", b"fcTL", b"gAMA", b"IEND")
        )
    return name, mutated(generator, body)


def _shuffled(generator: random.Random, pieces: list, odd: Callable[..., object]) -> list:
    """One or two of the pieces another, twice, elsewhere or gone."""
    for _ in range(generator.choice((1, 1, 2))):
        if not pieces:
            break
        at, draw = generator.randrange(len(pieces)), generator.random()
        if draw < 0.6:
            pieces[at] = odd(generator, pieces[at])
        elif draw < 0.75:
            pieces.insert(generator.randrange(len(pieces) + 1), pieces[at])
        elif draw < 0.9:
            del pieces[at]
        else:
            pieces.insert(generator.randrange(len(pieces)), pieces.pop(at))
    return pieces


def jpeg_pieces(generator: random.Random, data: bytes) -> bytes:
    """Segments changed, twice, elsewhere or gone, with their lengths."""
    segments, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF and data[at + 1] != 0xDA:
        (length,) = struct.unpack_from(">H", data, at + 2)
        segments.append((data[at + 1], data[at + 4 : at + 2 + length]))
        at += 2 + length
    segments = _shuffled(generator, segments, _odd_segment)
    parts = (b"\xff" + bytes([n]) + struct.pack(">H", (len(b) + 2) % 65536) + b for n, b in segments)
    return data[:2] + b"".join(parts) + data[at:]


_SEGMENTS = (0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xEE, 0xF7)


def _odd_segment(generator: random.Random, segment: tuple[int, bytes]) -> tuple[int, bytes]:
    kind, body = segment
    if generator.random() < 0.3:
        kind = generator.choice(
            (0xC0, 0xC1, 0xC2, 0xC3, 0xC4, 0xC9, 0xDB, 0xDD, 0xE0, 0xE1, 0xE2, 0xEE, 0xF7)
        )
    return kind, mutated(generator, body)


_ENTRIES = (  # tags, kinds, counts and values
    (256, 257, 258, 259, 262, 273, 277, 278, 279, 317, 322, 323, 324, 338, 339),
    (1, 2, 3, 4, 5, 12, 13, 16, 99),
    (0, 1, 2, 5, 1000, 2**31, 2**32 - 1),
    (0, 1, 2, 3, 5, 7, 8, 16, 32, 4096, 32773, 2**31, 2**32 - 1),
)


def tiff_pieces(generator: random.Random, data: bytes) -> bytes:
    """Entries of the directory with other tags, kinds, counts and values."""
    changed = bytearray(data)
    order = "<" if data[:2] == b"II" else ">"
    (at,) = struct.unpack_from(order + "I", data, 4)
    (count,) = struct.unpack_from(order + "H", data, at)
    for _ in range(generator.choice((1, 1, 2, 3))):
        entry = at + 2 + 12 * generator.randrange(count)
        fields = list(struct.unpack_from(order + "HHII", data, entry))
        which = generator.randrange(4)
        fields[which] = generator.choice(_ENTRIES[which])
        struct.pack_into(order + "HHII", changed, entry, *fields)
    return bytes(changed)


def riff_pieces(generator: random.Random, data: bytes) -> bytes:
    """Chunks of a WebP changed, twice, elsewhere or gone; the lengths are right again."""
    chunks, at = [], 12
    while at + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 4)
        chunks.append((data[at : at + 4], data[at + 8 : at + 8 + length]))
        at += 8 + length + length % 2
    chunks = _shuffled(generator, chunks, lambda g, one: (one[0], mutated(g, one[1])))
    body = b"".join(n + struct.pack("<I", len(b)) + b + b"\0" * (len(b) % 2) for n, b in chunks)
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


_PIECES = {"png": png_pieces, "jpeg": jpeg_pieces, "tiff": tiff_pieces, "webp": riff_pieces}
