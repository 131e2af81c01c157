"""The network as other programs meet it: images in [0, 1] to logits, probabilities and evidence.

Normalisation is part of it, so that nobody has to repeat it. Everything is plain tensor operations over a
free number of images: the search in blocks that training uses would fix that number.
"""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dprotonet.data.transforms import LUMA, Normalise
from dprotonet.experiment.runs.calibration import Calibration, shares_of
from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.runs.look import look
from dprotonet.inference.contrast import likeliest_other
from dprotonet.inference.region_assignment import any_region, any_region_at_once
from dprotonet.network import BlackBox, DProtoNet, Network

STRANGENESS = (
    "strangeness"  # of each image (B,), above 1 it is unlike the training images; where that is known
)


class Decision(NamedTuple):
    """What a black box can say: (B, C) each."""

    logits: Tensor
    probabilities: Tensor


class Reasons(NamedTuple):
    """What a network with prototypes can say, too: (B, P) each.

    Contributions are to the predicted class; those to its rival, the likeliest other class, say what decided.
    """

    logits: Tensor
    probabilities: Tensor
    scores: Tensor
    distances: Tensor
    region: Tensor
    contributions: Tensor
    rival_contributions: Tensor


class Deployed(nn.Module):
    """RGB images (B, 3, H, W) float32 in [0, 1] to a Decision or Reasons; a copy of `network`, on the CPU."""

    mean: Tensor
    std: Tensor
    luma: Tensor

    def __init__(
        self,
        network: Network,
        normalise: Normalise,
        calibration: Calibration | None = None,
        familiarity: Familiarity | None = None,
    ) -> None:
        super().__init__()
        self.familiarity = familiarity
        self.calibration = calibration
        self.network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
        if isinstance(self.network, DProtoNet) and self.network.prototypes.assignment is any_region:
            self.network.prototypes.assignment = any_region_at_once
        self.channels = normalise.channels
        self.register_buffer("mean", per_channel(normalise.mean, normalise.channels))
        self.register_buffer("std", per_channel(normalise.std, normalise.channels))
        self.register_buffer("luma", torch.tensor(LUMA).reshape(3, 1, 1))

    @property
    def outputs(self) -> tuple[str, ...]:
        known = (STRANGENESS,) if self.familiarity is not None else ()
        return (*(Decision if isinstance(self.network, BlackBox) else Reasons)._fields, *known)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        grey = self.channels == 1
        values = (images * self.luma).sum(dim=1, keepdim=True) if grey else images
        inputs = (values - self.mean) / self.std
        seen = look(self.network, inputs, self.familiarity)
        far = () if seen.distance is None else (seen.distance.float(),)
        if seen.evidence is None or isinstance(self.network, BlackBox):
            return (seen.logits, shares_of(seen.logits, self.calibration), *far)
        evidence = seen.evidence
        label = evidence.logits.argmax(dim=1)
        points = self.network.contributions(evidence, label)
        rivals = self.network.contributions(evidence, likeliest_other(evidence.logits, label))
        shares = shares_of(evidence.logits, self.calibration)
        return (evidence.logits, shares, *evidence[1:], points, rivals, *far)


def per_channel(numbers: tuple[float, ...], channels: int) -> Tensor:
    """A mean or deviation as (channels, 1, 1)."""
    given = torch.tensor(numbers, dtype=torch.float32)
    return (given.mean().reshape(1) if channels == 1 else given.expand(3)).reshape(-1, 1, 1).clone()
