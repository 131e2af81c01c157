"""What a prototype network offers the first guess in place of its logit's gradient."""

import pytest
import torch
from tests.conftest import tiny_network
from torch import Tensor

from dprotonet.inference.similarity import CosineSimilarity
from dprotonet.interpretation.nodes import ClassNode

ROWS = torch.tensor([2, 0, 0, 1])  # of the explained image that each masked image came from


@pytest.fixture
def images() -> Tensor:
    return torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def test_a_prototype_network_is_asked_what_its_evidence_agrees_with(images: Tensor) -> None:
    """Literally: each prototype that speaks for the class, times how much of it its region has."""
    network, seen = tiny_network().eval(), images
    labels = [2, 0, 1]
    found = ClassNode(network, labels).direction(seen, ROWS)
    with torch.no_grad():
        vectors, evidence, weight = network.encoder(seen), network.evidence(seen), network.head.weight.clone()
    for row, label in enumerate(labels[source] for source in ROWS.tolist()):
        total = 0.0
        for number, prototype in enumerate(network.prototypes.vectors.detach()):
            said = float(weight[label, number] * evidence.scores[row, number])
            region = vectors[row, evidence.region[row, number]]
            total += max(0.0, said) * float(region @ prototype / (prototype @ prototype))
        assert found[row].item() == pytest.approx(total, rel=1e-4)


def test_what_a_met_prototype_is_made_of_is_not_lost(images: Tensor) -> None:
    """The gradient of the logit vanishes where its prototypes are met, that of the agreement does not."""
    network, rows = tiny_network(classes=2, per_class=1).eval(), torch.zeros(1, dtype=torch.long)
    seen = images[:1].clone().requires_grad_(True)
    network.head.weight.data = torch.eye(2)
    network.prototypes.vectors.data[0] = network.encoder(seen)[0, 3].detach()
    node = ClassNode(network, [0], probability=False)
    (flat,) = torch.autograd.grad(node(seen, rows).sum(), seen)
    (guess,) = torch.autograd.grad(node.direction(seen, rows).sum(), seen)
    assert flat.abs().max() < 1e-2 * guess.abs().max()


def test_the_logit_is_asked_where_agreement_says_nothing(images: Tensor) -> None:
    """Nothing speaks for the class; or the cosine, whose contributions are positive also by two minuses."""
    seen, rows = images, torch.arange(3)
    silent, cosine = tiny_network().eval(), tiny_network().eval()
    silent.head.weight.data[1] = -1.0
    cosine.prototypes.similarity = CosineSimilarity()
    for network, label in ((silent, 1), (cosine, 0)):
        node = ClassNode(network, [label] * 3)
        torch.testing.assert_close(node.direction(seen[:3], rows), network(seen[:3])[:, label])
    asked = ClassNode(silent, [0, 1, 2]).direction(seen[:3], rows)
    logits = silent(seen[:3])
    assert asked[1].item() == pytest.approx(logits[1, 1].item())
    assert asked[0].item() != pytest.approx(logits[0, 0].item())
