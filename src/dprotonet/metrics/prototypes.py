"""Are prototypes good ones? Small, different from each other, and on the same part of every object.

Pure functions on heatmaps (N, H, W), each of one prototype on one image, and on the object's parts, bool
(N, K, H, W), where a part that is not to be seen has no pixels. What is undefined is NaN, never a miss.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.metrics.guards import check_heat, check_maps
from dprotonet.metrics.ranking import ranks

_ROUNDING = 1e-9  # relative; sums of heat that are equal on paper may differ by this


class ExplanationSize(NamedTuple):
    """Shares of the pixels, each (N,): enough for 90 % of the heat, and above half the peak."""

    for_most: Tensor
    above_half: Tensor


class Consistency(NamedTuple):
    """Of each prototype, all (P,): its most usual part, -1 if none; in which share of the images that show
    the part it is covered, NaN if none; how many images those are; and whether the share is high enough."""

    part: Tensor
    share: Tensor
    seen: Tensor
    consistent: Tensor


def explanation_size(heatmaps: Tensor, *, most: float = 0.9) -> ExplanationSize:
    """How much of the image an explanation needs (N,); NaN for a map without heat.

    Compact explanations are better, as PIP-Net argues with the number of prototypes; here the size of a
    heatmap: the hottest pixels that together hold `most` of the heat, and those above half its
    peak, as shares of H · W.
    """
    check_maps(heatmaps, "heatmaps")
    check_heat(heatmaps, "explanation size")
    heat = heatmaps.flatten(1).double().sort(dim=1, descending=True).values
    total, peak = heat.sum(dim=1, keepdim=True), heat[:, :1]
    short = heat.cumsum(dim=1) < most * total * (1 - _ROUNDING)  # before the pixel that completes it
    needed = (short.sum(dim=1) + 1).double() / heat.shape[1]
    above = (heat > peak / 2).double().mean(dim=1)
    return ExplanationSize(*(values.masked_fill(peak[:, 0] == 0, torch.nan) for values in (needed, above)))


def duplicates(vectors: Tensor, prototype_class: Tensor, *, tolerance: float) -> list[list[int]]:
    """Groups of prototypes of one class that coincide; vectors (P, D), prototype_class (P,).

    Prototypes pushed onto the same region say the same thing twice; ProtoPShare merges such. Two coincide
    when their Euclidean distance is at most `tolerance`, and so do all in a chain of such pairs. Groups have
    two members or more, and come in the order of their first.
    """
    if not tolerance >= 0:
        raise ValueError(f"tolerance is {tolerance}; it is a distance, 0 or more")
    if vectors.ndim != 2 or prototype_class.shape != vectors.shape[:1]:
        shapes = f"vectors {tuple(vectors.shape)} against classes {tuple(prototype_class.shape)}"
        raise ValueError(f"{shapes}; they must be (P, D) and (P,)")
    groups: list[list[int]] = []
    for label in prototype_class.unique():
        members = (prototype_class == label).nonzero().flatten()
        groups += [members[group].tolist() for group in _chains(_near(vectors[members], tolerance))]
    return sorted(group for group in groups if len(group) > 1)


def twins(vectors: Tensor, prototype_class: Tensor, *, tolerance: float = 1e-3) -> dict[int, tuple[int, ...]]:
    """Of every prototype that has some, those that coincide with it; `tolerance` is a share of their norm."""
    distance = tolerance * float(vectors.detach().norm(dim=1).mean())
    groups = duplicates(vectors, prototype_class, tolerance=distance)
    return {number: tuple(n for n in group if n != number) for group in groups for number in group}


def stability(before: Tensor, after: Tensor, parts: Tensor) -> Tensor:
    """1 where a heatmap peaks on the same part after the image was perturbed as before, else 0 (N,).

    The stability score of Huang et al. (2023), with the peak itself in place of a box around it: the set of
    parts (K may overlap) at the first hottest pixel must be the same. NaN where the peak before is on no
    part; heatmaps (N, H, W) before and after, parts of the unperturbed image (N, K, H, W).
    """
    check_parts(before, parts)
    check_parts(after, parts)
    first, second = (_parts_at_peak(maps, parts) for maps in (before, after))
    same = (first == second).all(dim=1).double()
    return same.masked_fill(~first.any(dim=1), torch.nan)


def covered_parts(heatmaps: Tensor, parts: Tensor, *, share: float = 0.1) -> Tensor:
    """Whether the hottest `share` of the pixels and a part share half of the smaller of the two: (N, K).

    As the consistency score of Huang et al. (2023) asks it, with masks for their keypoints; their box has a
    tenth of the pixels.
    """
    check_parts(heatmaps, parts)
    if not 0 < share <= 1:
        raise ValueError(f"share is {share}; it is a share of the pixels, above 0 and up to 1")
    size = max(1, round(share * heatmaps[0].numel()))
    common = (parts & (ranks(heatmaps) < size).unsqueeze(1)).flatten(2).sum(dim=2)
    whole = parts.flatten(2).sum(dim=2)
    return (2 * common >= whole.clamp_max(size)) & (whole > 0)


def usual_part(
    covered: Tensor,
    visible: Tensor,
    prototype: Tensor,
    *,
    threshold: float = 0.8,
    prototypes: int | None = None,
) -> Consistency:
    """Is a prototype always on the same part? The one it covers most often where that is to be seen.

    Flags are bool (N, K), of images of its class, which `prototype` (N,) names; it is consistent when the
    part is covered in `threshold` of the images that show it. Without `prototypes`, their number, the highest
    named one is the last.
    """
    if prototype.shape != covered.shape[:1]:
        raise ValueError(f"prototype has shape {tuple(prototype.shape)}; it must be ({len(covered)},)")
    count = int(prototype.max()) + 1 if prototypes is None else prototypes
    hits, shown = (_per_prototype(flags, prototype, count) for flags in (covered & visible, visible))
    rates = torch.where(shown > 0, hits / shown, -1.0)
    best, part = rates.max(dim=1)
    seen = shown.gather(1, part.unsqueeze(1)).squeeze(1).long()
    unknown = seen == 0
    return Consistency(
        part.masked_fill(unknown, -1), best.masked_fill(unknown, torch.nan), seen, best >= threshold
    )


def _near(vectors: Tensor, tolerance: float) -> Tensor:
    """Which pairs are close, bool (M, M); differences, for a product of float32 blurs what is equal."""
    wide = vectors.detach().double()
    return torch.cdist(wide, wide, compute_mode="donot_use_mm_for_euclid_dist") <= tolerance


def _chains(near: Tensor) -> list[list[int]]:
    """Members connected by pairs, each in order."""
    left, groups = set(range(len(near))), []
    while left:
        group, fresh = set(), {min(left)}
        while fresh:
            group |= fresh
            fresh = {int(i) for i in near[sorted(fresh)].any(dim=0).nonzero()} - group
        groups.append(sorted(group))
        left -= group
    return groups


def _parts_at_peak(maps: Tensor, parts: Tensor) -> Tensor:
    """Which parts lie at the hottest pixel, bool (N, K)."""
    return (parts & (ranks(maps) == 0).unsqueeze(1)).flatten(2).any(dim=2)


def _per_prototype(flags: Tensor, prototype: Tensor, count: int) -> Tensor:
    """In how many images of each prototype a flag (N, K) is up: (P, K)."""
    return torch.zeros(count, flags.shape[1], dtype=torch.double, device=flags.device).index_add_(
        0, prototype, flags.double()
    )


def check_parts(maps: Tensor, parts: Tensor) -> None:
    """Maps are (N, H, W) and parts bool (N, K, H, W) of the same images."""
    check_maps(maps)
    fits = parts.ndim == 4 and (len(parts), *parts.shape[2:]) == maps.shape and parts.shape[1] > 0
    if not fits or parts.dtype != torch.bool:
        shapes = f"maps {tuple(maps.shape)} against parts {tuple(parts.shape)} {parts.dtype}"
        raise ValueError(f"{shapes}; they must be (N, H, W) and bool (N, K, H, W)")
