"""What a JPEG, JPEG 2000 or WebP stream says of its own size: decoders go by this, and make room for it."""

import struct
from dataclasses import dataclass, replace

_FRAMES = {*range(0xC0, 0xD0), 0xF7} - {0xC4, 0xC8, 0xCC}  # the last is that of JPEG-LS
_PROGRESSIVE = (0xC2, 0xC6, 0xCA, 0xCE)
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_SCAN = 0xDA
_SIZE_2000 = b"\xff\x4f\xff\x51"
_BOXES = b"jP  "


@dataclass(frozen=True)
class Frame:
    """Width, height, components, their numbers together, and whether these come in more than one scan."""

    width: int
    height: int
    components: int
    samples: int
    several_scans: bool = False


def webp_extent(data: bytes) -> tuple[int, int]:
    """Width and height of the canvas, which Pillow makes room for on opening; (0, 0) where it is no WebP."""
    kind, body = data[12:16], data[20:30].ljust(10, b"\0")
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return 0, 0
    if kind == b"VP8X":
        return 1 + int.from_bytes(body[4:7], "little"), 1 + int.from_bytes(body[7:10], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(body[1:5], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    width, height = struct.unpack_from("<HH", body, 6)
    return width & 0x3FFF, height & 0x3FFF


def without_boxes(data: bytes) -> bytes:
    """A stream without the boxes of a JPEG 2000 file around it, which DICOM does not have.

    pydicom goes over them for ever where one says that it has no length.
    """
    if data[4:8] != _BOXES:
        return data
    if (begins := _stream_begins(data)) >= len(data):
        raise ValueError("its boxes hold no JPEG 2000 stream")
    return data[begins:]


def stream_frame(data: bytes) -> Frame | None:
    """The frame of a stream of either kind, told by how it begins; None where it is of neither."""
    if data.startswith(b"\xff\xd8"):
        return jpeg_frame(data)
    return jpeg_2000_frame(data, _stream_begins(data) if data[4:8] == _BOXES else 0)


def _stream_begins(data: bytes) -> int:
    """Where the code stream of a JPEG 2000 file begins, behind its boxes, which may be of any length."""
    at = 0
    while at + 8 <= len(data):
        length, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        head = 16 if length == 1 else 8
        if kind == b"jp2c":
            return at + head
        if length == 1:
            length = int.from_bytes(data[at + 8 : at + 16], "big")
        at = at + max(length, head) if length else len(data)
    return len(data)


def jpeg_2000_frame(data: bytes, begins: int = 0) -> Frame | None:
    """By the SIZ segment, with which the code stream begins."""
    if not data.startswith(_SIZE_2000, begins):
        return None
    at = begins + 8  # behind the segment's length and capabilities
    try:
        right, bottom, left, top = struct.unpack_from(">4I", data, at)
        (components,) = struct.unpack_from(">H", data, at + 32)
    except struct.error:
        return None
    width, height = max(0, right - left), max(0, bottom - top)
    return Frame(width, height, components, width * height * components)


def jpeg_frame(data: bytes) -> Frame | None:
    """By the markers before the first scan; where there are several frames, the largest."""
    found, at = None, 2
    while at + 4 <= len(data):
        if data[at] != 0xFF or data[at + 1] in (0x00, 0xFF):
            at += 1  # between segments decoders look for the next marker
            continue
        kind = data[at + 1]
        if kind in _ALONE:
            at += 2
            continue
        (length,) = struct.unpack_from(">H", data, at + 2)
        if kind in _FRAMES:
            one = _frame(kind, data[at + 4 : at + 2 + length])
            found = max((frame for frame in (one, found) if frame), key=lambda f: f.samples, default=None)
        if kind == _SCAN:
            apart = found is not None and data[at + 4 : at + 5] != bytes([found.components])
            return replace(found, several_scans=True) if found is not None and apart else found
        at += 2 + max(length, 2)
    return found


def _frame(kind: int, body: bytes) -> Frame | None:
    """Components may be kept at fewer rows and columns than the image has: that is in their factors."""
    if len(body) < 9 or len(body) < 6 + 3 * body[5]:
        return None
    height, width, components = struct.unpack_from(">HHB", body, 1)
    factors = [divmod(body[7 + 3 * number], 16) for number in range(components)]
    most = max(1, max(across for across, _ in factors) * max(down for _, down in factors))
    samples = width * height * sum(across * down for across, down in factors) // most
    return Frame(width, height, components, samples, kind in _PROGRESSIVE)
