"""DICOM files: raw, deflated, run length and JPEG, changed in their elements and their streams."""

import io
import os
import random
import struct
import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.mutation import mutated
from tests.fuzz.target import Case
from tests.fuzz.targets.image_files import MEGABYTES

from dprotonet.data.image import decode_image, probed_extent, read_picture
from dprotonet.data.image_memory import VARIABLE
from dprotonet.data.upload import UploadLimits, read_upload

_HEAD = 132
_RAW, _IMPLICIT, _BIG = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2", "1.2.840.10008.1.2.2"
_DEFLATED, _RLE = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2.5"
_JPEG, _JPEG_2000 = "1.2.840.10008.1.2.4.50", "1.2.840.10008.1.2.4.90"
_LIMITS = UploadLimits(megabytes=1.0, megapixels=20.0)
_KINDS = (b"US", b"SS", b"UL", b"IS", b"DS", b"OB", b"OW", b"SQ", b"UN", b"FD", b"CS", b"UI", b"AT", b"OF")

_NUMBERS = (
    *(b"", b"0", b"-1", b"1e400", b"nan", b"inf", b"1e-320", b"1\\2\\3", b"x", "٣".encode()),
    b"9" * 40,
)

Element = tuple[int, int, bytes, bytes]


class DicomFiles:
    """Files of a few hundred bytes; elements are drawn first, so that most lengths are right."""

    def __init__(self, place: Path) -> None:
        os.environ[VARIABLE] = str(MEGABYTES)
        place.mkdir(parents=True, exist_ok=True)
        self.place = place

    def draw(self, generator: random.Random) -> Case:
        kind = generator.choice(list(_SYNTAXES))
        elements = _elements(generator)
        for _ in range(generator.choice((0, 1, 1, 2, 3))):
            _change(generator, elements)
        data = _file(generator, kind, elements)
        return Case(kind, mutated(generator, data) if generator.random() < 0.4 else data)

    def feed(self, case: Case) -> None:
        reader = zlib.crc32(case.content) % 4
        if reader == 0:
            read_upload(case.content, size=16, limits=_LIMITS)
        elif reader == 1:
            probed_extent(case.content, name="image.dcm")
        elif reader == 2:
            decode_image(case.content, name="image.dcm", size=16)
        else:
            path = self.place / "image.dcm"
            path.write_bytes(case.content)
            read_picture(path, longest=64)

    def left(self) -> Iterable[str]:
        (self.place / "image.dcm").unlink(missing_ok=True)
        return [path.name for path in self.place.iterdir()]


_SYNTAXES = {
    "raw": _RAW,
    "implicit": _IMPLICIT,
    "big endian": _BIG,
    "deflated": _DEFLATED,
    "run length": _RLE,
    "jpeg": _JPEG,
    "jpeg 2000": _JPEG_2000,
}


def _elements(generator: random.Random) -> list[Element]:
    bits = generator.choice((8, 8, 16, 32))
    colours = generator.choice((1, 1, 3))
    short = struct.Struct("<H").pack
    what = generator.choice((b"MONOCHROME1", b"MONOCHROME2")) if colours == 1 else b"RGB "
    found = [
        (0x0028, 0x0002, b"US", short(colours)),
        (0x0028, 0x0004, b"CS", what),
        (0x0028, 0x0006, b"US", short(generator.choice((0, 1)))),
        (0x0028, 0x0008, b"IS", str(generator.choice((1, 1, 2, 5))).encode()),
        (0x0028, 0x0010, b"US", short(6)),
        (0x0028, 0x0011, b"US", short(8)),
        (0x0028, 0x0100, b"US", short(bits)),
        (0x0028, 0x0101, b"US", short(generator.choice((bits, bits, 12)))),
        (0x0028, 0x0102, b"US", short(bits - 1)),
        (0x0028, 0x0103, b"US", short(generator.choice((0, 0, 1)))),
        (0x0028, 0x1050, b"DS", b"100"),
        (0x0028, 0x1051, b"DS", b"200"),
        (0x0028, 0x1052, b"DS", b"-10"),
        (0x0028, 0x1053, b"DS", b"1.5"),
        (0x0010, 0x0010, b"PN", b"Doe^Jane"),
    ]
    return [found[number] for number in sorted(range(len(found)), key=lambda n: found[n][:2])]


def _change(generator: random.Random, elements: list[Element]) -> None:
    """An element with another value or kind, twice, or gone."""
    if not elements:
        return
    at, draw = generator.randrange(len(elements)), generator.random()
    group, element, kind, value = elements[at]
    if draw < 0.12:
        del elements[at]
    elif draw < 0.2:
        elements.insert(at, elements[at])
    elif draw < 0.35:
        elements[at] = (group, element, generator.choice(_KINDS), value)
    elif kind == b"US":
        new = struct.pack("<H", generator.choice((0, 1, 2, 3, 7, 9, 12, 16, 64, 255, 4000, 65535)))
        elements[at] = (group, element, kind, new * generator.choice((1, 1, 1, 2)))
    elif kind in (b"DS", b"IS"):
        words = (
            b"",
            b"0",
            b"-1",
            b"1e400",
            b"nan",
            b"inf",
            b"1e-320",
            b"1\\2\\3",
            b"x",
            "٣".encode(),
            b"9" * 40,
        )
        elements[at] = (group, element, kind, generator.choice(words))
    else:
        elements[at] = (group, element, kind, mutated(generator, value))


def _file(generator: random.Random, kind: str, elements: list[Element]) -> bytes:
    syntax = _SYNTAXES[kind]
    order = ">" if kind == "big endian" else "<"
    body = b"".join(_encoded(one, order, explicit=kind != "implicit") for one in elements)
    pixels = np.random.default_rng(generator.randrange(4)).integers(0, 256, 600, dtype=np.uint8).tobytes()
    if kind in ("run length", "jpeg", "jpeg 2000"):
        body += _in_items(generator, _stream(generator, kind, pixels))
    else:
        length = generator.choice((48, 96, 96, 144, 192, 600, 47))
        said = length if generator.random() < 0.9 else generator.choice((0, 2**31, 2**32 - 1))
        head = struct.pack(order + "HH", 0x7FE0, 0x0010)
        head += (
            struct.pack(order + "I", said)
            if kind == "implicit"
            else b"OW\0\0" + struct.pack(order + "I", said)
        )
        body += head + pixels[:length]
    if kind == "deflated":
        if generator.random() < 0.3:
            body = mutated(generator, body)
        if generator.random() < 0.05:
            body += bytes(generator.choice((10_000, 3_000_000)))
        squeeze = zlib.compressobj(6, zlib.DEFLATED, -zlib.MAX_WBITS)
        body = squeeze.compress(body) + squeeze.flush()
    return b"\0" * 128 + b"DICM" + _meta(syntax) + body


def _stream(generator: random.Random, kind: str, pixels: bytes) -> bytes:
    if kind == "run length":
        data = struct.pack("<16L", 1, 64, *[0] * 14) + b"\x2f" + pixels[:48]
    else:
        stream = io.BytesIO()
        grey = Image.frombytes("L", (8, 6), pixels[:48])
        grey.save(stream, "JPEG" if kind == "jpeg" else "JPEG2000")
        data = stream.getvalue()
    return mutated(generator, data) if generator.random() < 0.5 else data


def _in_items(generator: random.Random, stream: bytes) -> bytes:
    stream += b"\0" * (len(stream) % 2)
    said = len(stream) if generator.random() < 0.9 else generator.choice((0, 2, 2**31, 2**32 - 1))
    item = struct.pack("<HHI", 0xFFFE, 0xE000, said) + stream
    table = struct.pack("<HHI", 0xFFFE, 0xE000, 0)
    end = struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    parts = [table, *[item] * generator.choice((1, 1, 1, 2, 0)), end]
    return struct.pack("<HH", 0x7FE0, 0x0010) + b"OB\0\0\xff\xff\xff\xff" + b"".join(parts)


def _encoded(one: Element, order: str, *, explicit: bool) -> bytes:
    group, element, kind, value = one
    value += b" " * (len(value) % 2)
    if order == ">" and kind in (b"US", b"SS"):
        value = b"".join(value[at : at + 2][::-1] for at in range(0, len(value), 2))
    head = struct.pack(order + "HH", group, element)
    if not explicit:
        return head + struct.pack(order + "I", len(value)) + value
    if kind in (b"OB", b"OW", b"SQ", b"UN", b"OF"):
        return head + kind + b"\0\0" + struct.pack(order + "I", len(value)) + value
    return head + kind + struct.pack(order + "H", len(value)) + value


def _meta(syntax: str) -> bytes:
    name = syntax.encode() + b"\0" * (len(syntax) % 2)
    body = _encoded((2, 0x10, b"UI", name), "<", explicit=True)
    return _encoded((2, 0, b"UL", struct.pack("<I", len(body))), "<", explicit=True) + body
