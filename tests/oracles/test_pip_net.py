"""PIP-Net by its definitions: softmax over channels, presence by maximum, weights that are not negative."""

import math

import pytest
import torch
from accelerate import Accelerator
from tests.conftest import TinyBackbone, rival_config, tiny_views
from torch import Tensor, nn

from dprotonet.data.transforms import Augment
from dprotonet.encoder.encoder import Encoder
from dprotonet.experiment.build.inference import build_head, build_prototypes
from dprotonet.experiment.build.network import build_regions, build_shaping
from dprotonet.experiment.build.training import build_stages
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.inference.presence import ChannelMaximum, PresenceHead, alignment_loss, uniformity_loss
from dprotonet.inference.prune import pruned
from dprotonet.inference.region_assignment import any_region
from dprotonet.network import DProtoNet
from dprotonet.training.phases import Phase, Push
from dprotonet.training.presence import PresenceObjective, PretrainingObjective
from dprotonet.training.push import Pusher
from dprotonet.training.views import Pairs

CLASSES, CHANNELS, SIZE = 3, 7, (4, 4)
LABELS = torch.arange(5) % CLASSES


@pytest.fixture
def network() -> DProtoNet:
    torch.manual_seed(0)
    config = rival_config("pip-net", {"network": {"dimension": CHANNELS}}).network
    encoder = Encoder(
        TinyBackbone(), build_shaping(config, 8, CHANNELS), build_regions(config, SIZE, count=CHANNELS)
    )
    prototypes = build_prototypes(config, CLASSES, CHANNELS)
    return DProtoNet(encoder, prototypes, build_head(config, CLASSES, prototypes)).eval()


@pytest.fixture
def images() -> Tensor:
    return torch.randn(5, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def literal_shares(network: DProtoNet, images: Tensor) -> Tensor:
    """z (B, D, h, w), place by place."""
    convolution = network.encoder.shaping[0]
    assert isinstance(convolution, nn.Conv2d)
    below = network.encoder.backbone(images).double()
    weight, bias = convolution.weight.double()[:, :, 0, 0], convolution.bias.double()
    shares = torch.zeros(len(images), CHANNELS, *SIZE, dtype=torch.float64)
    for image in range(len(images)):
        for row in range(SIZE[0]):
            for column in range(SIZE[1]):
                powers = (weight @ below[image, :, row, column] + bias).exp()
                shares[image, :, row, column] = powers / powers.sum()
    return shares


@torch.no_grad()
def test_forward(network: DProtoNet, images: Tensor) -> None:
    shares = literal_shares(network, images)
    evidence = network.evidence(images)
    for image in range(len(images)):
        for channel in range(CHANNELS):
            places = shares[image, channel].flatten().tolist()
            assert evidence.scores[image, channel].item() == pytest.approx(max(places), rel=1e-5)
            assert evidence.region[image, channel].item() == places.index(max(places))
            assert evidence.distances[image, channel].item() == pytest.approx(2 - 2 * max(places), rel=1e-5)
    presence = shares.flatten(2).amax(2)
    logits = presence @ network.head.weight.double().T
    torch.testing.assert_close(evidence.logits.double(), logits, rtol=1e-5, atol=1e-6)
    assert (network.head.weight > 0).all()


@torch.no_grad()
def test_the_maximum_of_a_channel_is_the_nearest_corner(network: DProtoNet, images: Tensor) -> None:
    """What every other reader of the network computes: distances to prototypes e_d in the lifted space."""
    regions = network.encoder(images)
    prototypes = network.prototypes
    space = prototypes.similarity.space(regions)
    nearest = any_region(space, prototypes.similarity.ideal(prototypes.vectors))
    quick = prototypes.nearest(regions)
    torch.testing.assert_close(quick.distances, nearest.distances, rtol=1e-4, atol=1e-5)
    assert torch.equal(quick.region, nearest.region)
    wanted = torch.tensor([4, 1])
    assert torch.equal(prototypes.nearest(regions, wanted).distances, quick.distances[:, wanted])


def test_losses_by_hand() -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.rand(6, 4, generator=generator).double().softmax(1) for _ in range(2))
    total = 0.0
    for place in range(6):
        total -= math.log(sum(float(one[place, d]) * float(other[place, d]) for d in range(4)))
    assert alignment_loss(one, other).item() == pytest.approx(total / 6, rel=1e-6)
    presence = torch.rand(3, 4, generator=generator).double()
    terms = [math.log(math.tanh(sum(float(presence[b, d]) for b in range(3)))) for d in range(4)]
    assert uniformity_loss(presence).item() == pytest.approx(-sum(terms) / 4, rel=1e-6)


def test_alignment_pulls_each_view_towards_the_other_as_it_is() -> None:
    one, other = (torch.rand(6, 4).softmax(1).requires_grad_() for _ in range(2))
    alignment_loss(one, other).backward()
    expected = -other.detach() / (one * other).sum(1, keepdim=True).detach() / 6 / 2
    torch.testing.assert_close(one.grad, expected)


def test_the_whole_objective(network: DProtoNet, images: Tensor) -> None:
    """2 L_C + 5 L_A + 2 L_T, halved; views that lie as the plain image does are compared place by place."""
    pairs = torch.stack([images, images + 0.3], dim=1)
    still = Augment(flip=0, rotation_probability=0, shear_probability=0, perspective_probability=0)
    still = Augment(**{**vars(still), "distortion_probability": 0})
    places = still.places(SIZE, seed=0, epoch=1, index=0).expand(5, -1, -1, -1)
    with torch.no_grad():
        shares = torch.stack([literal_shares(network, view) for view in pairs.unbind(1)])
    presence = shares.flatten(3).amax(3)
    aligned = -(shares[0] * shares[1]).sum(1).log().mean()
    uniform = -presence.sum(1).tanh().log().mean()
    sums = presence @ network.head.weight.detach().double().T  # o = log((p w)² + 1)
    entropy = 0.0
    for view in range(2):
        for image in range(5):
            known = [math.log(float(o) ** 2 + 1) for o in sums[view, image]]
            entropy -= (known[int(LABELS[image])] - math.log(sum(map(math.exp, known)))) / 10
    training = rival_config("pip-net").training
    weights = {"alignment": training.alignment, "uniformity": training.uniformity}
    step = PresenceObjective(network, PrototypeLoss(), **weights)(pairs, LABELS, places)
    expected = (2 * entropy + 5 * aligned + 2 * uniform) / 2
    assert step.terms.total.item() == pytest.approx(float(expected), rel=1e-4)
    assert step.terms.cross_entropy.item() == pytest.approx(entropy, rel=1e-4)
    torch.testing.assert_close(step.logits.double(), sums[0], rtol=1e-4, atol=1e-5)
    early = PretrainingObjective(network, PrototypeLoss(), **weights)
    early.share = 0.3
    assert early(pairs, LABELS, places).terms.total.item() == pytest.approx(
        float(0.3 * aligned + 5 * uniform), rel=1e-4
    )


def test_a_warped_view_is_compared_with_what_it_shows() -> None:
    """The plain image, fetched at the places of a view, is the view, but for what warping blurs."""
    views = tiny_views("train")
    gaps, without = [], []
    for index in range(6):
        for variant in (1, 2):
            plain, view = views[index, 0].inputs, views[index, variant].inputs
            grid = views.places((index, variant), (32, 32))
            found = nn.functional.grid_sample(plain[None], grid[None], align_corners=False)[0]
            inner = (slice(None), slice(4, -4), slice(4, -4))
            gaps.append((found - view)[inner].abs().mean().item())
            without.append((plain - view)[inner].abs().mean().item())
    assert sum(gaps) < 0.35 * sum(without)
    pair = Pairs(views, (4, 4))[3, 2]
    assert torch.equal(pair.inputs[0], views[3, 0].inputs)
    assert torch.equal(pair.inputs[1], views[3, 2].inputs)
    assert pair.places.shape == (4, 4, 2)
    assert pair.places.abs().max() <= 1


def test_weights_become_sparse_and_never_negative() -> None:
    torch.manual_seed(0)
    head = PresenceHead(4, 2)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[0.5, 0.0005, -0.2, 0.0], [1.0, 0.001, 0.002, 3.0]]))
    head.after_step()
    expected = torch.tensor([[0.499, 0, 0, 0], [0.999, 0, 0.001, 2.999]])
    torch.testing.assert_close(head.weight.detach(), expected)
    assert head.owned(torch.zeros(4)).tolist() == [[True, False, False, False], [True, False, True, True]]


def test_stages() -> None:
    stages = build_stages(rival_config("pip-net", {"training": {"epochs": 20, "push_every": 10}}))
    phases = [stage for stage in stages if isinstance(stage, Phase)]
    assert [(phase.name, phase.epochs) for phase in phases] == [
        ("pretrain", 10),
        ("warm", 3),
        ("joint", 7),
        ("joint", 10),
    ]
    early, warm, joint, _ = (phase.learning_rates for phase in phases)
    assert early.head == 0 < early.shaping
    assert warm.shaping == warm.backbone == 0 < warm.head
    assert joint.prototypes == 0 < min(joint.backbone, joint.shaping, joint.head)
    assert isinstance(stages[-1], Push)


@torch.no_grad()
def test_a_push_finds_where_prototypes_are_and_changes_nothing(network: DProtoNet) -> None:
    views = tiny_views("train")
    inputs = torch.stack([views[index, 0].inputs for index in range(len(views))])
    network.head.weight[:, 2] = 0  # speaks for no class
    presence = literal_shares(network, inputs).flatten(2).amax(2)
    before, logits = network.prototypes.vectors.clone(), network(inputs)
    projection = Pusher(Accelerator(cpu=True), images=1)(network, views)
    source = presence.argmax(0)
    assert projection.index.tolist() == source.tolist()
    assert torch.equal(network.prototypes.vectors, before)
    assert torch.equal(network(inputs), logits)
    classes = network.head.weight.argmax(0)
    classes[2] = views.labels[int(source[2])]
    assert network.prototype_class.tolist() == classes.tolist()


@torch.no_grad()
def test_pruning_leaves_the_others_as_they_are(network: DProtoNet, images: Tensor) -> None:
    kept = torch.tensor([True, False, True, True, False, True, True])
    fewer = pruned(network.prototypes, network.head, kept)
    assert isinstance(fewer.head, PresenceHead)
    assert isinstance(fewer.prototypes.assignment, ChannelMaximum)
    smaller = DProtoNet(network.encoder, fewer.prototypes, fewer.head)
    torch.testing.assert_close(smaller.evidence(images).scores, network.evidence(images).scores[:, kept])
    assert smaller(images).shape == (5, CLASSES)
