"""A prototype of a network as a node."""

import pytest
import torch
from tests.conftest import tiny_network

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import prototype_node
from dprotonet.inference.region_assignment import own_region
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity


@pytest.mark.parametrize("similarity", [LogSimilarity(1e-4), CosineSimilarity()])
def test_a_prototypes_node_has_the_networks_own_score(similarity: LogSimilarity | CosineSimilarity) -> None:
    network, rows = tiny_network().eval(), torch.tensor([2, 0, 1, 1])
    network.prototypes.similarity = similarity
    images = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    numbers = torch.tensor([4, 1, 3])
    node = prototype_node(network, numbers)
    with torch.no_grad():
        wanted = network.evidence(images).scores[rows, numbers[rows]]
        found = node(images[rows], rows).squeeze(1)
    assert torch.allclose(found, wanted, atol=1e-5)


def test_a_network_whose_prototypes_pool_for_themselves_is_refused() -> None:
    network = tiny_network()
    network.prototypes.assignment = own_region
    with pytest.raises(UserError, match="pool for themselves"):
        prototype_node(network, [0])


def test_a_prototype_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="no prototype 900"):
        prototype_node(tiny_network(), [900])
