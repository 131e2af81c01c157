"""Small files of enormous images, one for each way in which a file is read."""

import io
import struct
import zlib
from collections.abc import Callable, Iterable

import numpy as np
from PIL import Image

DEFLATED, RLE, JPEG = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.5", "1.2.840.10008.1.2.4.50"
JPEG_2000 = "1.2.840.10008.1.2.4.90"
RAW = "1.2.840.10008.1.2.1"


def png(width: int, height: int, *, kind: int = 6, bits: int = 8, before: bytes = b"") -> bytes:
    """A PNG of nothing; `kind` is its colour type: 0 grey, 2 RGB, 3 palette, 6 RGBA."""
    samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[kind]
    row = b"\0" * (1 + width * samples * bits // 8)
    header = struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0)
    chunks = [(b"IHDR", header), *([(b"PLTE", bytes(range(6)))] if kind == 3 else [])]
    chunks += [(b"eXIf", before)] if before else []
    body = packed(row for _ in range(height))
    chunks += [(b"IDAT", body), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, content) for name, content in chunks)


def packed(pieces: Iterable[bytes], *, raw: bool = False) -> bytes:
    """Deflated piece by piece: the whole never exists."""
    squeeze = zlib.compressobj(1, zlib.DEFLATED, -15 if raw else 15)
    return b"".join([*(squeeze.compress(piece) for piece in pieces), squeeze.flush()])


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def turned() -> bytes:
    """EXIF that says a quarter turn."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return exif.tobytes().removeprefix(b"Exif\0\0")


def by_pillow(mode: str, kind: str, width: int, height: int, **options: object) -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (width, height)).save(stream, kind, **options)
    return stream.getvalue()


def tiled_tiff(width: int, height: int, tile: int, rows: int | None = None) -> bytes:
    """A small TIFF whose one tile, deflated, is enormous, or says so and holds fewer rows."""
    body = packed(b"\0" * tile for _ in range(tile if rows is None else rows))
    entries = [
        *((256, 3, width), (257, 3, height), (258, 3, 8), (259, 3, 8), (262, 3, 1), (277, 3, 1)),
        *((322, 4, tile), (323, 4, tile), (324, 4, 8 + 2 + 12 * 10 + 4), (325, 4, len(body))),
    ]
    fields = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in entries)
    return b"II*\0" + struct.pack("<I", 8) + struct.pack("<H", len(entries)) + fields + b"\0" * 4 + body


def dicom(
    rows: int,
    columns: int,
    *,
    syntax: str = RAW,
    bits: int = 8,
    frames: int = 1,
    pixels: bytes | None = None,
    pieces: Iterable[bytes] | None = None,
    extra: bytes = b"",
) -> bytes:
    """A DICOM file by hand: `pixels` as they are stored, or `pieces` that are deflated on their way.

    `extra` are encoded elements that come before those of the image.
    """
    said = [(0x0028, 0x0002, b"US", struct.pack("<H", 1)), (0x0028, 0x0004, b"CS", b"MONOCHROME2 ")]
    said += [(0x0028, 0x0008, b"IS", even(str(frames).encode()))]
    for element, value in ((0x10, rows), (0x11, columns), (0x100, bits), (0x101, bits), (0x102, bits - 1)):
        said.append((0x0028, element, b"US", struct.pack("<H", value)))
    said.append((0x0028, 0x0103, b"US", struct.pack("<H", 0)))
    head = extra + b"".join(_element(*one) for one in said)
    head += struct.pack("<HH", 0x7FE0, 0x0010) + b"OW\0\0"
    if pieces is not None:
        total = rows * columns * frames * bits // 8
        body = packed(_chained(head + struct.pack("<I", total), pieces), raw=True)
    elif syntax in (RAW, DEFLATED):
        body = head + struct.pack("<I", len(pixels or b"")) + (pixels or b"")
        body = packed([body], raw=True) if syntax == DEFLATED else body
    else:
        one = even(pixels or b"")
        items = b"\xfe\xff\x00\xe0\0\0\0\0" + b"\xfe\xff\x00\xe0" + struct.pack("<I", len(one)) + one
        body = head + b"\xff\xff\xff\xff" + items + b"\xfe\xff\xdd\xe0\0\0\0\0"
    return b"\0" * 128 + b"DICM" + _meta(syntax) + body


def rle(rows: int, columns: int, *, times: int = 1) -> bytes:
    """One segment of zeros, `times` as long as the frame."""
    runs = rows * columns * times // 128 + 1
    return struct.pack("<16L", 1, 64, *[0] * 14) + b"\x81\0" * runs


def nested(count: int) -> bytes:
    """A sequence of so many empty items, of undefined length: parsed at once by every reader."""
    items = b"\xfe\xff\x00\xe0\0\0\0\0" * count
    return (
        struct.pack("<HH", 0x0008, 0x1140) + b"SQ\0\0\xff\xff\xff\xff" + items + b"\xfe\xff\xdd\xe0\0\0\0\0"
    )


def even(value: bytes) -> bytes:
    return value + b" " * (len(value) % 2)


def _chained(first: bytes, rest: Iterable[bytes]) -> Iterable[bytes]:
    yield first
    yield from rest


def _meta(syntax: str) -> bytes:
    name = syntax.encode() + b"\0" * (len(syntax) % 2)
    body = _element(2, 0x10, b"UI", name)
    return _element(2, 0, b"UL", struct.pack("<I", len(body))) + body


def _element(group: int, element: int, kind: bytes, value: bytes) -> bytes:
    return struct.pack("<HH", group, element) + kind + struct.pack("<H", len(value)) + value


def grey(size: int) -> bytes:
    """A small DICOM image with a ramp in it."""
    return dicom(size, size, pixels=np.arange(size * size, dtype=np.uint8).tobytes())


def jpeg(width: int, height: int) -> bytes:
    """One whose coefficients are all kept until the last scan."""
    return by_pillow("RGB", "JPEG", width, height, progressive=True, subsampling=0)


def deflated(side: int, count: int, *, bits: int = 8, frames: int = 1) -> bytes:
    return dicom(side, side, bits=bits, frames=frames, syntax=DEFLATED, pieces=zeros(count))


_ZEROS = b"\0" * 1_000_000


def zeros(count: int) -> Iterable[bytes]:
    return (_ZEROS for _ in range(count // len(_ZEROS) + 1))


def large_webp() -> bytes:
    """The largest canvas that the format knows, and no picture."""
    body = b"VP8X" + struct.pack("<I", 10) + b"\x10\0\0\0" + (16_382).to_bytes(3, "little") * 2
    body += b"VP8L" + struct.pack("<I", 6) + b"\x2f" + (16_382 | 16_382 << 14).to_bytes(4, "little") + b"\0"
    return b"RIFF" + struct.pack("<I", 4 + len(body)) + b"WEBP" + body


def boxed(width: int, height: int, *, before: int = 6_000) -> bytes:
    """A JPEG 2000 whose code stream stands behind a box of so many bytes."""
    data = by_pillow("L", "JPEG2000", width, height, no_jp2=False)
    at = data.index(b"jp2c") - 4
    return data[:at] + struct.pack(">I", 8 + before) + b"free" + bytes(before) + data[at:]


def disguised(width: int, height: int) -> bytes:
    """A JPEG with a remark that looks like a JPEG 2000 of 8 x 8 pixels."""
    data = by_pillow("L", "JPEG", width, height)
    remark = b"\xff\x4f\xff\x51" + struct.pack(">HH8IH", 41, 0, 8, 8, 0, 0, 8, 8, 0, 0, 1) + b"\7\1\1"
    return data[:2] + b"\xff\xfe" + struct.pack(">H", 2 + len(remark)) + remark + data[2:]


ONE_STRIP = {"compression": "tiff_adobe_deflate", "strip_size": 2**31 - 1}
HEAVY: dict[str, Callable[[], bytes]] = {
    "png rgba 169 MP": lambda: png(13_000, 13_000),
    "png rgba 100 MP turned": lambda: png(10_000, 10_000, before=turned()),
    "png palette 49 MP turned": lambda: png(7_000, 7_000, kind=3, before=turned()),
    "png 16 bit 169 MP": lambda: png(13_000, 13_000, kind=0, bits=16),
    "png 16 bit 49 MP": lambda: png(7_000, 7_000, kind=0, bits=16),
    "png 1 x 4,000,000": lambda: png(1, 4_000_000, kind=0),
    "png 4,000,000 x 1": lambda: png(4_000_000, 1, kind=0),
    "jpeg progressive 100 MP": lambda: jpeg(10_000, 10_000),
    "jpeg progressive 49 MP": lambda: jpeg(7_000, 7_000),
    "jpeg cmyk 60 MP": lambda: by_pillow("CMYK", "JPEG", 10_000, 6_000),
    "tiff deflate one strip 100 MP": lambda: by_pillow("RGB", "TIFF", 10_000, 10_000, **ONE_STRIP),
    "tiff deflate one strip 49 MP": lambda: by_pillow("RGB", "TIFF", 7_000, 7_000, **ONE_STRIP),
    "tiff float 49 MP": lambda: by_pillow("F", "TIFF", 7_000, 7_000, compression="tiff_adobe_deflate"),
    "tiff tile of 1.6 GB": lambda: tiled_tiff(64, 64, 40_000),
    "tiff tile that states 1.6 GB": lambda: tiled_tiff(64, 64, 40_000, rows=64),
    "tiff tile of 0.4 GB": lambda: tiled_tiff(64, 64, 20_000),
    "webp 100 MP": lambda: by_pillow("RGB", "WEBP", 10_000, 10_000, method=0),
    "webp 49 MP": lambda: by_pillow("RGBA", "WEBP", 7_000, 7_000, lossless=True, method=0, quality=0),
    "webp 268 MP": large_webp,
    "gif 169 MP": lambda: by_pillow("P", "GIF", 13_000, 13_000),
    "gif 49 MP": lambda: by_pillow("P", "GIF", 7_000, 7_000),
    "bmp 25 MP": lambda: by_pillow("RGB", "BMP", 5_000, 5_000),
    "ppm 25 MP": lambda: by_pillow("RGB", "PPM", 5_000, 5_000),
    "dicom raw 16 bit 25 MP": lambda: dicom(5_000, 5_000, bits=16, pixels=bytes(50_000_000)),
    "dicom raw of 1,000 frames": lambda: dicom(400, 400, frames=1000, pixels=bytes(160_000_000)),
    "dicom deflated 300 MB behind 8 x 8": lambda: dicom(8, 8, syntax=DEFLATED, pieces=zeros(3 * 10**8)),
    "dicom deflated 60,000 x 60,000": lambda: deflated(60_000, 3 * 10**8),
    "dicom deflated 16 bit 49 MP": lambda: deflated(7_000, 98 * 10**6, bits=16),
    "dicom deflated 300 frames": lambda: deflated(1_000, 3 * 10**8, frames=300),
    "dicom RLE 100 times too long": lambda: dicom(1000, 1000, syntax=RLE, pixels=rle(1000, 1000, times=100)),
    "dicom RLE 49 MP": lambda: dicom(7_000, 7_000, syntax=RLE, pixels=rle(7_000, 7_000)),
    "dicom jpeg 49 MP behind 8 x 8": lambda: dicom(8, 8, syntax=JPEG, pixels=jpeg(7_000, 7_000)),
    "dicom jpeg 49 MP disguised as 8 x 8": lambda: dicom(8, 8, syntax=JPEG, pixels=disguised(7_000, 7_000)),
    "dicom jpeg 2000 49 MP behind 8 x 8": lambda: dicom(8, 8, syntax=JPEG_2000, pixels=boxed(7_000, 7_000)),
    "dicom of 2 million empty items": lambda: dicom(8, 8, pixels=bytes(64), extra=nested(2_000_000)),
}
"""The same at several sizes: the large ones as they were in the attack, smaller ones for the tests."""
