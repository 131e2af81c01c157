"""Why this class and not that one: what two classes share is left out, whichever of them is ahead."""

from collections.abc import Callable, Sequence

import pytest
import torch
from tests.conftest import tiny_network
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity
from dprotonet.interpretation.cam import CAM
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.interpretation.rise import Rise

SIDE = 48
CORNERS = {"red": (4, 4), "green": (4, 28), "blue": (28, 28)}  # where each colour is, and nowhere else
RED, GREEN = 0, 1  # classes; both have twice as much of the blue corner


class Coloured(nn.Module):
    """Class 0 is red, class 1 green, and both are mostly blue; class 2 looks at nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 3, 4, stride=4, bias=False), nn.ReLU())
        self.head = nn.Linear(3, 3, bias=False)
        with torch.no_grad():
            self.features[0].weight.copy_(torch.eye(3)[:, :, None, None].expand(-1, -1, 4, 4) / 16)
            self.head.weight.copy_(torch.tensor([[30.0, 0.0, 60.0], [0.0, 30.0, 60.0], [0.0, 0.0, 0.0]]))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images).mean(dim=(2, 3)))
        return logits


def image(**brightness: float) -> Tensor:
    picture = torch.zeros(1, 3, SIDE, SIDE)
    for channel, (colour, (top, left)) in enumerate(CORNERS.items()):
        picture[:, channel, top : top + 16, left : left + 16] = brightness.get(colour, 1.0)
    return picture


def hottest(raw: Tensor) -> str:
    """Whose corner the hottest place is in."""
    row, column = divmod(int(raw.flatten().argmax()), SIDE)
    inside = [
        colour
        for colour, (top, left) in CORNERS.items()
        if top <= row < top + 16 and left <= column < left + 16
    ]
    return inside[0] if inside else "nowhere"


def shown(by: Explainer, model: Coloured, seen: Tensor, labels: Sequence[int]) -> str:
    own, versus = labels
    return hottest(by.explain(seen, ContrastNode(model, [own], versus))[0].raw)


EXPLAINERS: dict[str, Callable[[Coloured], Explainer]] = {
    "fast": lambda model: MDM(model, preset=preset("fast", iterations=8)),
    "sampled": lambda model: MDM(model, preset=preset("sampled", samples=300)),
    "rise": lambda model: Rise(model, samples=400),
    "gradcam": lambda model: CAM(model, "gradcam", layer=model.features[1]),
    "scorecam": lambda model: CAM(model, "scorecam", layer=model.features[1]),
    "ablationcam": lambda model: CAM(model, "ablationcam", layer=model.features[1]),
}


@pytest.mark.parametrize("name", EXPLAINERS)
@pytest.mark.parametrize("green", [0.6, 1.0, 1.6], ids=["red ahead", "level", "green ahead"])
def test_a_map_lies_where_the_two_differ_and_a_map_of_the_class_does_not(name: str, green: float) -> None:
    model, seen = Coloured().eval(), image(green=green)
    by = EXPLAINERS[name](model)
    assert hottest(by.explain(seen, ClassNode(model, [RED], probability=False))[0].raw) == "blue"
    assert shown(by, model, seen, (RED, GREEN)) == "red"
    assert shown(by, model, seen, (GREEN, RED)) == "green"


def test_it_is_the_difference_of_the_logits_of_each_image() -> None:
    model, rows = Coloured().eval(), torch.tensor([1, 0, 0])
    seen = torch.rand(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    node = ContrastNode(model, [0, 2], [1, 0])
    logits = model(seen)
    expected = torch.stack([logits[0, 2] - logits[0, 0], *(logits[1:, 0] - logits[1:, 1])])
    assert torch.allclose(node(seen, rows).squeeze(1), expected)
    assert torch.allclose(node.direction(seen, rows), expected)
    assert node.of_scores(1, logits[0]) == logits[0, 2] - logits[0, 0]
    assert node.name(1) == "logit of class 2 less that of class 0"


@pytest.mark.parametrize("similarity", [LogSimilarity(), CosineSimilarity()])
def test_a_prototype_network_is_asked_what_tells_the_two_apart(similarity: nn.Module) -> None:
    """By what prototypes contribute to the one more than to the other, as `agreement` says it."""
    network = tiny_network().eval()
    network.prototypes.similarity = similarity
    seen = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    label, versus = torch.tensor([0, 1]), torch.tensor([1, 0])
    found = network.agreement(seen, label, versus)
    assert torch.allclose(found, -network.agreement(seen, versus, label), atol=1e-5)
    assert torch.allclose(found, ContrastNode(network, label, versus).direction(seen, torch.arange(2)))
    evidence = network.evidence(seen)
    ahead_of = evidence.logits[[0, 1], label] - evidence.logits[[0, 1], versus]
    if not isinstance(similarity, LogSimilarity):
        assert torch.allclose(found, ahead_of)
        return
    assert not torch.allclose(found, ahead_of)
    vectors, regions = network.prototypes.vectors.detach(), network.encoder(seen).detach()
    for image_ in range(2):
        total = 0.0
        for number in range(len(vectors)):
            ahead = network.head.weight[label[image_], number] - network.head.weight[versus[image_], number]
            region = regions[image_, evidence.region[image_, number]]
            agreeing = float(region @ vectors[number] / (vectors[number] @ vectors[number]))
            total += float((ahead * evidence.scores[image_, number]).detach()) * agreeing
        assert float(found[image_]) == pytest.approx(total, rel=1e-4)


def test_what_cannot_be_compared_is_refused() -> None:
    model = Coloured()
    with pytest.raises(UserError, match="compared with itself"):
        ContrastNode(model, [0, 1], 1)
    with pytest.raises(UserError, match="2 classes, and 3 to compare"):
        ContrastNode(model, [0, 1], [1, 0, 0])
    with pytest.raises(UserError, match="1 classes for 2 images"):
        MDM(model).explain(image().repeat(2, 1, 1, 1), ContrastNode(model, [0], 1))
    for by in (MDM(model), CAM(model, layer=model.features[1])):
        with pytest.raises(UserError, match="no class 7"):
            by.explain(image(), ContrastNode(model, [0], 7))
