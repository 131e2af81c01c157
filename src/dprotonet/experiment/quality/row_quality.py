"""What maps of prototypes are worth on one image, and over many: the run's maps and the controls alike.

`judged` looks at one image; `table` makes means over images of it, with intervals. Which images and
prototypes are looked at is left to `quality`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.experiment.quality.row_maps import RowMaps
from dprotonet.metrics.comparison import Interval, mean_interval, statistic_interval
from dprotonet.metrics.distinctness import Coverage, coverage, distinctness, keypoint_coverage
from dprotonet.metrics.keypoints import (
    Size,
    centroids,
    keypoint_consistency,
    keypoint_stability,
    peaks,
    purity,
    sides_merged,
)
from dprotonet.metrics.misalignment import activation_change, far_exchanged, misalignment
from dprotonet.metrics.prototypes import Consistency, explanation_size
from dprotonet.metrics.randomisation import rank_correlation

MEASURES = {
    "overlap": "overlap of rows (IoU) ↓",
    "apart": "rows at different places ↑",
    "named": "parts at the peaks ↑",
    "covered": "parts covered ↑",
    "consistency": "usual part covered ↑",
    "consistent": "consistent prototypes ↑",
    "stability": "stability ↑",
    "purity": "purity ↑",
    "location": "far change: place lost ↓",
    "moved": "far change: peak moves, px ↓",
    "activation": "far change: score lost ↓",
    "size": "size ↓",
    "steadiness": "steadiness ↑",
}
"""Every line of the table and what it is called there."""

Scores = Callable[[Tensor], Tensor]  # images (M, C, H, W) to scores (M, P)
Keypoints = Mapping[str, tuple[float, float]]
Table = dict[str, dict[str, Interval]]  # by measure, then by whose maps


@dataclass(frozen=True)
class Scene:
    """An image (1, C, H, W) to look at: with noise, another image, the rows shown, its class's prototypes.

    Without noise or the other image, what needs them is left out.
    """

    sample: Sample
    image: Tensor
    noisy: Tensor | None
    other: Tensor | None
    rows: Sequence[int]
    own: Sequence[int]


class Judged(NamedTuple):
    """Values of one image by measure, NaN where unknown; maps of its class's prototypes, also under noise."""

    values: dict[str, float]
    own: Tensor
    shaken: Tensor | None


class PeakPoints(NamedTuple):
    """Where prototypes were found, pair by pair: points (M, 2), prototypes (M,), numbers of images (M,)."""

    points: Tensor
    prototype: Tensor
    image: Tensor


def judged(scene: Scene, maps: RowMaps, *, scores: Scores | None = None) -> Judged:
    """One image; `scores` only for maps of a network, whose own they are."""
    numbers = list(dict.fromkeys([*scene.rows, *scene.own]))
    plain = dict(zip(numbers, maps(scene.image, numbers, scene.sample), strict=True))
    rows, own = (torch.stack([plain[number] for number in some]) for some in (scene.rows, scene.own))
    shown, found = distinctness(rows), _coverage(rows, scene.sample)
    values = {"overlap": shown.iou, "apart": shown.apart, "named": found.named, "covered": found.covered}
    shaken = None
    if scene.noisy is not None:
        shaken = maps(scene.noisy, scene.own, scene.sample)
        values["stability"] = _stability(own, shaken, scene.sample)
    if scene.other is not None:
        values |= _far(scene, rows, maps, scores)
    if scores is not None:
        values["size"] = _mean(explanation_size(rows).for_most)
        values["steadiness"] = _mean(rank_correlation(own, shaken)) if shaken is not None else torch.nan
    return Judged(values, own, shaken)


def part_points(sample: Sample) -> Keypoints:
    """Keypoints of the parts to be seen: those that are given, or the middles of the parts' masks."""
    if sample.keypoints or not sample.parts:
        return sample.keypoints
    middles = centroids(torch.stack(list(sample.parts.values())).unsqueeze(0))[0]
    placed = zip(sample.parts, middles.tolist(), strict=True)
    return {name: (x, y) for name, (x, y) in placed if x == x}


def mean_rows(seen: Mapping[str, Sequence[Mapping[str, float]]]) -> Table:
    """Means over images, of the values that `judged` found on each, by whose maps."""
    table: Table = {}
    for measure in MEASURES:
        for name, images in seen.items():
            values = [one[measure] for one in images if measure in one]
            if values:
                table.setdefault(measure, {})[name] = mean_interval(torch.tensor(values, dtype=torch.double))
    return table


def consistency_rows(
    found: Mapping[str, PeakPoints], points: Sequence[Keypoints], labels: Sequence[int], size: Size
) -> Table:
    """Consistency after Huang et al., by whose maps; points of each image, whose classes are `labels`."""
    table: Table = {"consistency": {}, "consistent": {}}
    for name, pairs in found.items():
        keypoints = _tensor(points)[0][pairs.image]
        number = pairs.prototype.unique(return_inverse=True)[1]

        def usual(
            some: Tensor, pairs: PeakPoints = pairs, keys: Tensor = keypoints, of: Tensor = number
        ) -> Consistency:
            return keypoint_consistency(pairs.points[some], keys[some], of[some], size=size)

        groups = torch.as_tensor(labels)
        table["consistency"][name] = _resampled(lambda some: _mean(usual(some).share), pairs, groups)
        table["consistent"][name] = _resampled(lambda some: _consistent(usual(some)), pairs, groups)
    return table


def purity_row(found: Mapping[str, PeakPoints], points: Sequence[Keypoints], size: Size) -> Table:
    """Mean purity after Nauta et al., by whose maps; the pairs are the strongest images of prototypes."""
    keypoints, names = _tensor(points)
    groups, row = torch.zeros(len(points)), dict[str, Interval]()
    for name, pairs in found.items():

        def pure(some: Tensor, pairs: PeakPoints = pairs) -> float:
            keys, number = keypoints[pairs.image[some]], pairs.prototype[some].unique(return_inverse=True)[1]
            return _mean(purity(pairs.points[some], keys, number, size=size, same=sides_merged(names)).share)

        row[name] = _resampled(pure, pairs, groups)
    return {"purity": row}


def _coverage(rows: Tensor, sample: Sample) -> Coverage:
    """By keypoints where they are given, else by masks; unknown without parts."""
    if sample.keypoints:
        keypoints = torch.tensor(list(sample.keypoints.values()), dtype=torch.double)
        return keypoint_coverage(peaks(rows), keypoints, size=_size(sample))
    if not sample.parts:
        return Coverage(torch.nan, torch.nan, 0)
    return coverage(rows, torch.stack(list(sample.parts.values())))


def _stability(own: Tensor, shaken: Tensor, sample: Sample) -> float:
    points = part_points(sample)
    if not points:
        return torch.nan
    keypoints = torch.tensor(list(points.values()), dtype=torch.double).expand(len(own), -1, -1)
    return _mean(keypoint_stability(peaks(own), peaks(shaken), keypoints, size=_size(sample)))


def _far(scene: Scene, rows: Tensor, maps: RowMaps, scores: Scores | None) -> dict[str, float]:
    """The rows once more, each on the image of which only the surroundings of its peak are left."""
    assert scene.other is not None
    images, others = (part.expand(len(rows), -1, -1, -1) for part in (scene.image, scene.other))
    changed = far_exchanged(images, others, peaks(rows).to(images.device))
    gone = misalignment(rows, maps(changed, scene.rows, scene.sample))
    values = {"location": _mean(gone.location), "moved": _mean(gone.moved)}
    if scores is not None:
        which = torch.arange(len(rows)), torch.as_tensor(scene.rows)
        before, after = scores(scene.image).cpu()[0, which[1]], scores(changed).cpu()[which]
        values["activation"] = _mean(activation_change(before, after))
    return values


def _resampled(statistic: Callable[[Tensor], float], pairs: PeakPoints, groups: Tensor) -> Interval:
    """A statistic of pairs, with the images resampled."""
    members = [(pairs.image == number).nonzero().flatten() for number in range(len(groups))]
    return statistic_interval(
        lambda drawn: statistic(torch.cat([members[number] for number in drawn.tolist()])), groups
    )


def _consistent(found: Consistency) -> float:
    return _mean(found.consistent.double().masked_fill(found.seen == 0, torch.nan))


def _tensor(points: Sequence[Keypoints]) -> tuple[Tensor, list[str]]:
    """All keypoints (N, K, 2), NaN where not to be seen, and the names of the K parts."""
    names = sorted({name for one in points for name in one})
    unseen = (torch.nan, torch.nan)
    rows = [[one.get(name, unseen) for name in names] for one in points]
    return torch.tensor(rows, dtype=torch.double), names


def _size(sample: Sample) -> Size:
    return sample.image.shape[-2], sample.image.shape[-1]


def _mean(values: Tensor) -> float:
    return float(values.double().nanmean())
