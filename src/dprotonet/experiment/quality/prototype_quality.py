"""One prototype after the other: size, steadiness, stability and consistency on masks of parts, and twins."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.experiment.quality.row_quality import Judged, Scene
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.metrics.prototypes import covered_parts, explanation_size, stability, twins, usual_part
from dprotonet.metrics.randomisation import rank_correlation


@dataclass(frozen=True)
class PrototypeQuality:
    """One prototype, as means over the images it was looked for in; None where nothing can be said."""

    prototype: int
    class_name: str
    images: int
    size: float | None  # share of the pixels that hold 90 % of the heat
    steadiness: float | None  # rank correlation of the heatmap with that under noise
    stability: float | None  # share of images whose heatmap peaks on the same part under noise
    consistency: float | None  # share of images in which it covers its most usual part
    part: str | None  # that part
    twins: tuple[int, ...]  # prototypes of its class that coincide with it


class PrototypePair(NamedTuple):
    """A prototype in an image of its class; parts by name, with masks for keypoints."""

    prototype: int
    size: float
    steadiness: float
    stability: float
    covered: frozenset[str]
    visible: frozenset[str]


def prototype_pairs(scene: Scene, found: Judged) -> list[PrototypePair]:
    """What is known of each prototype of the image's class in the image."""
    names, count = sorted(scene.sample.parts), len(scene.own)
    parts = _parts(scene.sample, names).expand(count, -1, -1, -1)
    size = explanation_size(found.own).for_most.tolist()
    unknown = [torch.nan] * count
    steady = unknown if found.shaken is None else rank_correlation(found.own, found.shaken).tolist()
    stable = (
        stability(found.own, found.shaken, parts).tolist() if names and found.shaken is not None else unknown
    )
    covered = covered_parts(found.own, parts) if names else torch.zeros(count, 0, dtype=torch.bool)
    visible = frozenset(name for name in names if scene.sample.parts[name].any())
    on = [frozenset(name for name, hit in zip(names, row, strict=True) if hit) for row in covered.tolist()]
    return [PrototypePair(*pair, visible) for pair in zip(scene.own, size, steady, stable, on, strict=True)]


def prototype_qualities(
    model: TrainedModel, pairs: Sequence[PrototypePair], *, tolerance: float
) -> list[PrototypeQuality]:
    """Every prototype of the pairs, in order; `tolerance` is that of `twins`."""
    network = model.prototyped
    vectors, classes = network.prototypes.vectors.cpu(), network.prototype_class.cpu()
    same = twins(vectors, classes, tolerance=tolerance)
    found = []
    for number in sorted({pair.prototype for pair in pairs}):
        own = [pair for pair in pairs if pair.prototype == number]
        share, part = _usual(own)
        found.append(
            PrototypeQuality(
                prototype=number,
                class_name=model.prototypes[number].class_name,
                images=len(own),
                size=_mean([pair.size for pair in own]),
                steadiness=_mean([pair.steadiness for pair in own]),
                stability=_mean([pair.stability for pair in own]),
                consistency=share,
                part=part,
                twins=same.get(number, ()),
            )
        )
    return found


def _usual(pairs: Sequence[PrototypePair]) -> tuple[float | None, str | None]:
    """In which share of the images a prototype covers its most usual part, and that part."""
    names = sorted({name for pair in pairs for name in pair.visible})
    if not names:
        return None, None
    covered, visible = (
        torch.tensor([[name in flags for name in names] for flags in column])
        for column in ([pair.covered for pair in pairs], [pair.visible for pair in pairs])
    )
    usual = usual_part(covered, visible, torch.zeros(len(pairs), dtype=torch.long))
    return float(usual.share[0]), names[int(usual.part[0])]


def _parts(sample: Sample, names: Sequence[str]) -> Tensor:
    """Masks of the parts (K, H, W)."""
    height, width = sample.image.shape[-2:]
    nothing = torch.zeros(0, height, width, dtype=torch.bool)
    return torch.stack([sample.parts[name] for name in names]) if names else nothing


def _mean(values: Sequence[float]) -> float | None:
    mean = float(torch.tensor(values, dtype=torch.double).nanmean())
    return None if mean != mean else mean
