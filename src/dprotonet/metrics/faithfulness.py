"""Does the class probability follow the explanation? AD, AI, AG, deletion and insertion (Section 4.2).

Everything here is a value per image; the metric is the mean. Deletion, insertion and `keep` rank pixels, so
they want the *raw* map: a thresholded one ties most pixels, and tied pixels come in reading order. The
classifier is a callable; which class, which softmax and which device are the caller's. Images are masked in
the space they are given in, normalised as a rule: name that space with the numbers, it changes AD threefold.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import conv2d

Score = Callable[[Tensor, Tensor], Tensor]
"""Images (B, C, H, W) and rows (B,), which of the N explained images each derives from, to the probability
(B,) of that image's class."""

_ROUNDING = 1e-3  # by which a heatmap or probability in half precision may leave [0, 1]; it is clamped


@dataclass(frozen=True)
class RiseProtocol:
    """Deletion and insertion as in RISE's reference code; numbers compare only under the same `name`.

    Pixels change from the highest value of the raw map down, ties in reading order (stable sort), an equal
    number each step, rounded down where it does not divide. Deletion goes from the image to zeros in the
    space of the images given (normalised). Insertion goes to the image from its blur, `kernel` × `kernel`
    with `sigma`, zero padded. The area is (sum - first / 2 - last / 2) / steps. `batch` masked images at a
    time: speed, not meaning.

    Unstated: the steps; 28, as in RISE's evaluation of many images, that is 1,792 pixels each at 224 × 224.
    """

    steps: int = 28
    kernel: int = 11
    sigma: float = 5.0
    batch: int = 64

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch < 1 or self.kernel < 1 or not self.kernel % 2 or not self.sigma > 0:
            raise ValueError(f"steps, batch and sigma must be positive, kernel positive and odd: {self}")

    @property
    def name(self) -> str:
        standard = (self.kernel, self.sigma) == (11, 5.0)
        return f"rise-{self.steps}" + ("" if standard else f"-blur{self.kernel}-sigma{self.sigma:g}")


def deletion_curves(score: Score, images: Tensor, maps: Tensor, *, protocol: RiseProtocol) -> Tensor:
    """Probability while the hottest pixels vanish (N, steps + 1); images (N, C, H, W), maps (N, H, W)."""
    _check_pair(images, maps)
    return _curves(score, images, images.new_zeros(()).expand_as(images), maps, protocol)


def insertion_curves(score: Score, images: Tensor, maps: Tensor, *, protocol: RiseProtocol) -> Tensor:
    """Probability while the hottest pixels sharpen (N, steps + 1); images (N, C, H, W), maps (N, H, W)."""
    _check_pair(images, maps)
    return _curves(score, _blurred(images, protocol), images, maps, protocol)


def area_under(curves: Tensor) -> Tensor:
    """Trapezoids over a unit interval (N,), so that a constant curve has its own value; curves (N, S + 1)."""
    if curves.ndim != 2 or curves.shape[1] < 2:
        raise ValueError(f"curves have shape {tuple(curves.shape)}; they must be (N, 2 or more)")
    return (curves.sum(dim=1) - curves[:, 0] / 2 - curves[:, -1] / 2) / (curves.shape[1] - 1)


def explained_images(images: Tensor, heatmaps: Tensor, *, keep: float | None) -> Tensor:
    """What the explanation shows of the images, the rest zero (N, C, H, W); heatmaps (N, H, W).

    Without `keep` the image times the heatmap, which must be in [0, 1]. With it exactly
    round(keep · H · W) pixels, the highest of the raw map, ties in reading order.
    """
    _check_pair(images, heatmaps)
    if keep is None:
        return images * _within_unit(heatmaps, "heatmaps").unsqueeze(1).to(images.dtype)
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is {keep}; it is a share of the pixels, from 0 to 1")
    kept = ranks(heatmaps) < round(keep * heatmaps[0].numel())
    return torch.where(kept.unsqueeze(1), images, 0)


def average_drop(before: Tensor, after: Tensor) -> Tensor:
    """max(0, p - o) / p in percent (N,), o on the explained image; 0 where p is 0, nothing can be lost.

    Deviation: the paper's sum has no 1/N; the mean of these values is the metric, as in Grad-CAM++.
    """
    before, after = _probabilities(before, after)
    return _percent((before - after).clamp_min(0), before)


def average_increase(before: Tensor, after: Tensor) -> Tensor:
    """100 where o > p, else 0 (N,)."""
    before, after = _probabilities(before, after)
    return 100 * (after > before).to(before.dtype)


def average_gain(before: Tensor, after: Tensor) -> Tensor:
    """max(0, o - p) / (1 - p) in percent (N,); 0 where p is 1, nothing can be gained."""
    before, after = _probabilities(before, after)
    return _percent((after - before).clamp_min(0), 1 - before)


def ranks(maps: Tensor) -> Tensor:
    """Place of every pixel, 0 the hottest, ties in reading order; int64 (N, H, W) of maps (N, H, W)."""
    if maps.ndim != 3 or not maps.numel():
        raise ValueError(f"maps have shape {tuple(maps.shape)}; they must be (N, H, W), none of them 0")
    _check_numbers(maps, "maps")
    order = maps.flatten(1).sort(dim=1, descending=True, stable=True).indices
    places = torch.arange(order.shape[1], device=maps.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, places).reshape(maps.shape)


@torch.no_grad()
def _curves(score: Score, start: Tensor, end: Tensor, maps: Tensor, protocol: RiseProtocol) -> Tensor:
    """Scores on the way from start to end, a batch of (image, step) pairs at a time."""
    order, points = ranks(maps), protocol.steps + 1
    pixels = torch.arange(points, device=maps.device) * maps[0].numel() // protocol.steps
    scores = []
    for pair in torch.arange(len(maps) * points, device=maps.device).split(protocol.batch):
        rows = pair // points
        changed = order[rows] < pixels[pair % points].view(-1, 1, 1)
        scores.append(_scored(score, torch.where(changed.unsqueeze(1), end[rows], start[rows]), rows))
    return torch.cat(scores).view(len(maps), points)


def _scored(score: Score, images: Tensor, rows: Tensor) -> Tensor:
    values = score(images, rows)
    if values.shape != rows.shape:
        raise ValueError(f"score gave {tuple(values.shape)} for {len(rows)} images; it must give (B,)")
    return _wide(values)


def _blurred(images: Tensor, protocol: RiseProtocol) -> Tensor:
    """Images under the separable kernel, outside counted as zero."""
    weights = _blur_weights(protocol.kernel, protocol.sigma).to(images)
    planes, reach = images.flatten(0, 1).unsqueeze(1), protocol.kernel // 2
    rows = conv2d(planes, weights.view(1, 1, 1, -1), padding=(0, reach))
    return conv2d(rows, weights.view(1, 1, -1, 1), padding=(reach, 0)).reshape(images.shape)


def _blur_weights(kernel: int, sigma: float) -> Tensor:
    """The reference's Gaussian (kernel,): tails out to 4 sigma are folded back at the ends, not cut off."""
    reach = int(4 * sigma + 0.5)
    offsets = torch.arange(-reach, reach + 1)
    gauss = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    place = (offsets + kernel // 2) % (2 * kernel)
    folded = torch.minimum(place, 2 * kernel - 1 - place)
    return torch.zeros(kernel, dtype=torch.double).index_add_(0, folded, gauss / gauss.sum())


def _percent(part: Tensor, whole: Tensor) -> Tensor:
    return 100 * torch.where(whole > 0, part / whole, 0)


def _probabilities(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    if before.ndim != 1 or before.shape != after.shape:
        shapes = f"{tuple(before.shape)} and {tuple(after.shape)}"
        raise ValueError(f"probabilities before and after have shapes {shapes}; both must be (N,)")
    before = _within_unit(_wide(before), "probabilities before")
    return before, _within_unit(_wide(after), "probabilities after")


def _wide(values: Tensor) -> Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _within_unit(values: Tensor, what: str) -> Tensor:
    _check_numbers(values, what)
    if ((values < -_ROUNDING) | (values > 1 + _ROUNDING)).any():
        raise ValueError(
            f"{what} reach from {values.min():.4g} to {values.max():.4g}; they must be in [0, 1]"
        )
    return values.clamp(0, 1)


def _check_pair(images: Tensor, maps: Tensor) -> None:
    fits = images.ndim == 4 and maps.shape == (len(images), *images.shape[2:])
    if not fits or not images.is_floating_point():
        shapes = f"images {tuple(images.shape)} {images.dtype} against maps {tuple(maps.shape)}"
        raise ValueError(f"{shapes}; they must be (N, C, H, W) of floats and (N, H, W)")


def _check_numbers(values: Tensor, what: str) -> None:
    broken = values.isnan().nonzero()
    if len(broken):
        raise ValueError(f"{what} of image {int(broken[0, 0])} contain NaN")
