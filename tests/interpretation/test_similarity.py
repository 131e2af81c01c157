"""Similarity maps against ProtoPNet's own recipe, place by place; and its box."""

import math

import numpy as np
import pytest
import torch
from tests.conftest import TinyBackbone, tiny_network
from torch import Tensor, nn

from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Points
from dprotonet.encoder.shaping import Shaping
from dprotonet.errors import ComputationError, UserError
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import LogSimilarity
from dprotonet.interpretation import similarity as room
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import CallableNode, ClassNode
from dprotonet.interpretation.rise import Rise
from dprotonet.interpretation.similarity import SimilarityMaps, percentile_box
from dprotonet.network import DProtoNet

EPSILON, COUNT, SIZE = 1e-4, 3, (32, 32)


def log_similarity(regions: Tensor, prototypes: Tensor) -> Tensor:
    distances = (regions.unsqueeze(2) - prototypes).square().sum(dim=-1)
    return ((distances + 1) / (distances + EPSILON)).log()


def points_network() -> DProtoNet:
    """ProtoPNet: every position of the feature map is a region."""
    torch.manual_seed(1)
    prototypes = Prototypes(3, 2, 6, similarity=LogSimilarity(EPSILON))
    encoder = Encoder(TinyBackbone(), Shaping(8, 6), Points(6, (4, 4)))
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()


def maps_of(network: DProtoNet, batch: int = 32) -> SimilarityMaps:
    return SimilarityMaps(
        network,
        regions=network.encoder,
        footprint=network.encoder.regions.footprint(),  # type: ignore[operator]
        similarity=log_similarity,
        prototypes=network.prototypes.vectors,
        weight=network.head.weight,
        internal_batch_size=batch,
    )


@pytest.fixture
def images() -> Tensor:
    return torch.randn(COUNT, 3, *SIZE, generator=torch.Generator().manual_seed(4))


def raw(found: list[Explanation]) -> Tensor:
    return torch.stack([item.raw for item in found])


@pytest.mark.parametrize("batch", [2, 32])
def test_many_prototypes_at_once_are_those_one_by_one(images: Tensor, batch: int) -> None:
    maps, numbers = maps_of(points_network(), batch), [4, 0, 5]
    one_each = torch.stack([item.heatmap for item in maps.explain(images, maps.prototype(numbers))])
    torch.testing.assert_close(maps.of_prototypes(images, numbers), one_each)
    first = images[:1].expand(3, *images.shape[1:])
    same_image = torch.stack([item.heatmap for item in maps.explain(first, maps.prototype(numbers))])
    torch.testing.assert_close(maps.of_prototypes(images[:1], numbers), same_image)
    with pytest.raises(UserError, match="2 prototypes for 3 images"):
        maps.of_prototypes(images, [0, 1])


# ── ProtoPNet, literally ─────────────────────────────────────────────────────────────────────────────


def cubic(distance: float, sharpness: float = -0.75) -> float:
    """Keys' kernel with OpenCV's sharpness."""
    x = abs(distance)
    if x <= 1:
        return (sharpness + 2) * x**3 - (sharpness + 3) * x**2 + 1
    return sharpness * (x**3 - 5 * x**2 + 8 * x - 4) if x < 2 else 0.0


def enlarged(small: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Cubic enlargement, pixel by pixel; beyond the edge the edge goes on."""
    large = np.zeros(size)
    for row in range(size[0]):
        for column in range(size[1]):
            y = (row + 0.5) * small.shape[0] / size[0] - 0.5
            x = (column + 0.5) * small.shape[1] / size[1] - 0.5
            for i in range(math.floor(y) - 1, math.floor(y) + 3):
                for j in range(math.floor(x) - 1, math.floor(x) + 3):
                    inside = min(max(i, 0), small.shape[0] - 1), min(max(j, 0), small.shape[1] - 1)
                    large[row, column] += cubic(y - i) * cubic(x - j) * small[inside]
    return large


def literal_map(features: np.ndarray, prototype: np.ndarray) -> np.ndarray:
    """log((d + 1) / (d + ε)) at every position of a feature map (D, h, w)."""
    _, height, width = features.shape
    found = np.zeros((height, width))
    for row in range(height):
        for column in range(width):
            distance = sum((features[:, row, column] - prototype) ** 2)
            found[row, column] = math.log((distance + 1) / (distance + EPSILON))
    return found


@torch.no_grad()
def feature_maps(network: DProtoNet, images: Tensor) -> np.ndarray:
    network = network.double()
    features: Tensor = network.encoder.shaping(network.encoder.backbone(images.double()))
    return features.numpy()


def test_points_give_protopnets_map(images: Tensor) -> None:
    explainer, numbers = maps_of(points_network()), [5, 0, 2]
    found = explainer.explain(images, explainer.prototype(numbers))
    network = points_network()
    features, prototypes = feature_maps(network, images), network.prototypes.vectors.detach().numpy()
    for row, number in enumerate(numbers):
        expected = enlarged(literal_map(features[row], prototypes[number]), SIZE)
        assert np.abs(found[row].raw.numpy() - expected).max() < 1e-4
        heat = (expected - expected.min()) / (expected.max() - expected.min())
        assert np.abs(found[row].heatmap.numpy() - heat).max() < 1e-4
        assert found[row].node == f"prototype {number}"
        assert found[row].passes == (1, 0)


def test_it_is_enlarged_as_opencv_does(images: Tensor) -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV comes with the extra 'cam'")
    explainer = maps_of(points_network())
    found = explainer.explain(images[:1], explainer.prototype([3]))
    network = points_network()
    small = literal_map(feature_maps(network, images)[0], network.prototypes.vectors.detach().numpy()[3])
    expected = cv2.resize(small, dsize=SIZE[::-1], interpolation=cv2.INTER_CUBIC)
    assert np.abs(found[0].raw.numpy() - expected).max() < 1e-4


def test_a_class_is_the_sum_of_what_speaks_for_it(images: Tensor) -> None:
    network = points_network()
    network.head.weight.data = torch.tensor(
        [[1.0, 0.5, 0.0, -2.0, 0.25, -1.0], [0, 0, 3, 0, 0, 0], [-1, -1, -1, -1, 0, 2]]
    )
    explainer, labels = maps_of(network), [0, 1, 2]
    found = raw(explainer.explain(images, ClassNode(network, labels)))
    for row, label in enumerate(labels):
        expected = torch.zeros(SIZE)
        for number, weight in enumerate(network.head.weight[label].tolist()):
            if weight > 0:
                alone = explainer.explain(images[row : row + 1], explainer.prototype([number]))
                expected += weight * alone[0].raw
        assert (found[row] - expected).abs().max() < 1e-4


def test_a_class_that_nothing_speaks_for_is_told(images: Tensor, caplog: pytest.LogCaptureFixture) -> None:
    network = points_network()
    network.head.weight.data[1] = -1
    found = maps_of(network).explain(images, ClassNode(network, [0, 1, 2]))
    assert [bool(item.heatmap.max() > 0) for item in found] == [True, False, True]
    assert "image 1 (probability of class 1) is empty" in caplog.text


# ── other regions ────────────────────────────────────────────────────────────────────────────────────


def test_a_place_has_the_mean_of_the_regions_that_look_at_it() -> None:
    footprint = torch.tensor(
        [
            [[1.0, 0.5, 0.0], [0.0, 0.0, 0.0]],
            [[0.0, 0.5, 1.0], [0.2, 0.0, 0.0]],
            [[0.0, 0.0, 1.0], [0.6, 0.0, 1.0]],
        ]
    )
    values = torch.tensor([[4.0], [1.0], [-2.0]])  # of three regions of one channel
    explainer = SimilarityMaps(
        nn.Identity(),
        regions=lambda given: values.expand(len(given), 3, 1),
        footprint=footprint,
        similarity=lambda regions, prototypes: regions * prototypes.squeeze(1),
        prototypes=torch.tensor([[2.0]]),
        weight=torch.ones(1, 1),
    )
    found = explainer.explain(torch.rand(2, 3, 2, 3), explainer.prototype([0, 0]))  # not enlarged
    expected = torch.zeros(2, 3)
    for row in range(2):
        for column in range(3):
            looks = footprint[:, row, column]
            if looks.sum() > 0:
                expected[row, column] = sum(looks * values[:, 0] * 2) / looks.sum()
    assert expected[1, 1] == 0  # where no region looks
    for item in found:
        assert (item.raw - expected).abs().max() < 1e-5


def test_feature_masks_have_such_maps_too(images: Tensor) -> None:
    network = tiny_network()
    found = maps_of(network, batch=2).explain(images)
    assert len(found) == COUNT
    assert {item.passes for item in found} == {(2, 0)}
    with torch.no_grad():
        predicted = network.eval()(images).argmax(dim=1).tolist()
    assert [item.node for item in found] == [f"logit of class {label}" for label in predicted]
    assert all(item.heatmap.max() == pytest.approx(1) for item in found)


# ── prototypes as nodes ──────────────────────────────────────────────────────────────────────────────


def test_a_prototypes_node_is_its_score(images: Tensor) -> None:
    network, rows = points_network(), torch.tensor([2, 0, 1, 1])
    node = maps_of(network).prototype([4, 1, 3])
    with torch.no_grad():
        scores = network.evidence(images).scores
        found = node(images[rows], rows)
    assert torch.allclose(found, scores[rows, torch.tensor([3, 4, 1, 1])].unsqueeze(1), atol=1e-5)


def test_a_prototype_that_is_met_still_has_a_first_guess(images: Tensor) -> None:
    """Where distance is nothing its gradient is nothing; agreement still says what the vector is made of."""
    network, rows = points_network().eval(), torch.arange(3)
    with torch.no_grad():
        vectors = network.encoder(images)
        region = network.evidence(images).region[rows, torch.tensor([4, 1, 3])]
        met = vectors[rows, region]
    network.prototypes.vectors.data[torch.tensor([4, 1, 3])] = met
    node = maps_of(network).prototype([4, 1, 3])
    seen = images.clone().requires_grad_(True)
    (flat,) = torch.autograd.grad(node(seen, rows).sum(), seen)
    agreement = node.direction(seen, rows)
    (guess,) = torch.autograd.grad(agreement.sum(), seen)
    assert torch.allclose(agreement, met.square().sum(dim=1), rtol=1e-4)
    assert flat.abs().max() < 1e-2 * guess.abs().max()


def test_other_explainers_take_it(images: Tensor) -> None:
    node = maps_of(points_network()).prototype([4, 1, 3])
    for found in (
        MDM(preset=preset("fast", iterations=2, sizes=(5,))).explain(images, node),
        Rise(samples=10).explain(images, node),
    ):
        assert [item.node for item in found] == ["prototype 4", "prototype 1", "prototype 3"]
        assert all(item.heatmap.max() > 0 for item in found)


# ── memory, and what is refused ──────────────────────────────────────────────────────────────────────


def test_few_similarities_exist_at_a_time(images: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    network, shapes = points_network(), []
    network.head.weight.data.fill_(1.0)  # all six prototypes speak for every class
    node = ClassNode(network, [0, 1, 2])
    expected = raw(maps_of(network).explain(images, node))

    def remember(regions: Tensor, prototypes: Tensor) -> Tensor:
        shapes.append((len(regions), regions.shape[1], len(prototypes)))
        return log_similarity(regions, prototypes)

    explainer = maps_of(network)
    explainer.similarity = remember
    monkeypatch.setattr(room, "_BLOCK_ELEMENTS", 4 * 16 * 6)
    assert torch.allclose(raw(explainer.explain(images, node)), expected, atol=1e-5)
    assert shapes == [(1, 16, 4), (1, 16, 2)] * COUNT


def test_the_network_comes_back_after_an_interruption(images: Tensor) -> None:
    network = points_network().train()

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    handle = network.encoder.shaping.register_forward_hook(interrupt)
    with pytest.raises(KeyboardInterrupt):
        maps_of(network).explain(images, ClassNode(network, [0, 1, 2]))
    handle.remove()
    assert all(module.training for module in network.modules())
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_what_does_not_fit_is_refused(images: Tensor) -> None:
    network = points_network()
    explainer = maps_of(network)
    with pytest.raises(UserError, match="there is no class 3; the model has classes 0 to 2"):
        explainer.explain(images, ClassNode(network, [0, 3, 1]))
    with pytest.raises(UserError, match="there is no prototype 6; they are 0 to 5"):
        explainer.prototype([6])
    with pytest.raises(UserError, match="2 prototypes for 3 images"):
        explainer.explain(images, explainer.prototype([0, 1]))
    with pytest.raises(UserError, match="classes and prototypes only"):
        explainer.explain(images, CallableNode(lambda given: given.mean(dim=(1, 2, 3))))
    explainer.footprint = explainer.footprint[:5]
    with pytest.raises(UserError, match="the footprint has 5 regions"):
        explainer.explain(images)


@pytest.mark.parametrize("wrong", ["footprint", "prototypes", "weight"])
def test_parts_of_the_wrong_shape_are_named(wrong: str) -> None:
    parts = {"footprint": torch.ones(4, 2, 2), "prototypes": torch.ones(6, 3), "weight": torch.ones(2, 6)}
    parts[wrong] = torch.ones(6)
    with pytest.raises(UserError, match=rf"{wrong} \(6,\).*must be"):
        SimilarityMaps(nn.Identity(), regions=nn.Identity(), similarity=log_similarity, **parts)


def test_a_map_that_is_not_finite_is_named(images: Tensor) -> None:
    explainer = maps_of(points_network())
    explainer.similarity = lambda regions, prototypes: log_similarity(regions, prototypes) / 0
    with pytest.raises(ComputationError, match="similarity map of prototype 1 is not finite for image 0"):
        explainer.explain(images, explainer.prototype([1, 1, 1]))


# ── the box ──────────────────────────────────────────────────────────────────────────────────────────


def literal_box(heat: np.ndarray, percentile: float) -> tuple[int, int, int, int]:
    limit = np.percentile(heat, percentile)
    kept = [(y, x) for y in range(heat.shape[0]) for x in range(heat.shape[1]) if not heat[y, x] < limit]
    rows, columns = [y for y, _ in kept], [x for _, x in kept]
    return min(columns), min(rows), max(columns) + 1, max(rows) + 1


@pytest.mark.parametrize("percentile", [0, 50, 95, 99.5, 100])
def test_a_box_goes_round_the_pixels_above_a_percentile(percentile: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for size in ((9, 14), (1, 5), (20, 20)):
        coarse = torch.rand(1, 1, 3, 3, generator=generator)
        heat = torch.nn.functional.interpolate(coarse, size=size, mode="bilinear")[0, 0].round(decimals=2)
        assert percentile_box(heat, percentile) == literal_box(heat.double().numpy(), percentile)


def test_boxes_that_are_known() -> None:
    heat = torch.zeros(20, 20)
    heat[3:7, 10:15] = 1  # the hottest 5 %
    assert percentile_box(heat) == (10, 3, 15, 7)
    heat[4, 12] = 0  # now the percentile is 0, which all pixels reach
    assert percentile_box(heat) == (0, 0, 20, 20)
    assert percentile_box(torch.full((4, 6), 2.0)) == (0, 0, 6, 4)
    with pytest.raises(ValueError, match="percentile"):
        percentile_box(heat, 101)
