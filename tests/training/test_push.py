"""The push on a network and data, against a literal search."""

import torch
from accelerate import Accelerator
from tests.conftest import tiny_network, tiny_views

from dprotonet.network import DProtoNet
from dprotonet.training.push import Pusher


def literal_push(network: DProtoNet, views: object, images: int) -> torch.Tensor:
    """Eqs. (9)-(11) in loops over prototypes and images."""
    network.eval()
    vectors = network.prototypes.vectors.detach()
    regions = [network.encoder(views[index, 0].inputs.unsqueeze(0))[0] for index in range(len(views))]
    pushed = []
    for number, vector in enumerate(vectors):
        own = [index for index in range(len(views)) if views.labels[index] == network.prototype_class[number]]
        source = min(own, key=lambda index: float((regions[index] - vector).square().sum(1).min()))
        chosen = []
        for variant in range(images):
            candidates = network.encoder(views[source, variant].inputs.unsqueeze(0))[0]
            chosen.append(candidates[(candidates - vector).square().sum(1).argmin()])
        pushed.append(torch.stack(chosen).mean(0))
    return torch.stack(pushed)


@torch.no_grad()
def test_push_is_the_literal_push() -> None:
    network, views = tiny_network(), tiny_views()
    for images in (1, 4):
        network = tiny_network()
        expected = literal_push(network, views, images)
        projection = Pusher(Accelerator(cpu=True), images=images, batch=4)(network, views)
        torch.testing.assert_close(network.prototypes.vectors, expected, rtol=1e-4, atol=1e-5)
        assert projection.views == images
        sources = [views.labels[index] for index in projection.index.tolist()]
        assert sources == network.prototype_class.tolist()


def test_pushing_twice_is_pushing_once() -> None:
    network, views = tiny_network(), tiny_views()
    push = Pusher(Accelerator(cpu=True), images=1)
    first = push(network, views)
    once = network.prototypes.vectors.clone()
    second = push(network, views)
    assert torch.equal(network.prototypes.vectors, once)
    assert torch.equal(first.index, second.index)
    assert float(second.distances.max()) < 1e-8


def test_a_source_without_augmentation_gives_as_many_views_as_it_has() -> None:
    projection = Pusher(Accelerator(cpu=True), images=40)(tiny_network(), tiny_views(augment=False))
    assert projection.views == 1


def test_train_mode_comes_back() -> None:
    network = tiny_network().train()
    Pusher(Accelerator(cpu=True), images=2)(network, tiny_views())
    assert network.training
