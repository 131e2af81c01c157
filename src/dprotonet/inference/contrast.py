"""What decides between two classes, where each has a prototype of the same part.

A part that two classes share looks like both their prototypes: it says much for each, and decides nothing.
The difference of what a part says for a class and for its rival does; over all parts these differences add up
to that of the logits.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Leads(NamedTuple):
    """The likeliest other class, and how far each prototype (P,) leads over it; NaN for other classes'."""

    rival: int
    points: Tensor


def leads(scores: Tensor, *, weight: Tensor, part: Tensor, prototype_class: Tensor, label: int) -> Leads:
    """Of the prototypes of `label`: scores, part and prototype_class (P,), weight (C, P).

    What all prototypes of a part say for the class, less what they say for the rival; several prototypes of
    the class that share a part share its lead.
    """
    logits = weight @ scores
    logits[label] = -torch.inf
    rival = int(logits.argmax())
    apart = (weight[label] - weight[rival]) * scores
    parts = int(part.max()) + 1
    lead = torch.zeros(parts, dtype=scores.dtype).index_add(0, part, apart)
    own = prototype_class == label
    sharing = torch.bincount(part[own], minlength=parts)
    each = (lead / sharing.clamp_min(1))[part]
    return Leads(rival, torch.where(own, each, torch.nan))
