"""One frame of a DICOM file in its run-length code (PS3.5, annex G), decoded to no more than the frame has.

pydicom decodes whatever a segment holds and compares lengths afterwards; its loop is in Python, too.
"""

import struct

import numpy as np
from PIL import Image

_HEADER, _MOST = 64, 15  # bytes; segments that have room in it


def decoded_frame(frame: bytes, *, pixels: int, samples: int, depth: int) -> bytes:
    """The numbers of a frame, sample after sample, `depth` bytes each with the lowest first."""
    if len(frame) < _HEADER:
        raise ValueError("a run-length frame without its header")
    count, *offsets = struct.unpack_from("<16L", frame)
    if count != samples * depth or count > _MOST:
        raise ValueError(f"a run-length frame of {count} segments; its header says {samples * depth}")
    ends = [*offsets[1:count], len(frame)]
    found = np.empty((samples, pixels, depth), dtype=np.uint8)
    for number in range(count):
        segment = frame[offsets[number] : ends[number]]
        sample, place = divmod(number, depth)  # the highest byte comes first
        found[sample, :, depth - 1 - place] = np.asarray(_unpacked(segment, pixels))[0]
    return found.tobytes()


def _unpacked(segment: bytes, pixels: int) -> Image.Image:
    """Pillow's PackBits stop where the row is full."""
    return Image.frombytes("L", (pixels, 1), segment, "packbits", "L")
