"""How the class probability falls and rises as the hottest pixels go and come: deletion and insertion.

As in RISE's reference code (Section 4.2); `RiseProtocol` holds every number of it. The classifier is a
callable; which class, which softmax and which device are the caller's. Everything is a value per image.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from dprotonet.metrics.guards import check_pair, widened
from dprotonet.metrics.ranking import ranks
from dprotonet.metrics.space import Space, blank, check_space

Score = Callable[[Tensor, Tensor], Tensor]
"""Images (B, C, H, W) and rows (B,), which of the N explained images each derives from, to the probability
(B,) of that image's class."""


@dataclass(frozen=True)
class RiseProtocol:
    """Deletion and insertion as in RISE's reference code; numbers compare only under the same `name`.

    Pixels change from the highest value of the raw map down, ties in reading order (stable sort): `steps`
    times an equal number, rounded down where it does not divide, or `pixels_a_step` at a time, the last step
    taking what is left; one of the two is None. Deletion goes from the image to a blank one, zeros in the
    `space` named. Insertion goes to the image from its blur, `kernel` × `kernel` with `sigma`, the outside
    blank. The area is (sum - first / 2 - last / 2) / steps. `batch` masked images at a time: speed, no
    meaning.

    Unstated: the steps; 28, as in RISE's evaluation of many images, that is 1,792 pixels each at 224 × 224.
    """

    steps: int | None = 28
    kernel: int = 11
    sigma: float = 5.0
    batch: int = 64
    pixels_a_step: int | None = None
    space: Space = "normalised"

    def __post_init__(self) -> None:
        check_space(self.space)
        if (self.steps is None) == (self.pixels_a_step is None):
            raise ValueError(f"one of steps and pixels_a_step must be given, the other None: {self}")
        counts = (self.batch, self.kernel, self.steps or self.pixels_a_step or 0)
        if min(counts) < 1 or not self.kernel % 2 or not self.sigma > 0:
            raise ValueError(f"steps, batch and sigma must be positive, kernel positive and odd: {self}")

    @classmethod
    def reference(cls) -> "RiseProtocol":
        """As RISE explains single images: 224 pixels a step, that is 224 steps at 224 × 224."""
        return cls(steps=None, pixels_a_step=224)

    @property
    def name(self) -> str:
        """`rise-28`, `rise-224px`; what is not standard is added, as in `rise-28-pixels`."""
        pace = f"{self.pixels_a_step}px" if self.steps is None else f"{self.steps}"
        blur = "" if (self.kernel, self.sigma) == (11, 5.0) else f"-blur{self.kernel}-sigma{self.sigma:g}"
        return f"rise-{pace}{blur}{'' if self.space == 'normalised' else f'-{self.space}'}"

    def changed(self, pixels: int) -> Tensor:
        """How many of an image's pixels have changed at every point of the curve, from 0 to all (S + 1,)."""
        if self.steps is not None:
            return torch.arange(self.steps + 1) * pixels // self.steps
        pace = self.pixels_a_step or pixels
        return (torch.arange(math.ceil(pixels / pace) + 1) * pace).clamp_max(pixels)


def deletion_curves(
    score: Score, images: Tensor, maps: Tensor, *, protocol: RiseProtocol, fill: Tensor | None = None
) -> Tensor:
    """Probability while the hottest pixels vanish (N, S + 1); images (N, C, H, W), maps (N, H, W).

    `fill` is what black is in the space of the images, given just when the protocol's space is `pixels`.
    """
    check_pair(images, maps)
    return _curves(score, images, _blank(images, protocol, fill), maps, protocol)


def insertion_curves(
    score: Score, images: Tensor, maps: Tensor, *, protocol: RiseProtocol, fill: Tensor | None = None
) -> Tensor:
    """Probability while the hottest pixels sharpen (N, S + 1); arguments as of `deletion_curves`."""
    check_pair(images, maps)
    return _curves(score, _blurred(images, _blank(images, protocol, fill), protocol), images, maps, protocol)


def curves_between(
    score: Score, start: Tensor, end: Tensor, maps: Tensor, *, protocol: RiseProtocol
) -> Tensor:
    """Probability while the hottest pixels of `start` become those of `end` (N, S + 1)."""
    check_pair(start, maps)
    check_pair(end, maps)
    return _curves(score, start, end, maps, protocol)


def area_under(curves: Tensor) -> Tensor:
    """Trapezoids over a unit interval (N,), so that a constant curve has its own value; curves (N, S + 1)."""
    if curves.ndim != 2 or curves.shape[1] < 2:
        raise ValueError(f"curves have shape {tuple(curves.shape)}; they must be (N, 2 or more)")
    return (curves.sum(dim=1) - curves[:, 0] / 2 - curves[:, -1] / 2) / (curves.shape[1] - 1)


@torch.no_grad()
def _curves(score: Score, start: Tensor, end: Tensor, maps: Tensor, protocol: RiseProtocol) -> Tensor:
    """Scores on the way from start to end, a batch of (image, step) pairs at a time."""
    order = ranks(maps).int()  # compared often: half the memory is half the time
    changed = protocol.changed(maps[0].numel()).to(order)
    points, scores = len(changed), []
    for pair in torch.arange(len(maps) * points, device=maps.device).split(protocol.batch):
        rows = pair // points
        mixed = _mixed(start, end, order, rows=rows, limits=changed[pair % points])
        scores.append(_scored(score, mixed, rows))
    return torch.cat(scores).view(len(maps), points)


def _mixed(start: Tensor, end: Tensor, order: Tensor, *, rows: Tensor, limits: Tensor) -> Tensor:
    """Images (B, C, H, W) whose first `limits` (B,) pixels in the order of their row come from end.

    Image by image, because the steps of one share its pixels: copying them for every step took most time.
    """
    mixed, done = start.new_empty(len(rows), *start.shape[1:]), 0
    numbers, counts = rows.unique_consecutive(return_counts=True)
    for row, count in zip(numbers.tolist(), counts.tolist(), strict=True):
        own = slice(done, done + count)
        torch.where(order[row] < limits[own].view(-1, 1, 1, 1), end[row], start[row], out=mixed[own])
        done += count
    return mixed


def _scored(score: Score, images: Tensor, rows: Tensor) -> Tensor:
    values = score(images, rows)
    if values.shape != rows.shape:
        raise ValueError(f"score gave {tuple(values.shape)} for {len(rows)} images; it must give (B,)")
    return widened(values)


def _blank(images: Tensor, protocol: RiseProtocol, fill: Tensor | None) -> Tensor:
    if (fill is None) != (protocol.space == "normalised"):
        given = "no fill is given" if fill is None else "a fill is given"
        raise ValueError(
            f"{given} for {protocol.name}; space pixels wants what black is, normalised wants None"
        )
    return blank(images, fill)


def _blurred(images: Tensor, outside: Tensor, protocol: RiseProtocol) -> Tensor:
    """Images under the separable kernel, all around them blank.

    Not the blur of interpretation/ranked_masks.py, on purpose: that one repeats the border and is a reference
    to learn against; this one is the protocol's, to the digit, and rooms of one floor do not meet.
    """
    weights = _blur_weights(protocol.kernel, protocol.sigma).to(images)
    planes, reach = (images - outside).flatten(0, 1).unsqueeze(1), protocol.kernel // 2
    rows = conv2d(planes, weights.view(1, 1, 1, -1), padding=(0, reach))
    return outside + conv2d(rows, weights.view(1, 1, -1, 1), padding=(reach, 0)).reshape(images.shape)


def _blur_weights(kernel: int, sigma: float) -> Tensor:
    """The reference's Gaussian (kernel,): tails out to 4 sigma are folded back at the ends, not cut off."""
    reach = int(4 * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1)
    gauss = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    place = (offsets + kernel // 2) % (2 * kernel)
    folded = torch.minimum(place, 2 * kernel - 1 - place)
    return torch.zeros(kernel, dtype=torch.double).index_add_(0, folded, gauss / gauss.sum())
