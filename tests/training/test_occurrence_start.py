"""Where learned occurrence maps come to lie: planted objects with strong features, weak ones elsewhere."""

import math

import pytest
import torch
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Occurrence
from dprotonet.encoder.shaping import Beside, Shaping
from dprotonet.inference.head import Head
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.region_assignment import own_region
from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.network import DProtoNet
from dprotonet.training.occurrence import OccurrenceObjective

CLASSES, PER_CLASS, CHANNELS, SIDE = 3, 8, 24, 5
COUNT = CLASSES * PER_CLASS


def network() -> DProtoNet:
    shaping = Beside(Shaping(CHANNELS, 16), Shaping(CHANNELS, COUNT))
    regions = Occurrence(16, COUNT, (SIDE, SIDE))
    prototypes = Prototypes(CLASSES, PER_CLASS, 16, similarity=CosineSimilarity(), assignment=own_region)
    return DProtoNet(Encoder(nn.Identity(), shaping, regions), prototypes, Head(prototypes.prototype_class))


def planted(count: int) -> tuple[Tensor, Tensor, Tensor]:
    """Feature maps (B, C, h, w) as of a ReLU, labels, and where the objects are (B, h, w).

    Two places in the middle of the map show the class, five times as strongly as the background shows itself.
    """
    draw = torch.Generator().manual_seed(1)
    shown = torch.rand(CLASSES, CHANNELS, generator=draw)
    labels = torch.arange(count) % CLASSES
    maps = 0.2 * torch.rand(count, CHANNELS, SIDE, SIDE, generator=draw)
    places = torch.zeros(count, SIDE, SIDE, dtype=torch.bool)
    for row in range(count):
        top, left = torch.randint(1, SIDE - 2, (2,), generator=draw).tolist()
        places[row, top, left : left + 2] = True
        maps[row, :, top, left : left + 2] += shown[labels[row]].unsqueeze(1)
    return maps, labels, places


def learned(started: DProtoNet, steps: int = 80) -> float:
    """How many times more a prototype is said to occur on an object of its class than beside it."""
    maps, labels, places = planted(60)
    objective = OccurrenceObjective(started, PrototypeLoss(0.25, -0.25, 1e-4), weight=0.5)
    parameters = [*started.encoder.parameters(), *started.prototypes.parameters()]
    optimiser = torch.optim.Adam(parameters, lr=3e-3)
    for _ in range(steps):
        optimiser.zero_grad()
        objective(maps, labels).terms.total.backward()
        optimiser.step()
    with torch.no_grad():
        assert isinstance(started.encoder.regions, Occurrence)
        found = started.encoder.regions.maps(started.encoder.feature_map(maps))
        assert (started(maps).argmax(dim=1) == labels).float().mean() > 0.9
    own = labels.unsqueeze(1) == started.prototype_class
    mean = found[own].unflatten(0, (len(maps), PER_CLASS)).mean(dim=1)
    return float(mean[places].mean() / mean[~places].mean())


def test_where_nothing_is_seen_a_prototype_is_rare_at_first() -> None:
    torch.manual_seed(0)
    started = network()
    maps = started.encoder.feature_map(torch.zeros(1, CHANNELS, SIDE, SIDE))
    assert isinstance(started.encoder.regions, Occurrence)
    found = started.encoder.regions.maps(maps)
    torch.testing.assert_close(found, torch.full_like(found, Beside.rare))


@pytest.mark.parametrize("seed", range(2))
def test_maps_come_to_lie_on_the_objects(seed: int) -> None:
    """From one half, as a start without bias has it, they sink there: the reason for the start."""
    torch.manual_seed(seed)
    rare = learned(network())
    torch.manual_seed(seed)
    half = network()
    assert isinstance(half.encoder.shaping, Beside)
    with torch.no_grad():
        bias = half.encoder.shaping.occurrence[2].bias
        assert isinstance(bias, Tensor)
        bias += math.log((1 - Beside.rare) / Beside.rare)
        torch.testing.assert_close(bias, torch.zeros_like(bias))
    assert rare > 1.5
    assert rare > 1.5 * learned(half)
