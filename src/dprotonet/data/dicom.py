"""A radiograph in a DICOM file as a grey image, as a viewer would show it.

Stored numbers become values by rescale slope and intercept, values become grey by the window where the file
has one (DICOM PS3.3, C.11.2.1.2, linear) and by the bits in use where it has none; MONOCHROME1, in which the
smallest value is white, is inverted. Of several frames the first, no other is decoded. What a file takes is
reckoned before (`image_memory`); opening files is left to `image`.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from dprotonet.data.codestream import stream_frame, without_boxes
from dprotonet.data.depth import eight_bits, grey_range
from dprotonet.data.dicom_file import DicomFile, dicom_file
from dprotonet.data.image_memory import WORKING, check_bytes
from dprotonet.data.run_length import decoded_frame
from dprotonet.extras import import_extra

SUFFIX = ".dcm"

_RAW, _RUN_LENGTH = "1.2.840.10008.1.2.1", "1.2.840.10008.1.2.5"
_NOT_COMPRESSED = (_RAW, "1.2.840.10008.1.2", "1.2.840.10008.1.2.2", "1.2.840.10008.1.2.1.99")
_COPIES, _SHOWN = 4, 3  # of what is stored while it is decoded; bytes a sample that is shown
_STREAM = 16  # bytes a sample that decoders of JPEG 2000 take
_BAND = 1_000_000  # pixels that are worked on together


def dicom_image(data: bytes) -> Image.Image:
    """The bytes of a DICOM file as a PIL image; ValueError says why it cannot be one."""
    found = dicom_file(data)
    if not found.has_pixels:
        raise ValueError("a DICOM file without pixels")
    return Image.fromarray(_grey_or_colour(found.header, _stored(found)))


def dicom_extent(data: bytes) -> tuple[int, int]:
    """Width and height of a frame, as the header states them: nothing is decoded."""
    header = dicom_header(data)
    return int(header.get("Columns", 0) or 0), int(header.get("Rows", 0) or 0)


def dicom_header(data: bytes) -> Any:
    """All that a DICOM file says before its pixels, as pydicom has it; ValueError where it is none."""
    return dicom_file(data).header


def frames_in(header: Any) -> int:
    """How many frames there are; `dicom_image` shows the first."""
    return max(1, int(header.get("NumberOfFrames", 1) or 1))


def _stored(found: DicomFile) -> np.ndarray:
    """The numbers of the first frame: (rows, columns), or (rows, columns, 3) in colours."""
    pixels = import_extra("pydicom.pixels", extra="data", needed_for="reading DICOM")
    encapsulation = import_extra("pydicom.encaps", extra="data", needed_for="reading DICOM")
    one = found.header
    frames, one.NumberOfFrames = frames_in(one), 1
    rows, columns, samples = (int(one.get(name, 0) or 0) for name in ("Rows", "Columns", "SamplesPerPixel"))
    size, depth = pixels.utils.get_expected_length(one, unit="bytes"), -(-int(one.BitsAllocated) // 8)
    check_bytes(
        size * _COPIES + rows * columns * samples * _SHOWN + len(found.data) + WORKING,
        f"decoding {columns} × {rows} pixels",
    )
    if not found.compressed:
        if found.syntax not in _NOT_COMPRESSED:  # pydicom would take them for a stream unchecked
            raise ValueError("its pixels are compressed, but do not stand in items as compressed pixels do")
        content = found.start(size)
        one.add_new(0x7FE00010, "OW" if depth > 1 else "OB", content + b"\0" * (len(content) % 2))
    else:
        frame = encapsulation.get_frame(found.items(), 0, number_of_frames=frames)
        if found.syntax != _RUN_LENGTH:
            frame = without_boxes(frame)
            _check_stream(frame, rows=rows, columns=columns)
            one.PixelData = encapsulation.encapsulate([frame])
        else:
            one.PixelData = decoded_frame(frame, pixels=rows * columns, samples=samples, depth=depth)
            one.PlanarConfiguration, one.file_meta.TransferSyntaxUID = 1, _RAW
    return np.asarray(pixels.pixel_array(one, index=0))


def _check_stream(frame: bytes, *, rows: int, columns: int) -> None:
    """A decoder makes what the stream says, not what stands around it."""
    said = stream_frame(frame)
    if said is None:
        raise ValueError("its pixels are neither JPEG nor JPEG 2000, or broken")
    if (said.width, said.height) != (columns, rows):
        raise ValueError(f"it says {columns} × {rows} pixels, and holds {said.width} × {said.height}")
    check_bytes(said.samples * _STREAM + WORKING, f"decoding {columns} × {rows} pixels")


def _grey_or_colour(header: Any, pixels: np.ndarray) -> np.ndarray:
    if pixels.ndim == 3:
        return np.ascontiguousarray(pixels, dtype=np.uint8)
    shown = np.empty(pixels.shape, dtype=np.uint8)
    known = _window(header) or grey_range(values for _, values in _bands(header, pixels))
    for rows, values in _bands(header, pixels):
        shown[rows] = _windowed(values, *known) if _window(header) else eight_bits(values, known)
    if header.get("PhotometricInterpretation") == "MONOCHROME1":
        np.subtract(255, shown, out=shown)
    return shown


def _bands(header: Any, stored: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Values, some rows at a time: all of them as floats would be several times the image."""
    slope, intercept = (header.get(name) for name in ("RescaleSlope", "RescaleIntercept"))
    if not all(math.isfinite(float(value or 0)) for value in (slope, intercept)):
        raise ValueError("its rescale slope or intercept is not a finite number")
    step = max(1, _BAND // max(1, stored.shape[1]))
    for first in range(0, len(stored), step):
        rows = slice(first, first + step)
        yield rows, stored[rows].astype(np.float32) * float(slope or 1) + float(intercept or 0)


def _window(header: Any) -> tuple[float, float] | None:
    """Centre and width of the window, where the file has one."""
    centre, width = _first(header.get("WindowCenter")), _first(header.get("WindowWidth"))
    if centre is None or width is None or not math.isfinite(centre + width) or width < 1:
        return None
    return centre, width


def _windowed(values: np.ndarray, centre: float, width: float) -> np.ndarray:
    share = (values - (centre - 0.5)) / max(width - 1, 1e-6) + 0.5
    return (share.clip(0, 1) * 255).round().astype(np.uint8)


def _first(value: Any) -> float | None:
    """A window may be given several times; the first is the default one."""
    if value is None or value == "":
        return None
    try:
        return float(value)
    except TypeError:
        return float(value[0]) if len(value) else None
