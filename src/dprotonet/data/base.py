"""What every data set gives: numbered samples, their classes, and a fingerprint of their content.

A data set object is one split. Images come as uint8 already fitted to the square size of the network, so that
localisation truth and image stay aligned; augmentation and normalisation come later (`transforms`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from torch import Tensor

from dprotonet.data.box import Box


@dataclass(frozen=True)
class Sample:
    """One image with all that is known of it."""

    image: Tensor  # (3, H, W) uint8
    label: int
    name: str  # unique within the split, e.g. "train/robin/0007.jpg"
    truth: Tensor | None = None  # (H, W) bool, localisation truth
    parts: Mapping[str, Tensor] = field(default_factory=dict)  # (H, W) bool each
    keypoints: Mapping[str, tuple[float, float]] = field(default_factory=dict)  # x, y of parts to be seen
    deciding_part: str | None = None
    boxes: tuple[Box, ...] = ()  # on the fitted image, where the truth came as boxes
    truth_is_boxes: bool = False  # the truth is `boxes` filled, none of them included; else it is a mask
    findings: tuple[str, ...] = ()  # the labels it has, where an image has several; `label` is then -1


class ImageData(Protocol):
    """One split of a data set."""

    @property
    def classes(self) -> Sequence[str]: ...
    @property
    def labels(self) -> Sequence[int]:
        """The label of every sample, without opening an image; of several labels rows of 0 and 1 (N, L)."""
        ...

    @property
    def fingerprint(self) -> str:
        """Changes whenever any image or its order would; keys caches."""
        ...

    def name(self, index: int) -> str: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> Sample: ...


@runtime_checkable
class PlainImages(Protocol):
    """A split that has its images without the truth for less than the whole sample costs."""

    def image(self, index: int) -> Tensor: ...


@runtime_checkable
class PartRenderer(Protocol):
    """A split that can draw a scene again with one part changed and all else the same.

    What a network thinks of such pictures is the truth about which parts matter to it
    (`metrics.intervention`). A changed picture keeps the name and the label of the one it came from. All
    samples have the same `parts` in the same order, and any of them can be asked for; one that is not to be
    seen has no pixels.
    """

    def exchanges(self, index: int, part: str, *, count: int, seed: int = 0) -> Sequence[Sample]:
        """The scene with the part in `count` other looks, all different; the same seed gives the same."""
        ...

    def removed(self, index: int, part: str) -> Sample:
        """The scene with that part taken away."""
        ...

    def sibling(self, index: int) -> Sample | None:
        """The scene with the deciding part as the sibling class has it, and that class's label; if any."""
        ...


def image_of(data: ImageData, index: int) -> Tensor:
    """The image (3, H, W) uint8 of a sample, at no more cost than the data set needs for it."""
    return data.image(index) if isinstance(data, PlainImages) else data[index].image


@dataclass(frozen=True)
class Splits:
    """The three splits of a data set, and what was found wrong with it while they were made."""

    train: ImageData
    val: ImageData
    test: ImageData
    skipped: Mapping[str, str] = field(default_factory=dict)  # unreadable files, and why
    leaks: Sequence[str] = ()  # "one = other", in two splits; only where they were allowed
    problems: Mapping[str, Sequence[str]] = field(default_factory=dict)  # what, and which
    absent: Mapping[str, str] = field(default_factory=dict)  # optional files, and what they give
    ignored: Mapping[str, int] = field(default_factory=dict)  # endings that no image has, and how many files
