"""What decides between two classes, where each has a prototype of the same part.

A part that two classes share looks like both their prototypes: it says much for each, and decides nothing.
The difference of what a part says for a class and for its rival does; over all parts these differences add up
to that of the logits.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize


class Leads(NamedTuple):
    """The likeliest other class, and how far each prototype (P,) leads over it; NaN for other classes'."""

    rival: int
    points: Tensor


def leads(scores: Tensor, *, weight: Tensor, part: Tensor, prototype_class: Tensor, label: int) -> Leads:
    """Of the prototypes of `label`: scores, part and prototype_class (P,), weight (C, P).

    What all prototypes of a part say for the class, less what they say for the rival; several prototypes of
    the class that share a part share its lead.
    """
    rival = int(likeliest_other((weight @ scores)[None], torch.tensor([label])))
    apart = (weight[label] - weight[rival]) * scores
    return Leads(rival, shared_leads(apart, part=part, own=prototype_class == label))


def likeliest_other(logits: Tensor, label: Tensor) -> Tensor:
    """The class (B,) of the largest logit (B, C) but `label` (B,); plain operations, for export."""
    asked = torch.arange(logits.shape[1], device=logits.device) == label.unsqueeze(1)
    return logits.masked_fill(asked, -torch.inf).argmax(dim=1)


def shared_leads(apart: Tensor, *, part: Tensor, own: Tensor) -> Tensor:
    """Leads (P,) of the prototypes that are the class's `own`, NaN for others; `part` and `own` (P,).

    `apart` (P,) is what each says for the class, less what it says for the rival.
    """
    parts = int(part.max()) + 1
    lead = torch.zeros(parts, dtype=apart.dtype).index_add(0, part, apart)
    sharing = torch.bincount(part[own], minlength=parts)
    each = (lead / sharing.clamp_min(1))[part]
    return torch.where(own, each, torch.nan)


def part_gaps(
    vectors: Tensor, *, part: Tensor, prototype_class: Tensor, label: Tensor, versus: Tensor
) -> Tensor:
    """How far apart the prototypes of two classes are in each part, (B, K): squared, of directions.

    vectors (P, D), part and prototype_class (P,), label and versus (B,). Where a class has several prototypes
    of a part their mean counts; where it has none it is far from any that has.
    """
    parts, classes = int(part.max()) + 1, int(prototype_class.max()) + 1
    place = prototype_class * parts + part
    direction = normalize(vectors.detach().float(), dim=1)
    total = direction.new_zeros(classes * parts, vectors.shape[1]).index_add(0, place, direction)
    count = torch.bincount(place, minlength=classes * parts).clamp_min(1).unsqueeze(1)
    mean = (total / count).view(classes, parts, -1)
    return (mean[label] - mean[versus]).square().sum(dim=-1)


def directions_apart(
    vectors: Tensor, weight: Tensor, *, part: Tensor, parts: int, label: Tensor, versus: Tensor
) -> Tensor:
    """What two classes ask of each region, one less the other, (B, K, D): Σ_j (w_j - w'_j) p_j / |p_j|.

    Where scores are linear in the region, g_j = z · p_j / |p_j|, the logits differ by Σ_k z_k · this_k.
    vectors (P, D), weight (C, P), part (P,), label and versus (B,).
    """
    direction = normalize(vectors, dim=1)
    apart = (weight[label] - weight[versus]).unsqueeze(-1) * direction  # (B, P, D)
    return apart.new_zeros(len(apart), parts, apart.shape[-1]).index_add(1, part, apart)
