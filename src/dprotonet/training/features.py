"""Frozen mode: the backbone's feature maps of images and augmentations, computed once and kept on disk.

The file's name is a digest of data, weights and transform, so another of any of these is another file. On
reuse some rows are computed again and compared. Half precision: 125 KB a view for EfficientNet-Lite0.
"""

import io
import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from filelock import FileLock, Timeout
from torch import Tensor, nn

from dprotonet.data.transforms import View, Views
from dprotonet.errors import ComputationError, UserError
from dprotonet.files import FULL, bytes_told, remove_unfinished, reserve, write_text
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.processes import local_share, meet, of_local_main
from dprotonet.training.views import Key, ProcessShare, chunks, load

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 3
_REMEDY = "make room, name another folder with --cache, or give fewer --augmentations"
_TOLERANCE = 0.02  # of the largest value: half precision and another batch size, not another image


@dataclass(frozen=True)
class Room:
    """Bytes that the features of so many views take, and that are free in `folder`."""

    views: int
    needed: int
    free: int
    folder: Path

    @property
    def told(self) -> str:
        return (
            f"the features of {self.views:,} views: they take {bytes_told(self.needed)}, "
            f"and {bytes_told(self.free)} are free in {self.folder}"
        )


class Rows:
    """Some rows of an array on disk, and the first `variants` of each, without reading the others."""

    def __init__(self, whole: np.ndarray, rows: Sequence[int], variants: int) -> None:
        self.whole, self.rows = whole, rows
        self.shape = (len(rows), variants, *whole.shape[2:])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: tuple[int, int | slice]) -> np.ndarray:
        found: np.ndarray = self.whole[self.rows[key[0]], key[1]]
        return found


@dataclass(frozen=True)
class FeatureViews:
    """Cached feature maps (N, 1 + augmentations, D, h, w), served like images."""

    features: np.ndarray | Rows
    labels: Sequence[int]
    views: Views | None = None  # that they were computed from

    @property
    def augmentations(self) -> int | None:
        return self.features.shape[1] - 1

    def part(self, rows: Sequence[int], augmentations: int) -> "FeatureViews":
        """Some of the images, with some of their augmentations."""
        assert isinstance(self.features, np.ndarray)
        labels = [self.labels[row] for row in rows]
        return FeatureViews(Rows(self.features, rows, 1 + augmentations), labels, self.views)

    def __len__(self) -> int:
        return len(self.features)

    def __getitem__(self, key: Key) -> View:
        index, variant = key
        # Widened by torch, which is several times faster at it than NumPy.
        inputs = torch.from_numpy(np.array(self.features[index, variant])).float()
        return View(inputs, self.labels[index], index)

    def places(self, key: Key, size: tuple[int, int]) -> Tensor:
        """As those of the images (`Views.places`)."""
        assert self.views is not None
        index, variant = key
        row = self.features.rows[index] if isinstance(self.features, Rows) else index
        return self.views.places((row, variant), size)


@dataclass(frozen=True)
class FeatureCache:
    """Makes and finds cached features of `views` under a backbone; both must stay as they are."""

    folder: Path
    backbone: nn.Module
    views: Views
    augmentations: int
    device: torch.device
    workers: int = 0
    batch: int = 32

    def key(self) -> str:
        """Digest of all that the features depend on."""
        augment = self.views.augment.description if self.views.augment else "none"
        facts = [self.views.data.fingerprint, str(self.views.normalise), augment, str(self.views.seed)]
        return tensor_digest(
            self.backbone.state_dict(), beginning="\n".join([*facts, str(self.augmentations)])
        )

    def build(self, accelerator: Accelerator | None = None) -> Iterator[tuple[int, int]]:
        """Compute what is not there yet, yielding (views done, views in all).

        All processes of a run call it together: those of one machine share the work.
        """
        total, share = len(self.views) * (1 + self.augmentations), local_share(accelerator)
        with self._claim(share) as first:
            temporary = of_local_main(accelerator, self._begin if share.process == 0 else None)
            try:
                if temporary is not None:
                    yield from self._fill(temporary, share)
                meet(accelerator)  # also those of a machine that has the features: all meet as often
                if temporary is not None and first:
                    os.replace(temporary, self.path)
                    write_text(self.path.with_suffix(".json"), json.dumps(self._facts(total), indent=1))
                meet(accelerator)
            finally:
                if temporary is not None and first:
                    temporary.unlink(missing_ok=True)
        yield total, total

    @contextmanager
    def _claim(self, share: ProcessShare) -> Iterator[bool]:
        """Whether this process is the first of its machine. It removes what killed processes left.

        Unless another command is at the same features: then both compute them, and the last one wins.
        """
        if share.process:
            yield False
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path.with_suffix(".lock"), thread_local=False)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield True
            return
        try:
            remove_unfinished(self.folder, of=self.path.name)
            yield True
        finally:
            with suppress(OSError):  # Windows keeps a file that is open; it does no harm
                self.path.with_suffix(".lock").unlink()
            lock.release()

    def _begin(self) -> Path | None:
        """A file with all the room that the features take, still empty; None where they are there."""
        if self.path.exists() and self._holds(self.path):
            return None
        room = self.room()
        if room.needed > room.free:
            raise UserError(f"not enough room for {room.told}; {_REMEDY}")
        temporary = self.path.with_name(f"{self.path.name}.{secrets.token_hex(6)}.tmp")
        try:
            with temporary.open("wb") as file:
                np.lib.format.write_array_header_1_0(file, self._header)
                reserve(file, room.needed)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            if error.errno in FULL:
                raise UserError(f"not enough room for {room.told} ({error.strerror}); {_REMEDY}") from None
            raise
        return temporary

    def room(self) -> Room:
        """What the file takes, and what is free where it goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        total = len(self.views) * (1 + self.augmentations)
        return Room(total, self._start + total * self._size, shutil.disk_usage(self.folder).free, self.folder)

    def kept(self) -> FeatureViews | None:
        """The features, if they are there already and right."""
        return self.open() if self.path.exists() and self._holds(self.path) else None

    def open(self) -> FeatureViews:
        return FeatureViews(np.load(self.path, mmap_mode="r"), self.views.labels, self.views)

    @cached_property
    def path(self) -> Path:
        return self.folder / f"{self.key()}.npy"

    def _facts(self, total: int) -> dict[str, object]:
        return {"data": self.views.data.fingerprint, "views": total, "normalise": str(self.views.normalise)}

    @cached_property
    def _shape(self) -> tuple[int, ...]:
        """Of the features of a view (D, h, w)."""
        return self._features(self.views[0, 0].inputs.unsqueeze(0)).shape[1:]

    @property
    def _size(self) -> int:
        """Bytes of a view."""
        return math.prod(self._shape) * np.dtype(np.float16).itemsize

    @property
    def _header(self) -> dict[str, Any]:
        shape = (len(self.views), 1 + self.augmentations, *self._shape)
        return {"descr": "<f2", "fortran_order": False, "shape": shape}

    @cached_property
    def _start(self) -> int:
        """Bytes before the first view."""
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, self._header)
        return header.tell()

    def _fill(self, temporary: Path, share: ProcessShare) -> Iterator[tuple[int, int]]:
        """Write this process's batches to where they belong.

        By writing and not by a memory map: on a full disk that is an error, and a map ends the process.
        """
        variants, total = 1 + self.augmentations, len(self.views) * (1 + self.augmentations)
        keys = [(index, variant) for index in range(len(self.views)) for variant in range(variants)]
        batches = share.of(chunks(keys, self.batch))
        with _named(temporary), temporary.open("r+b") as file:
            found = load(self.views, batches, workers=self.workers)
            for view, batch in zip(found, batches, strict=True):
                index, variant = batch[0]
                place = index * variants + variant
                file.seek(self._start + place * self._size)
                file.write(self._features(view.inputs).astype("<f2").tobytes())
                yield min(place + share.processes * len(batch), total - 1), total

    @torch.inference_mode()
    def _features(self, inputs: Tensor) -> np.ndarray:
        self.backbone.eval()
        half: np.ndarray = self.backbone(inputs.to(self.device)).half().cpu().numpy()
        if not np.isfinite(half).all():
            raise ComputationError(
                "the backbone's features do not fit half precision; "
                "train with --mode joint, or choose another backbone"
            )
        return half

    def _holds(self, path: Path) -> bool:
        """Whether the file is whole and its first, middle and last rows are what the backbone gives now."""
        try:
            kept = np.load(path, mmap_mode="r")
            fits = kept.shape[:2] == (len(self.views), 1 + self.augmentations)
            rows = np.linspace(0, len(self.views) - 1, _CHECKED_ROWS, dtype=int).tolist()
            fits = fits and all(self._same(kept, row) for row in rows)
        except (OSError, ValueError, EOFError):
            fits = False
        if not fits:
            logger.warning("feature cache %s does not match data and weights; not used", path.name)
        return bool(fits)

    def _same(self, kept: np.ndarray, row: int) -> bool:
        variant = row % kept.shape[1]
        now = self._features(self.views[row, variant].inputs.unsqueeze(0))[0].astype(np.float32)
        then = kept[row, variant].astype(np.float32)
        gap = np.abs(now - then).max() if now.shape == then.shape else np.inf
        return bool(gap <= _TOLERANCE * max(np.abs(now).max(), 1e-3))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of writing, which has no name of its own, with that of the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(error.filename or path)) from None
