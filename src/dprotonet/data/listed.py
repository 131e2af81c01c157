"""One split of images that lie in files, opened when asked for; what all readers of files give."""

import os
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.data.box import Box, Extent, Point, disc, filled, whole
from dprotonet.data.image import MaskRule, read_image, read_mask, shown
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.scan import ImageFile


class ListedImages:
    """One split; masks and boxes become truth, points keypoints and discs; a crop applies to all of them.

    Unstated: the size of a part, where a data set gives only its keypoint. Here a disc with a radius of
    `part_radius` times the side of the image.
    """

    part_radius = 0.06

    def __init__(
        self,
        root: Path,
        files: Iterable[ImageFile],
        *,
        classes: Sequence[str],
        size: int,
        rule: MaskRule = shown,
        cache: ImageCache | None = None,
    ) -> None:
        self.root, self.size, self.rule, self.cache = root, size, rule, cache
        self.files = tuple(files)
        self.classes = tuple(classes)
        self.labels: Any = self._numbered()  # numbers of classes; rows of a tensor where there are several

    def _numbered(self) -> tuple[int, ...]:
        numbers = {name: number for number, name in enumerate(self.classes)}
        return tuple(numbers[file.class_name] for file in self.files)

    @property
    def fingerprint(self) -> str:
        """Over names, contents of images and their truth, and size; not over where the root lies."""
        content = blake2b(str(self.size).encode(), digest_size=16)
        for file in self.files:
            content.update(os.fsencode(f"\0{file.name}\0{file.digest}\0{file.truth_digest}"))
        return content.hexdigest()

    def name(self, index: int) -> str:
        return self.files[index].name

    def extent(self, index: int) -> Extent:
        """Width and height of the original."""
        return self.files[index].extent

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        file = self.files[index]
        return Sample(
            image=self.image(index),
            label=self.labels[index],
            name=file.name,
            truth=self.truth(index),
            parts={point.part: self._part(file, point) for point in file.points},
            keypoints=self._keypoints(file),
            boxes=self._boxes(file),
            truth_is_boxes=file.masks is None and file.boxes is not None,
        )

    def image(self, index: int) -> Tensor:
        """The image (3, size, size) alone; training wants no truth, and need not wait for its masks."""
        file = self.files[index]
        path, crop = self.root / file.name, _crop_shares(file)
        if self.cache is None:
            return read_image(path, size=self.size, crop=crop)
        return self.cache.image(path, digest=file.digest, size=self.size, crop=crop)

    def truth(self, index: int) -> Tensor | None:
        """The localisation truth (size, size) without opening the image."""
        file = self.files[index]
        if file.masks is None:
            return None if file.boxes is None else filled(self._boxes(file), self.size)
        merged = torch.zeros(self.size, self.size, dtype=torch.bool)
        for mask in file.masks:
            crop = _crop_shares(file)
            merged |= read_mask(self.root / mask, size=self.size, rule=self.rule, crop=crop)
        return merged

    def _boxes(self, file: ImageFile) -> tuple[Box, ...]:
        fitted = (box.within(_frame(file), self.size) for box in file.boxes or ())
        return tuple(box for box in fitted if not box.empty)

    def _part(self, file: ImageFile, point: Point) -> Tensor:
        if point.place is None:
            return torch.zeros(self.size, self.size, dtype=torch.bool)
        x, y = self._fitted(file, point.place)
        return disc(x, y, radius=self.part_radius * self.size, size=self.size)

    def _keypoints(self, file: ImageFile) -> dict[str, tuple[float, float]]:
        """The points to be seen, on the fitted image; what a crop cut off is not."""
        placed = {point.part: self._fitted(file, point.place) for point in file.points if point.place}
        return {
            part: (x, y) for part, (x, y) in placed.items() if 0 <= x <= self.size and 0 <= y <= self.size
        }

    def _fitted(self, file: ImageFile, place: tuple[float, float]) -> tuple[float, float]:
        """A place of the original on the square that the network sees."""
        frame, (x, y) = _frame(file), place
        across = (x - frame.left) / (frame.right - frame.left)
        down = (y - frame.top) / (frame.bottom - frame.top)
        return across * self.size, down * self.size


def _frame(file: ImageFile) -> Box:
    return file.crop or whole(file.extent)


def _crop_shares(file: ImageFile) -> Box | None:
    return None if file.crop is None else file.crop.scaled(1 / file.extent[0], 1 / file.extent[1])
