"""What is left of the class probability when only the explanation is shown: AD, AI and AG (Section 4.2).

`DropProtocol` says which image is shown, `explained_images` makes it, and the three measures compare the
probability on it, o, with that on the whole image, p: a value per image, whose mean is the metric.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_pair, widened, within_unit
from dprotonet.metrics.ranking import ranks
from dprotonet.metrics.space import Space, blank, check_space


@dataclass(frozen=True)
class DropProtocol:
    """How the explained image is made; numbers compare only under the same `name`.

    Without `keep` the image is weighted by the heatmap ("soft"); with it that share of the pixels is shown.
    """

    keep: float | None = None
    space: Space = "normalised"

    def __post_init__(self) -> None:
        check_space(self.space)
        if self.keep is not None:
            _check_keep(self.keep)

    @property
    def name(self) -> str:
        """`soft-normalised`, `keep50-pixels`."""
        return f"{'soft' if self.keep is None else f'keep{100 * self.keep:g}'}-{self.space}"


def explained_images(
    images: Tensor, heatmaps: Tensor, *, keep: float | None, fill: Tensor | None = None
) -> Tensor:
    """What the explanation shows of the images, the rest `fill` (N, C, H, W); heatmaps (N, H, W).

    Without `keep` it is image × heat + fill × (1 - heat), and heat must be in [0, 1]. With it exactly
    round(keep · H · W) pixels are the image's, the highest of the raw map, ties in reading order. The fill
    broadcasts to the images and is in their space: None for zeros, black for the protocols named `pixels`.
    """
    check_pair(images, heatmaps)
    if keep is None:
        heat = within_unit(heatmaps, "heatmaps").unsqueeze(1).to(images.dtype)
        return images * heat if fill is None else images * heat + blank(images, fill) * (1 - heat)
    _check_keep(keep)
    kept = ranks(heatmaps) < round(keep * heatmaps[0].numel())
    return torch.where(kept.unsqueeze(1), images, blank(images, fill))


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


def _percent(part: Tensor, whole: Tensor) -> Tensor:
    return 100 * torch.where(whole > 0, part / whole, 0)


def _probabilities(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    if before.ndim != 1 or before.shape != after.shape:
        shapes = f"{tuple(before.shape)} and {tuple(after.shape)}"
        raise ValueError(f"probabilities before and after have shapes {shapes}; both must be (N,)")
    before = within_unit(widened(before), "probabilities before")
    return before, within_unit(widened(after), "probabilities after")


def _check_keep(keep: float) -> None:
    if not 0 <= keep <= 1:
        raise ValueError(f"keep is {keep}; it is a share of the pixels, from 0 to 1")
