"""One image whose parts are changed: what the network says before and after, and where explanations point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, PartRenderer, Sample
from dprotonet.experiment.evidence import contrast_in
from dprotonet.experiment.model import Model
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import RegionNode
from dprotonet.metrics.intervention import SiblingContrast, importance, sibling_contrast

_BATCH = 32  # pictures that go through the network together


@dataclass(frozen=True, eq=False)
class Subject:
    """An image, the masks (K, H, W) of its parts, and what the P prototypes say of it."""

    index: int
    sample: Sample
    parts: Tensor
    scores: Tensor  # (P,) float64
    region: Tensor  # (P,)
    predicted: int
    rows: Tensor  # (R,) prototypes of the predicted class, what decides most first
    contributions: Tensor  # (R,) of the rows
    decides: Tensor  # (R,) what rows are sorted by: their lead over the likeliest other class, where known

    @property
    def seen(self) -> list[int]:
        """The parts that have pixels."""
        found: list[int] = self.parts.flatten(1).any(dim=1).nonzero().flatten().tolist()
        return found

    @property
    def deciding(self) -> int:
        """The part that tells the class from its sibling, by its place in `sample.parts`; -1 for none."""
        names = list(self.sample.parts)
        return names.index(self.sample.deciding_part) if self.sample.deciding_part in names else -1


class Changes(NamedTuple):
    """Scores (K, E, P) of the image with each part changed in E ways; NaN for a part that is unseen."""

    exchange: Tensor
    removal: Tensor


def subject_of(model: Model, data: ImageData, index: int, *, rows: int) -> Subject:
    """The image with that number, and at most `rows` prototypes that speak for what it is taken for."""
    sample, network = data[index], model.prototyped
    with torch.no_grad():
        evidence = network.evidence(model.inputs([sample.image]))
    scores, weight = evidence.scores[0].cpu().double(), head_weight(model)
    predicted = int(evidence.logits[0].argmax())
    own = (network.prototype_class.cpu() == predicted).nonzero().flatten()
    said = (weight[predicted] * scores)[own]
    contrast = contrast_in(model, scores.tolist(), predicted)
    decides = said if contrast is None else contrast.leads.points[own]
    order = decides.argsort(descending=True, stable=True)[:rows]
    return Subject(
        index=index,
        sample=sample,
        parts=torch.stack(list(sample.parts.values())),
        scores=scores,
        region=evidence.region[0].cpu(),
        predicted=predicted,
        rows=own[order],
        contributions=said[order],
        decides=decides[order],
    )


def changes_of(model: Model, data: PartRenderer, subject: Subject, *, exchanges: int, seed: int) -> Changes:
    """What the prototypes say of the image with every part that is seen exchanged, and removed."""
    names = list(subject.sample.parts)
    pictures: list[Tensor] = []
    for part in subject.seen:
        drawn = data.exchanges(subject.index, names[part], count=exchanges, seed=seed)
        pictures += [sample.image for sample in (*drawn, data.removed(subject.index, names[part]))]
    scores = scores_of(model, pictures).reshape(len(subject.seen), exchanges + 1, -1)
    every = torch.full((len(names), *scores.shape[1:]), torch.nan, dtype=torch.double)
    every[subject.seen] = scores
    return Changes(every[:, :exchanges], every[:, exchanges:])


@torch.no_grad()
def scores_of(model: Model, pictures: Sequence[Tensor]) -> Tensor:
    """Scores (M, P) of pictures (3, H, W) uint8, in float64 on the CPU."""
    blocks = [pictures[start : start + _BATCH] for start in range(0, len(pictures), _BATCH)]
    found = [model.prototyped.evidence(model.inputs(block)).scores.cpu().double() for block in blocks]
    return torch.cat(found) if found else torch.zeros(0, len(model.prototypes), dtype=torch.double)


def head_weight(model: Model) -> Tensor:
    """The head's weight (C, P), in float64 on the CPU."""
    return model.network.head.weight.detach().cpu().double()


def falls(model: Model, subject: Subject, changed: Tensor) -> Tensor:
    """How far the logit of the predicted class falls with each part (K,); changed scores (K, E, P)."""
    weight = head_weight(model)[subject.predicted]
    return importance((subject.scores @ weight)[None], (changed @ weight)[None])[0]


def row_falls(model: Model, subject: Subject, changed: Tensor) -> Tensor:
    """How far each row's own contribution falls with each part (R, K); changed scores (K, E, P)."""
    weight = head_weight(model)[subject.predicted, subject.rows]
    return importance(subject.contributions, (changed[..., subject.rows] * weight).movedim(-1, 0))


def contrast_of(model: Model, subject: Subject, changed: Tensor, sibling: int) -> SiblingContrast:
    """What changes, scores (M, P), do to the evidence for the class and its sibling; their mean, () each."""
    label = torch.tensor(subject.sample.label).expand(len(changed))
    found = sibling_contrast(
        subject.scores.expand_as(changed),
        changed,
        weight=head_weight(model),
        prototype_class=model.prototyped.prototype_class.cpu(),
        label=label,
        sibling=torch.full_like(label, sibling),
    )
    return SiblingContrast(*(values.nanmean() for values in found))


def row_maps(model: Model, subject: Subject, preset: str | Preset) -> Tensor:
    """Where the image looks like the prototype of each row: heatmaps (R, H, W) of the decoder."""
    inputs = model.inputs([subject.sample.image]).expand(len(subject.rows), -1, -1, -1)
    node = RegionNode(model.prototyped.encoder, subject.region[subject.rows])
    return torch.stack([found.heatmap.cpu() for found in MDM(preset=preset).explain(inputs, node)])


def joined_rows(maps: Tensor, decides: Tensor) -> Tensor:
    """One heatmap (H, W) of the rows' (R, H, W), weighted by what they decide, negative ones left out."""
    weight = decides.double().clamp_min(0)
    weight = weight if weight.any() else torch.ones_like(weight)
    return torch.einsum("rhw,r->hw", maps.double(), weight / weight.sum())
