"""Frozen mode: the backbone's feature maps of images and augmentations, computed once and kept on disk.

The file's name is a digest of data, weights and transform, so another of any of these is another file. On
reuse some rows are computed again and compared. Half precision: 125 KB a view for EfficientNet-Lite0.
"""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.data.transforms import View, Views
from dprotonet.errors import ComputationError
from dprotonet.files import write_text
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.views import Key, chunks, load

logger = logging.getLogger(__name__)

_CHECKED_ROWS = 3
_TOLERANCE = 0.02  # of the largest value: half precision and another batch size, not another image


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

    def build(self) -> Iterator[tuple[int, int]]:
        """Compute what is not there yet, yielding (views done, views in all)."""
        path, total = self.path, len(self.views) * (1 + self.augmentations)
        if path.exists() and self._holds(path):
            yield total, total
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            yield from self._fill(temporary, total)
            os.replace(temporary, path)
            write_text(path.with_suffix(".json"), json.dumps(self._facts(total), indent=1))
        finally:
            temporary.unlink(missing_ok=True)

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

    def _fill(self, temporary: Path, total: int) -> Iterator[tuple[int, int]]:
        variants = 1 + self.augmentations
        keys = [(index, variant) for index in range(len(self.views)) for variant in range(variants)]
        shape = self._features(self.views[0, 0].inputs.unsqueeze(0)).shape[1:]
        file = np.lib.format.open_memmap(
            temporary, mode="w+", dtype=np.float16, shape=(len(self.views), variants, *shape)
        )
        rows = file.reshape(total, *shape)
        done = 0
        for view in load(self.views, chunks(keys, self.batch), workers=self.workers):
            features = self._features(view.inputs)
            rows[done : done + len(features)] = features
            done += len(features)
            yield done, total
        file.flush()

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
