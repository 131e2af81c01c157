"""Four images side by side in the size of one: a map of one's class should lie on its quarter.

The grid of Böhle et al. (CVPR 2021, "Convolutional Dynamic Alignment Networks"): a map that shows where
things are, whatever class it is asked for, has a quarter of its heat on the right tile.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, Sample, image_of
from dprotonet.data.digest import digest_of

TILES = 4
_CORNERS = ("top-left", "top-right", "bottom-left", "bottom-right")


class Tile(NamedTuple):
    """An image of a split, by its number, and the class that it stands for."""

    number: int
    label: int


class Question(NamedTuple):
    """A mosaic, row by row, and the tile whose class is asked for."""

    mosaic: int
    tiles: tuple[Tile, ...]
    asked: int


class Mosaics:
    """A split whose samples are questions; the truth is the quarter that is asked for.

    The fingerprint is that of the images; which of them meet in a mosaic is for its maker to say.
    """

    def __init__(self, whole: ImageData, classes: Sequence[str], questions: Sequence[Question]) -> None:
        self.whole, self.classes, self.questions = whole, classes, tuple(questions)
        self.labels: Sequence[int] = tuple(item.tiles[item.asked].label for item in self.questions)

    @property
    def fingerprint(self) -> str:
        return digest_of("mosaics", self.whole.fingerprint)

    def name(self, index: int) -> str:
        question = self.questions[index]
        image = self.whole.name(question.tiles[question.asked].number)
        return f"mosaic-{question.mosaic}/{_CORNERS[question.asked]}/{image}"

    def __len__(self) -> int:
        return len(self.questions)

    def __getitem__(self, index: int) -> Sample:
        question = self.questions[index]
        image = laid_out([image_of(self.whole, tile.number) for tile in question.tiles])
        truth = quarter((image.shape[-2], image.shape[-1]), question.asked)
        return Sample(image, self.labels[index], self.name(index), truth=truth)


def laid_out(images: Sequence[Tensor]) -> Tensor:
    """Four uint8 images (3, H, W), each shrunk to half, row by row in one of the same size."""
    height, width = images[0].shape[-2:]
    mosaic = torch.empty_like(images[0])
    for place, image in enumerate(images):
        rows, columns = _span(height, place // 2), _span(width, place % 2)
        size = rows.stop - rows.start, columns.stop - columns.start
        shrunk = torch.nn.functional.interpolate(
            image.float().unsqueeze(0), size=size, mode="bilinear", align_corners=False, antialias=True
        )
        mosaic[:, rows, columns] = shrunk[0].round().clamp(0, 255).to(image.dtype)
    return mosaic


def quarter(size: tuple[int, int], place: int) -> Tensor:
    """Where the tile of that place lies, bool (H, W)."""
    mask = torch.zeros(size, dtype=torch.bool)
    mask[_span(size[0], place // 2), _span(size[1], place % 2)] = True
    return mask


def questions(tiles: Iterable[Tile], *, classes: int) -> Iterator[Question]:
    """Mosaics of tiles as they come, each tile once, and a question for every class that is in one only once.

    Four classes meet in a mosaic; with fewer in all, every class but one is there once and that one fills up.
    A longer stream begins with the same questions.
    """
    distinct, waiting, mosaic = min(TILES, classes), list[Tile](), 0
    for tile in tiles:
        waiting.append(tile)
        chosen = _one_mosaic(waiting, distinct)
        if not chosen:
            continue
        turned = tuple(chosen[mosaic % TILES :] + chosen[: mosaic % TILES])  # nobody has a place of his own
        labels = [item.label for item in turned]
        yield from (
            Question(mosaic, turned, place) for place in range(TILES) if labels.count(labels[place]) == 1
        )
        waiting = [item for item in waiting if item not in chosen]
        mosaic += 1


def _one_mosaic(waiting: Sequence[Tile], distinct: int) -> list[Tile]:
    """The first of each of `distinct` classes, and what it takes to fill up; nothing if that is not there."""
    by_class: dict[int, list[Tile]] = {}
    for tile in waiting:
        by_class.setdefault(tile.label, []).append(tile)
    filling = max(by_class, key=lambda label: len(by_class[label]))
    others = [tiles[0] for label, tiles in by_class.items() if label != filling][: distinct - 1]
    chosen = [*others, *by_class[filling][: TILES - len(others)]]
    return chosen if len(others) == distinct - 1 and len(chosen) == TILES else []


def _span(length: int, half: int) -> slice:
    return slice(length // 2, length) if half else slice(0, length // 2)
