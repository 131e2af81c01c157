"""A DICOM file as its header and the stored bytes of its first frame: no more is inflated.

pydicom's reader inflates the whole of a deflated file and parses all of it, whatever comes out. Here the
elements before the pixels may take 2 MB, and the pixels as much as Rows × Columns say. What they mean is left
to `dicom`.
"""

import zlib
from dataclasses import dataclass
from io import BytesIO
from struct import error as StructError
from struct import unpack_from
from typing import Any

from dprotonet.extras import import_extra

BEFORE_PIXELS = 2_000_000  # bytes; an element of 8 bytes takes hundreds once it is parsed
MOST_ITEMS = 20_000  # of sequences; each takes kilobytes, and a tenth of a millisecond
UNDEFINED = 0xFFFFFFFF  # a length: the pixels come in items
_PREAMBLE, _MAGIC = 128, b"DICM"
_DEFLATED, _IMPLICIT, _BIG = "1.2.840.10008.1.2.1.99", "1.2.840.10008.1.2", "1.2.840.10008.1.2.2"
_PIXELS = (0x7FE00010, 0x7FE00008, 0x7FE00009)  # integers, floats, doubles
_ITEM = (b"\xfe\xff\x00\xe0", b"\xff\xfe\xe0\x00")  # the tag, in either order of bytes
_CHUNK = 1 << 16


@dataclass(frozen=True)
class DicomFile:
    """What stands before the pixels, where these begin, and how they are stored."""

    header: Any
    syntax: str
    compressed: bool
    data: bytes
    _body: int  # where the elements of the image begin in the file
    _pixels: int  # where those of the pixels begin, counted from there

    def start(self, most: int) -> bytes:
        """The value of the pixels, at most so many bytes."""
        return _elements(self.data, self._body, self.syntax, self._value + most)[self._value :]

    def items(self) -> BytesIO:
        """The file where the items of compressed pixels begin."""
        stream = BytesIO(self.data)
        stream.seek(self._body + self._value)
        return stream

    @property
    def has_pixels(self) -> bool:
        """Whether there are any, and integers."""
        head = _elements(self.data, self._body, self.syntax, self._pixels + 4)[self._pixels :]
        order = ">HH" if self.syntax == _BIG else "<HH"
        return len(head) == 4 and unpack_from(order, head) == (0x7FE0, 0x0010)

    @property
    def _value(self) -> int:
        """Where the value of the pixels begins, behind its tag and length."""
        return self._pixels + (8 if self.header.original_encoding[0] else 12)


def dicom_file(data: bytes) -> DicomFile:
    """The bytes of a DICOM file, opened; ValueError says why they are none."""
    pydicom = import_extra("pydicom", extra="data", needed_for="reading DICOM")
    reader = import_extra("pydicom.filereader", extra="data", needed_for="reading DICOM")
    if data[_PREAMBLE : _PREAMBLE + 4] != _MAGIC:
        raise ValueError("not a DICOM file")
    stream = BytesIO(data[: _PREAMBLE + 4 + BEFORE_PIXELS])
    stream.seek(_PREAMBLE + 4)
    meta = reader.read_dataset(stream, False, True, stop_when=lambda tag, *_: tag >> 16 != 2)
    body, syntax = stream.tell(), str(meta.get("TransferSyntaxUID", ""))
    start = BytesIO(_elements(data, body, syntax, BEFORE_PIXELS))
    header = _parsed(reader, start, syntax)
    header.file_meta = pydicom.dataset.FileMetaDataset(meta)
    return DicomFile(header, syntax, _in_items(header, start, syntax), data, body, start.tell())


def _parsed(reader: Any, start: BytesIO, syntax: str) -> Any:
    """The elements before the pixels, at which the stream is then."""
    if max(start.getvalue().count(tag) for tag in _ITEM) > MOST_ITEMS:
        raise ValueError(f"more than {MOST_ITEMS:,} items of sequences come before its pixels")
    failed: Exception | None = None
    try:
        header = reader.read_dataset(
            start, syntax == _IMPLICIT, syntax != _BIG, stop_when=lambda tag, *_: tag in _PIXELS
        )
    except Exception as error:  # what is cut off in the middle, or was never right
        failed = error
    if len(start.getbuffer()) == BEFORE_PIXELS and (failed or start.tell() == BEFORE_PIXELS):
        raise ValueError(f"more than {BEFORE_PIXELS / 1e6:g} MB come before its pixels") from failed
    if failed:
        raise failed
    return header


def _in_items(header: Any, start: BytesIO, syntax: str) -> bool:
    """Whether the length of the pixels is undefined, as it is where they are compressed."""
    order = ">I" if syntax == _BIG else "<I"
    try:
        (length,) = unpack_from(
            order, start.getbuffer(), start.tell() + (4 if header.original_encoding[0] else 8)
        )
    except StructError:  # there are none
        return False
    return bool(length == UNDEFINED)


def _elements(data: bytes, body: int, syntax: str, most: int) -> bytes:
    """The elements of the image as they are parsed, at most so many bytes."""
    if syntax != _DEFLATED:
        return data[body : body + most]
    inflate, found = zlib.decompressobj(-zlib.MAX_WBITS), bytearray()
    for at in range(body, len(data), _CHUNK):
        try:
            found += inflate.decompress(data[at : at + _CHUNK], most - len(found))
        except zlib.error as error:
            raise ValueError(f"cannot be inflated ({error})") from None
        if inflate.eof or len(found) >= most:
            break
    return bytes(found)
