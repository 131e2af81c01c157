"""Frozen mode: the backbone's feature maps of images and augmentations, computed once and kept on disk.

The file's name is a digest of data, weights and transform, so another of any of these is another file. On
reuse some rows are computed again and compared. Half precision: 125 KB a view for EfficientNet-Lite0. What
else a pass tells, if the backbone gives named tensors, stands beside the map in the same row.
"""

import io
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn

from dprotonet.data.transforms import View, Views
from dprotonet.errors import ComputationError, UserError
from dprotonet.files import FULL, bytes_told, remove_unfinished, reserve, write_text
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.processes import local_share, meet, of_local_main
from dprotonet.training.shared_file import SharedFile
from dprotonet.training.views import Key, Keys, Made, ProcessShare, Reading, chunks

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 3
_PART = 2**28  # bytes of a part at most, if that is more than a batch
_FEWEST = 64  # parts, of many batches, so that many processes can share them
_REMEDY = "make room, name another folder with --cache, or give fewer --augmentations"
_MAP = "feature_map"  # among named features
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
        self.dtype = whole.dtype

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
    beside: Mapping[str, np.ndarray | Rows] = field(default_factory=dict)  # what else the pass told, by name

    @property
    def augmentations(self) -> int | None:
        return self.features.shape[1] - 1

    def part(self, rows: Sequence[int], augmentations: int) -> "FeatureViews":
        """Some of the images, with some of their augmentations."""
        labels = [self.labels[row] for row in rows]
        features = Rows(_whole(self.features), rows, 1 + augmentations)
        beside = {name: Rows(_whole(part), rows, 1 + augmentations) for name, part in self.beside.items()}
        return FeatureViews(features, labels, self.views, beside)

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


def _whole(features: np.ndarray | Rows) -> np.ndarray:
    assert isinstance(features, np.ndarray)
    return features


@dataclass(frozen=True)
class FeatureCache:
    """Makes and finds cached features of `views` under a backbone; both must stay as they are.

    The backbone gives a map (B, D, h, w), or a named tuple of tensors of which `feature_map` is the map, each
    kept in the precision that it has.
    """

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

        All processes of a run call it together. They share the work, and so does any other command, on this
        or another machine, that wants the same features in the same folder.
        """
        share = local_share(accelerator)
        begun = of_local_main(accelerator, self._begin if share.process == 0 else None)
        if begun:
            yield from self._fill(share)
        if share.process == 0:
            self._tell()
        meet(accelerator)
        yield self._views, self._views

    def _begin(self) -> bool:
        """Whether there is anything to do; then a file with all the room that the features take is there."""
        with self._shared.alone():
            if self.path.exists():
                if self._holds(self.path):
                    return False
                self.path.unlink()
            self._reserve()
        return True

    def _tell(self) -> None:
        """What the features are of, beside them; also where a kill came before."""
        place = self.path.with_suffix(".json")
        if place.exists():
            return
        with self._shared.alone():
            remove_unfinished(self.folder, of=place.name)
            write_text(place, json.dumps(self._facts(), indent=1))

    def _reserve(self) -> None:
        room = self.room()
        if self._shared.is_begun(room.needed):
            return
        if room.needed > room.free:
            raise UserError(f"not enough room for {room.told}; {_REMEDY}")
        try:
            with self._shared.begin() as file:
                np.lib.format.write_array_header_1_0(file, self._header)
                reserve(file, room.needed)
        except OSError as error:
            if error.errno in FULL:
                raise UserError(f"not enough room for {room.told} ({error.strerror}); {_REMEDY}") from None
            raise

    def room(self) -> Room:
        """What the file takes, and what is free where it goes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        needed, free = self._start + self._views * self._size, shutil.disk_usage(self.folder).free
        return Room(self._views, needed, free, self.folder)

    def kept(self) -> FeatureViews | None:
        """The features, if they are there already and right."""
        return self.open() if self.path.exists() and self._holds(self.path) else None

    def open(self) -> FeatureViews:
        kept = np.load(self.path, mmap_mode="r")
        if kept.dtype.names is None:
            return FeatureViews(kept, self.views.labels, self.views)
        beside = {name: kept[name] for name in kept.dtype.names if name != _MAP}
        return FeatureViews(kept[_MAP], self.views.labels, self.views, beside)

    @cached_property
    def path(self) -> Path:
        return self.folder / f"{self.key()}.npy"

    def _facts(self) -> dict[str, object]:
        normalise = str(self.views.normalise)
        return {"data": self.views.data.fingerprint, "views": self._views, "normalise": normalise}

    @property
    def _views(self) -> int:
        return len(self.views) * (1 + self.augmentations)

    @property
    def _shared(self) -> SharedFile:
        return SharedFile(self.path, len(self._parts))

    @cached_property
    def _parts(self) -> Sequence[Sequence[list[Key]]]:
        """The batches of every part: the same ones, whoever computes it."""
        batches = chunks(Keys.each(range(len(self.views)), 1 + self.augmentations), self.batch)
        several = max(1, min(_PART // (self.batch * self._size), -(-len(batches) // _FEWEST)))
        starts = range(0, len(batches), several)
        return Made(lambda part: batches[starts[part] : starts[part] + several], range(len(starts)))

    @cached_property
    def _first(self) -> np.ndarray:
        """The features of one view, (1, D, h, w) or (1,) of named ones."""
        return self._features(self.views[0, 0].inputs.unsqueeze(0))

    @property
    def _size(self) -> int:
        """Bytes of a view."""
        return self._first.nbytes

    @property
    def _header(self) -> dict[str, Any]:
        shape = (len(self.views), 1 + self.augmentations, *self._first.shape[1:])
        descr = np.lib.format.dtype_to_descr(self._first.dtype)
        return {"descr": descr, "fortran_order": False, "shape": shape}

    @cached_property
    def _start(self) -> int:
        """Bytes before the first view."""
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, self._header)
        return header.tell()

    def _fill(self, share: ProcessShare) -> Iterator[tuple[int, int]]:
        """Write the parts that this process gets hold of, until all are there."""
        shared, reading = self._shared, Reading(self.views, self.workers)
        claims = shared.claims(first=share.process * shared.parts // share.processes)
        try:
            with closing(claims):
                for part in claims:
                    done = shared.done * len(self._parts[0]) * self.batch
                    yield min(done, self._views - 1), self._views
                    if part is not None:
                        yield from self._write(reading, self._parts[part], done)
        except BaseException:
            shared.abandon()
            raise

    def _write(self, reading: Reading, batches: Sequence[list[Key]], done: int) -> Iterator[tuple[int, int]]:
        """Write batches to where they belong.

        By writing and not by a memory map: on a full disk that is an error, and a map ends the process.
        """
        path = self._shared.unfinished
        with _named(path), path.open("r+b") as file:
            for view, batch in zip(reading(batches), batches, strict=True):
                index, variant = batch[0]
                file.seek(self._start + (index * (1 + self.augmentations) + variant) * self._size)
                file.write(self._features(view.inputs).tobytes())
                done += len(batch)
                yield min(done, self._views - 1), self._views

    @torch.inference_mode()
    def _features(self, inputs: Tensor) -> np.ndarray:
        self.backbone.eval()
        found = self.backbone(inputs.to(self.device))
        if isinstance(found, Tensor):
            return _numbers(found.half())
        parts = {name: _numbers(part) for name, part in found._asdict().items()}
        kinds = [(name, part.dtype, part.shape[1:]) for name, part in parts.items()]
        rows = np.empty(len(inputs), kinds)
        for name, part in parts.items():
            rows[name] = part
        return rows

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
        now = self._features(self.views[row, variant].inputs.unsqueeze(0))[0]
        then = kept[row, variant]
        if now.dtype != then.dtype:
            return False
        names = now.dtype.names
        return _alike(now, then) if names is None else all(_alike(now[name], then[name]) for name in names)


def _numbers(found: Tensor) -> np.ndarray:
    """As they are written, halves or singles, the smallest byte first."""
    numbers: np.ndarray = found.cpu().numpy()
    if not np.isfinite(numbers).all():
        raise ComputationError(
            "the backbone's features do not fit half precision; "
            "train with --mode joint, or choose another backbone"
        )
    return numbers.astype(numbers.dtype.newbyteorder("<"), copy=False)


def _alike(now: np.ndarray, then: np.ndarray) -> bool:
    now, then = now.astype(np.float32), then.astype(np.float32)
    gap = np.abs(now - then).max() if now.shape == then.shape else np.inf
    return bool(gap <= _TOLERANCE * max(np.abs(now).max(), 1e-3))


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """An error of writing, which has no name of its own, with that of the file."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(error.filename or path)) from None
