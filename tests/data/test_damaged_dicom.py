"""DICOM files that fuzzing found: what they did before is said at each."""

import struct

import pytest

from dprotonet.data.codestream import without_boxes
from dprotonet.data.image import UnreadableImage, decode_image
from heavy_images import by_pillow, dicom, even

JPEG_2000 = "1.2.840.10008.1.2.4.90"


def test_a_box_without_length() -> None:
    """pydicom went over it for ever."""
    good = by_pillow("L", "JPEG2000", 8, 8)
    at = good.index(b"jp2h") - 4
    endless = good[:at] + struct.pack(">I", 0) + b"free" + good[at:]
    with pytest.raises(UnreadableImage, match="no JPEG 2000 stream"):
        decode_image(dicom(8, 8, syntax=JPEG_2000, pixels=endless), name="x.dcm", size=8)


def test_boxes_without_a_stream() -> None:
    boxes = by_pillow("L", "JPEG2000", 8, 8)[:12] + bytes(100)
    with pytest.raises(UnreadableImage, match="no JPEG 2000 stream"):
        decode_image(dicom(8, 8, syntax=JPEG_2000, pixels=boxes), name="x.dcm", size=8)


def test_a_bare_stream_stays() -> None:
    stream = by_pillow("L", "JPEG2000", 8, 8, no_jp2=True)
    assert without_boxes(stream) == stream
    assert without_boxes(by_pillow("L", "JPEG2000", 8, 8)) == stream


@pytest.mark.parametrize("slope", [b"1e400", b"nan", b"inf"])
def test_values_that_are_not_finite(slope: bytes) -> None:
    """They gave an image of nothing."""
    element = struct.pack("<HH", 0x0028, 0x1053) + b"DS" + struct.pack("<H", len(even(slope))) + even(slope)
    file = dicom(4, 4, pixels=bytes(16))
    at = file.index(struct.pack("<HH", 0x7FE0, 0x0010))
    with pytest.raises(UnreadableImage):
        decode_image(file[:at] + element + file[at:], name="x.dcm", size=4)


def test_compressed_pixels_outside_of_items() -> None:
    """pydicom took them for a stream, past all that is looked at before, and went over its boxes for ever."""
    good = by_pillow("L", "JPEG2000", 8, 8)
    at = good.index(b"jp2h") - 4
    endless = good[:at] + struct.pack(">I", 0) + b"free" + good[at:]
    file = dicom(8, 8, syntax=JPEG_2000, pixels=even(endless))
    length = file.index(struct.pack("<HH", 0x7FE0, 0x0010)) + 8
    assert file[length : length + 4] == b"\xff" * 4
    damaged = file[:length] + struct.pack("<I", 0xFFFFEFFF) + file[length + 4 :]
    with pytest.raises(UnreadableImage, match="do not stand in items"):
        decode_image(damaged, name="x.dcm", size=8)
