"""From the uint8 image of a data set to the network's input: augmentation, normalisation, numbered views.

Augmentation is that of Section 4.3, "rotated, perspectived, sheared, and distorted", made while training
runs, not stored. Every view is a pure function of (seed, epoch, index), so neither the order of the batches
nor the number of workers changes what the network sees. Which index comes when is the sampler's affair.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate, pad
from torch.utils.data import Dataset

from dprotonet.compat import import_guarded
from dprotonet.data.base import ImageData, image_of
from dprotonet.errors import UserError

_CORNERS = np.array([[-1.0, -1.0], [1.0, -1.0], [1.0, 1.0], [-1.0, 1.0]])
_FINER = 8  # steps along a side of a place in which its shift is measured
LUMA = (0.299, 0.587, 0.114)

_RANGES = {"rotation": (0, 180), "shear": (0, 45), "perspective": (0, 0.99), "nodes": (2, 1000)}
"""Of the settings of `Augment` that are no probabilities or shares."""


@dataclass(frozen=True)
class Augment:
    """Random rotation, shear, perspective and elastic distortion in one warp; borders continue by reflection.

    Unstated: the magnitudes. Those of rotation and shear, in degrees either way, are ProtoPNet's, which the
    paper builds on; perspective is as in torchvision, the largest shift of the corners as a fraction of half
    the side, here centred so that the picture does not shrink; distortion is the shift of the nodes of a
    coarse grid as a fraction of the side.
    Unstated: how they combine. Here each is applied independently, with its own probability. ProtoPNet's code
    applies exactly one of rotation, skew and shear to each copy; `--recipe protopnet` applies each to a third
    of the views, so that a view has one of them on average, but may have none or several.
    Unstated: the horizontal flip, which ProtoPNet has and the paper does not mention; 0 turns it off.
    """

    rotation: float = 15.0
    rotation_probability: float = 0.8
    shear: float = 10.0
    shear_probability: float = 0.8
    perspective: float = 0.2
    perspective_probability: float = 0.8
    distortion: float = 0.015
    distortion_probability: float = 0.8
    flip: float = 0.5
    nodes: int = 10

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least, most = _RANGES.get(name, (0, 1))
            if not least <= value <= most:
                flag = name.replace("_", "-")
                raise UserError(f"--{flag} is {value}; it must be between {least} and {most}")

    @property
    def description(self) -> str:
        """All parameters in words; keys caches."""
        return repr(self)

    def __call__(self, image: Tensor, *, seed: int, epoch: int, index: int) -> Tensor:
        """Warp one image, (3, H, W) uint8 to the same; equal arguments give equal bytes."""
        functional = import_guarded("torchvision.transforms.v2.functional")
        random = np.random.default_rng(np.random.SeedSequence((seed, epoch, index)))
        flipped = functional.horizontal_flip(image) if random.random() < self.flip else image
        displacement = self._displacement(random, image.shape[-2], image.shape[-1])
        return _warp(flipped, displacement) if displacement is not None else flipped.clone()

    def places(self, size: tuple[int, int], *, seed: int, epoch: int, index: int) -> Tensor:
        """Where in the plain image each place of the warped one came from: (h, w, 2) in [-1, 1], x first.

        Of a map of `size` over the image; what lies beyond the edge is folded back, as the border is.
        """
        random = np.random.default_rng(np.random.SeedSequence((seed, epoch, index)))
        flipped = random.random() < self.flip
        y, x = (_pixel_centres(side) for side in size)
        grid = torch.stack(torch.meshgrid(x, y, indexing="xy"), dim=-1)
        moved = self._displacement(random, _FINER * size[0], _FINER * size[1])
        if moved is not None:  # of all pixels of a place the mean
            grid = grid + avg_pool2d(moved.permute(2, 0, 1), _FINER).permute(1, 2, 0)
        grid = 1 - ((grid + 1).remainder(4) - 2).abs()
        return grid * torch.tensor([-1.0, 1.0]) if flipped else grid

    @property
    def _chances(self) -> tuple[float, float, float]:
        """Of rotation, shear and perspective, in the order in which they are drawn."""
        return self.rotation_probability, self.shear_probability, self.perspective_probability

    def _displacement(self, random: np.random.Generator, height: int, width: int) -> Tensor | None:
        """How far from its own place each pixel is fetched, in half sides: (H, W, 2), x first."""
        homography = self._homography(random)
        nodes = self._node_shifts(random)
        if homography is None and nodes is None:
            return None
        moved = torch.zeros(height, width, 2)
        if homography is not None:
            moved += _projected_shift(homography, height, width)
        if nodes is not None:
            smooth = interpolate(nodes, size=(height, width), mode="bicubic", align_corners=True)
            moved += smooth[0].permute(1, 2, 0)
        return moved

    def _homography(self, random: np.random.Generator) -> np.ndarray | None:
        """Rotation, shear and perspective as one 3x3 matrix, or None when none of them was drawn."""
        drawn = [random.random() < chance for chance in self._chances]
        angle, slant = random.uniform(-1, 1, 2) * np.radians([self.rotation, self.shear])
        axis = random.integers(2)
        shifts = random.uniform(-0.5, 0.5, (4, 2)) * self.perspective
        rotate = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        shear = np.eye(3)
        shear[axis, 1 - axis] = np.tan(slant)
        parts = zip(drawn, (rotate, shear, _four_points(_CORNERS + shifts)), strict=True)
        chosen = [part for use, part in parts if use]
        return reduce(np.matmul, chosen) if chosen else None

    def _node_shifts(self, random: np.random.Generator) -> Tensor | None:
        drawn = random.random() < self.distortion_probability
        shifts = random.uniform(-2, 2, (1, 2, self.nodes, self.nodes)) * self.distortion  # the side is 2 wide
        return torch.from_numpy(shifts).float() if drawn else None


@dataclass(frozen=True)
class Normalise:
    """Bytes to the numbers a backbone was trained on: uint8 (..., 3, H, W) to float32 (..., channels, H, W).

    With one channel the image is made grey by luma first, and a mean or deviation of three is averaged.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    channels: int = 3

    def __post_init__(self) -> None:
        if self.channels not in (1, 3) or len(self.mean) not in (1, 3) or len(self.std) not in (1, 3):
            raise UserError(f"{self}: channels, and the length of mean and std, must be 1 or 3")
        if min(self.std) <= 0:
            raise UserError(f"{self}: every std must be above 0")

    def __call__(self, images: Tensor) -> Tensor:
        values = images.to(torch.float32) / 255
        if self.channels == 1:
            luma = torch.tensor(LUMA, device=images.device)[:, None, None]
            values = (values * luma).sum(dim=-3, keepdim=True)
        return (values - self._per_channel(self.mean, images)) / self._per_channel(self.std, images)

    def _per_channel(self, numbers: tuple[float, ...], images: Tensor) -> Tensor:
        given = torch.tensor(numbers, dtype=torch.float32, device=images.device)
        return (given.mean() if self.channels == 1 else given.expand(3))[..., None, None]


class View(NamedTuple):
    """What the network gets of one sample; after collation the same names with a batch axis in front."""

    inputs: Tensor  # (C, H, W) float32
    label: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a view


class Views(Dataset[View]):
    """Samples as network input; the key is (index, epoch), epoch 0 being the plain image."""

    def __init__(self, data: ImageData, normalise: Normalise, *, augment: Augment | None, seed: int) -> None:
        self.data, self.normalise, self.augment, self.seed = data, normalise, augment, seed
        self.labels: Sequence[int] = data.labels
        self._latest: tuple[int, Tensor] | None = None  # variants of one image are often asked for in a row

    @property
    def augmentations(self) -> int | None:
        """How many different augmented views an image has: as many as one likes (None), or none at all."""
        return 0 if self.augment is None else None

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, key: tuple[int, int]) -> View:
        index, epoch = key
        if self._latest is None or self._latest[0] != index:
            self._latest = (index, image_of(self.data, index))
        image = self._latest[1]
        if self.augment is not None and epoch > 0:
            image = self.augment(image, seed=self.seed, epoch=epoch, index=index)
        return View(inputs=self.normalise(image), label=self.labels[index], index=index)

    def places(self, key: tuple[int, int], size: tuple[int, int]) -> Tensor:
        """Where each place of a map of `size` over a view was in the plain image, (h, w, 2) in [-1, 1]."""
        index, epoch = key
        augment = self.augment if self.augment is not None and epoch > 0 else _STILL
        return augment.places(size, seed=self.seed, epoch=epoch, index=index)


def _warp(image: Tensor, displacement: Tensor) -> Tensor:
    """Fetch every pixel from where the displacement points, out of the image continued by reflection."""
    functional = import_guarded("torchvision.transforms.v2.functional")
    height, width = image.shape[-2:]
    x, y = _overshoot(displacement[..., 0], width), _overshoot(displacement[..., 1].T, height)
    continued = functional.pad(image, [x, y], padding_mode="reflect")
    scaled = displacement * torch.tensor([width / (width + 2 * x), height / (height + 2 * y)])
    # torchvision wants a displacement for the margin too, which is cut off at once: any will do.
    warped = functional.elastic(continued, pad(scaled, (0, 0, x, x, y, y))[None])
    return functional.center_crop(warped, [height, width])


def _overshoot(shift: Tensor, side: int) -> int:
    """How many pixels beyond the edge are looked at, so that the margin is no wider than this image needs."""
    farthest = float((_pixel_centres(side) + shift).abs().max())
    return min(max(0, int((farthest - 1) * side / 2) + 2), side - 1)  # reflection reaches one side at most


def _pixel_centres(side: int) -> Tensor:
    return (torch.arange(side) * 2 + 1) / side - 1


def _projected_shift(homography: np.ndarray, height: int, width: int) -> Tensor:
    x, y = _pixel_centres(width), _pixel_centres(height)[:, None]
    rows = homography.tolist()
    across, down, depth = (row[0] * x + (row[1] * y + row[2]) for row in rows)
    return torch.stack([across / depth - x, down / depth - y], dim=-1)


def _four_points(targets: np.ndarray) -> np.ndarray:
    """The homography that takes the corners of the square [-1, 1]² to four targets (4, 2)."""
    equations, right = [], []
    for (x, y), (u, v) in zip(_CORNERS, targets, strict=True):
        equations += [[x, y, 1, 0, 0, 0, -u * x, -u * y], [0, 0, 0, x, y, 1, -v * x, -v * y]]
        right += [u, v]
    return np.append(np.linalg.solve(np.array(equations), np.array(right)), 1.0).reshape(3, 3)


_STILL = Augment(
    rotation_probability=0, shear_probability=0, perspective_probability=0, distortion_probability=0, flip=0
)
"""Moves nothing."""
