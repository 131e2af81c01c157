"""One image whose parts are changed: what the network says before and after, and where explanations point."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, PartRenderer, Sample
from dprotonet.experiment.explaining.explainers import row_node
from dprotonet.experiment.quality.intervention.result import EXCHANGE, LEAD, ROWS, ROWS_BY_LEAD
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.metrics.intervention import SiblingContrast, importance, sibling_contrast

_BATCH = 32  # pictures that go through the network together
_AGAIN = 1_000_003  # added to the seed of the second draw; far from any seed that one would try next


@dataclass(frozen=True, eq=False)
class Subject:
    """An image, the masks (K, H, W) of its parts, and what the P prototypes say of it."""

    index: int
    sample: Sample
    parts: Tensor
    scores: Tensor  # (P,) float64
    region: Tensor  # (P,)
    predicted: int
    rival: int  # the likeliest other class
    own: Tensor  # (O,) prototypes of the predicted class, what decides most first: by lead, where known
    contributions: Tensor  # (O,) of them to the class's logit
    leads: Tensor | None  # (O,) of them over the rival; None without parts
    shown: int  # how many of them are rows of the explanation

    @property
    def rows(self) -> Tensor:
        """The prototypes (R,) that an explanation shows."""
        return self.own[: self.shown]

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
    again: Tensor  # a second, independent draw of as many exchanges
    removal: Tensor


class Joined(NamedTuple):
    """Prototypes (J,) whose heatmaps become one, and the weight (J,) of each."""

    prototypes: Tensor
    weight: Tensor


def subject_of(model: TrainedModel, data: ImageData, index: int, *, rows: int) -> Subject:
    """The image with that number, and at most `rows` prototypes that speak for what it is taken for."""
    sample, owner = data[index], model.prototyped.prototype_class.tolist()
    answer = model.answer(sample.image)
    predicted = answer.label()
    others = answer.logits().index_fill(0, torch.tensor(predicted), -torch.inf)
    own = [item for item in answer.evidence(predicted) if owner[item.prototype] == predicted]
    leads = [item.lead for item in own if item.lead is not None]
    return Subject(
        index=index,
        sample=sample,
        parts=torch.stack(list(sample.parts.values())),
        scores=answer.scores,
        region=answer.region,
        predicted=predicted,
        rival=int(others.argmax()),
        own=torch.tensor([item.prototype for item in own], dtype=torch.long),
        contributions=torch.tensor([item.contribution for item in own], dtype=torch.float64),
        leads=torch.tensor(leads, dtype=torch.float64) if leads else None,
        shown=min(rows, len(own)),
    )


def changes_of(
    model: TrainedModel, data: PartRenderer, subject: Subject, *, exchanges: int, seed: int
) -> Changes:
    """What the prototypes say of the image with every part that is seen exchanged, twice, and removed."""
    names = list(subject.sample.parts)
    pictures: list[Tensor] = []
    for part in subject.seen:
        for draw in (seed, seed + _AGAIN):
            drawn = data.exchanges(subject.index, names[part], count=exchanges, seed=draw)
            pictures += [sample.image for sample in drawn]
        pictures.append(data.removed(subject.index, names[part]).image)
    scores = scores_of(model, pictures).reshape(len(subject.seen), 2 * exchanges + 1, -1)
    every = torch.full((len(names), *scores.shape[1:]), torch.nan, dtype=torch.double)
    every[subject.seen] = scores
    return Changes(*every.split([exchanges, exchanges, 1], dim=1))


@torch.no_grad()
def scores_of(model: TrainedModel, pictures: Sequence[Tensor]) -> Tensor:
    """Scores (M, P) of pictures (3, H, W) uint8, in float64 on the CPU."""
    blocks = [pictures[start : start + _BATCH] for start in range(0, len(pictures), _BATCH)]
    found = [model.prototyped.evidence(model.inputs(block)).scores.cpu().double() for block in blocks]
    return torch.cat(found) if found else torch.zeros(0, len(model.prototypes), dtype=torch.double)


def head_weight(model: TrainedModel) -> Tensor:
    """The head's weight (C, P), in float64 on the CPU."""
    return model.network.head.weight.detach().cpu().double()


def exchange_falls(model: TrainedModel, subject: Subject, exchanged: Tensor) -> dict[str, Tensor]:
    """The truth (K,) that exchanges tell, by form: of the logit, and of its lead over the rival."""
    return {
        EXCHANGE: falls(model, subject, exchanged),
        LEAD: falls(model, subject, exchanged, over=subject.rival),
    }


def falls(model: TrainedModel, subject: Subject, changed: Tensor, *, over: int | None = None) -> Tensor:
    """How far the logit of the predicted class falls with each part (K,); changed scores (K, E, P).

    With another class as `over`, how far the lead falls: the logit less that class's.
    """
    weight = head_weight(model)[subject.predicted]
    weight = weight if over is None else weight - head_weight(model)[over]
    return importance((subject.scores @ weight)[None], (changed @ weight)[None])[0]


def row_falls(model: TrainedModel, subject: Subject, changed: Tensor) -> Tensor:
    """How far each row's own contribution falls with each part (R, K); changed scores (K, E, P)."""
    weight = head_weight(model)[subject.predicted, subject.rows]
    before, after = subject.contributions[: subject.shown], changed[..., subject.rows] * weight
    return importance(before, after.movedim(-1, 0))


def contrast_of(model: TrainedModel, subject: Subject, changed: Tensor, sibling: int) -> SiblingContrast:
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


def joins(subject: Subject, *, most: int) -> dict[str, Joined]:
    """Which prototypes are joined, by explainer: those that make the logit, and those that make the lead.

    Of each the `most` strongest; what speaks against the class is left out.
    """
    weights = {ROWS: subject.contributions}
    if subject.leads is not None:
        weights[ROWS_BY_LEAD] = subject.leads
    places = {name: _strongest(weight, most) for name, weight in weights.items()}
    return {name: Joined(subject.own[place], weights[name][place]) for name, place in places.items()}


def _strongest(values: Tensor, most: int) -> Tensor:
    """Places of at most so many positive values, the largest first; of any values where none is positive."""
    order = values.argsort(descending=True, stable=True)
    positive = order[values[order] > 0]
    return (positive if len(positive) else order)[:most]


def subject_maps(model: TrainedModel, subject: Subject, prototypes: Tensor, preset: str | Preset) -> Tensor:
    """Where the image looks like each of the prototypes (J,): heatmaps (J, H, W) of the decoder."""
    regions, place = subject.region[prototypes].unique(return_inverse=True)  # a region is decoded once
    inputs = model.inputs([subject.sample.image]).expand(len(regions), -1, -1, -1)
    node = row_node(model.prototyped, regions)
    return torch.stack([found.heatmap.cpu() for found in MDM(preset=preset).explain(inputs, node)])[place]


def joined_rows(maps: Tensor, weight: Tensor) -> Tensor:
    """One heatmap (H, W) of several (J, H, W), by their weight (J,), negative ones left out."""
    weight = weight.double().clamp_min(0)
    weight = weight if weight.any() else torch.ones_like(weight)
    return torch.einsum("rhw,r->hw", maps.double(), weight / weight.sum())
