"""Fitted images kept on disk, so that a file is decoded once and not in every epoch.

An entry's name is a digest of the file's bytes, the size and the crop: another of any of these is another
entry, and data sets, runs and processes may share a folder. An entry is the raw pixels (147 KB at 224 pixels)
behind their checksum; one that does not agree with it is made anew. Truth is not kept: it is not needed for
training. Decoding is left to `image`.
"""

import logging
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.box import Box
from dprotonet.data.digest import content_digest
from dprotonet.data.image import contents, decode_image
from dprotonet.files import whole

DECODING = 2  # raise whenever the same file would be decoded to other pixels

_CHECKSUM = 4  # bytes; it guards against damage, not against malice
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ImageCache:
    """A folder of fitted images; any number of processes may read and write it at once."""

    folder: Path

    def image(self, path: Path, *, digest: str, size: int, crop: Box | None) -> Tensor:
        """As `read_image`; `digest` is that of the file's bytes when its data set was scanned."""
        entry = self.entry(digest, size=size, crop=crop)
        kept = _kept(entry, size)
        return self._made(path, digest, size, crop) if kept is None else kept

    def entry(self, digest: str, *, size: int, crop: Box | None) -> Path:
        """Where it is, in one of 256 folders: some file systems are slow with many files in one."""
        key = blake2b(repr((DECODING, digest, size, crop)).encode(), digest_size=16).hexdigest()
        return self.folder / key[:2] / f"{key}.pixels"

    def _made(self, path: Path, digest: str, size: int, crop: Box | None) -> Tensor:
        data = contents(path)
        image = decode_image(data, name=str(path), size=size, crop=crop)
        if content_digest(data) == digest:  # else the file changed since the scan, and its entry is not this
            self._keep(self.entry(digest, size=size, crop=crop), image)
        return image

    def _keep(self, entry: Path, image: Tensor) -> None:
        """Write it if that is possible: without it the work is slower, and nothing else."""
        pixels = image.numpy().tobytes()
        try:
            with whole(entry) as temporary:
                temporary.write_bytes(_checksum(pixels) + pixels)
        except OSError as error:
            _warn_once(str(self.folder), error.strerror or str(error))


def _kept(entry: Path, size: int) -> Tensor | None:
    try:
        content = entry.read_bytes()
    except OSError:
        return None
    pixels = memoryview(content)[_CHECKSUM:]
    if len(pixels) != 3 * size * size or _checksum(pixels) != content[:_CHECKSUM]:
        return None
    return torch.from_numpy(np.frombuffer(pixels, dtype=np.uint8).reshape(3, size, size).copy())


def _checksum(pixels: bytes | memoryview) -> bytes:
    return crc32(pixels).to_bytes(_CHECKSUM, "big")


@lru_cache
def _warn_once(folder: str, reason: str) -> None:
    _log.warning("--image-cache %s cannot be written to (%s); images are decoded every time", folder, reason)
