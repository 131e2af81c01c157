"""The deepest map is found on networks of all kinds, and a network without one is explained too."""

from typing import Any

import pytest
import torch
from tests.conftest import TinyBackbone
from torch import Tensor, nn

from dprotonet.compat import import_guarded
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks, spatial_masks
from dprotonet.encoder.shaping import Shaping
from dprotonet.inference.head import Head
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import CosineSimilarity, LogSimilarity
from dprotonet.interpretation.first_guess import _laid_out, _views, deepest, first_guess
from dprotonet.interpretation.layout import Layout
from dprotonet.interpretation.masking_task import MaskingTask
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.network import DProtoNet

FAST = preset("fast", iterations=4, sizes=(5, 7))


def watched(model: nn.Module, labels: list[int], *, probability: bool = True) -> ClassNode:
    return ClassNode(model, labels, probability=probability)


def made(name: str, **settings: Any) -> nn.Module:
    torch.manual_seed(0)
    network: nn.Module = import_guarded("timm").create_model(name, num_classes=5, **settings)
    return network.eval()


SWIN = {"window_size": 4, "embed_dim": 24, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2)}
NETWORKS: dict[str, tuple[str, dict[str, Any], tuple[int, int], Layout, tuple[str, ...]]] = {
    "cnn": ("mobilenetv3_small_050", {}, (128, 128), Layout(4, 4, "first"), ("blocks",)),
    "residual": ("resnet10t", {}, (128, 160), Layout(4, 5, "first"), ("layer4",)),
    "vit": (
        "vit_tiny_patch16_224",
        {"img_size": 64, "depth": 3},
        (64, 64),
        Layout(4, 4, "tokens", 1),
        ("blocks.2",),
    ),
    "vit, pooled": (
        "vit_tiny_patch16_224",
        {"img_size": (64, 96), "depth": 2, "global_pool": "avg"},
        (64, 96),
        Layout(4, 6, "tokens", 1),
        ("blocks.1", "norm", "fc_norm"),
    ),
    "swin": (
        "swin_tiny_patch4_window7_224",
        {"img_size": 128, **SWIN},
        (128, 128),
        Layout(4, 4, "last"),
        ("layers", "norm"),
    ),
    "convnext": ("convnext_atto", {}, (128, 128), Layout(4, 4, "first"), ("stages", "norm_pre")),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_deepest_map_is_found(kind: str) -> None:
    name, settings, size, layout, parts = NETWORKS[kind]
    network = made(name, **settings)
    images = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(1))
    task = MaskingTask(images, watched(network, [0, 1], probability=False), batch=2)
    found, second = deepest(task, task.images, task.rows)
    assert found is not None
    assert second is not None
    assert found.layout == second.layout == layout
    assert found.heat.shape == (layout.height, layout.width)
    assert min(found.heat.abs().max(), second.heat.abs().max()) > 0
    (place,) = [path for path, module in network.named_modules() if module is found.module]
    assert place.startswith(parts)
    heat = MDM(network, preset=preset("fast", iterations=1, sizes=(4,))).explain(images[:1])[0].heatmap
    assert heat.shape == size
    assert heat.max() == 1


@pytest.mark.parametrize("similarity", [LogSimilarity(), CosineSimilarity()])
def test_regions_are_not_taken_for_places(similarity: nn.Module) -> None:
    """Sixteen masks in a row are no map of 4 × 4."""
    torch.manual_seed(0)
    prototypes = Prototypes(1, 60, 6, similarity=similarity)  # type: ignore[arg-type]
    encoder = Encoder(TinyBackbone(), Shaping(8, 6), Masks(spatial_masks(16, (4, 4), seed=0), dimension=6))
    network = DProtoNet(encoder, prototypes, Head(prototypes.prototype_class)).eval()
    task = MaskingTask(torch.randn(1, 3, 32, 32), watched(network, [0], probability=False), batch=1)
    (found,) = deepest(task, task.images, task.rows)
    assert found is not None
    assert found.module not in (encoder, encoder.regions)


class Pixels(nn.Module):
    """A perceptron on flattened pixels; reads the left third only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 16), nn.Tanh(), nn.Linear(16, 3))
        seen = torch.zeros(3, 24, 24)
        seen[:, :, :8] = 1
        self.layers[1].weight.data *= seen.flatten()

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.layers(images.view(len(images), 3, 24, 24))
        return logits


def test_a_network_without_places_starts_flat_and_is_explained_all_the_same() -> None:
    model = Pixels().eval()
    images = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(1))
    task = MaskingTask(images, watched(model, [0, 1], probability=False), batch=4)
    assert first_guess(task, zoom=1.7) is None
    first = next(iter(FAST.steps(task)))
    start = preset("fast").start  # type: ignore[attr-defined]
    assert (first.masks[7][:, :, -3:] == start).all()  # unread, so as they began
    found = MDM(model, preset=preset("fast")).explain(images)
    for item in found:
        middle = item.raw[:, -8:].mean()
        assert (item.raw[:, :6] - middle).abs().mean() > 5 * (item.raw[:, 12:] - middle).abs().mean()


@pytest.mark.parametrize("zoom", [1.2, 1.7])
def test_enlarged_parts_that_disagree_leave_no_edges(zoom: float) -> None:
    task = MaskingTask(torch.zeros(1, 3, 64, 80), watched(Pixels(), [0]), batch=4)
    parts = _views(task, zoom)[1:]
    answers = [torch.full((1, 64, 80), value) for value in (0.0, 1.0, 1.0, 0.0)]
    laid = _laid_out(task, parts, answers)
    overlap = (2 - zoom) / zoom * 64  # rows of the shrunk map in which one part becomes the other
    steepest = 1.2 / (overlap / 2)
    assert laid.diff(dim=-2).abs().max() < steepest
    assert laid.diff(dim=-1).abs().max() < steepest
    assert torch.allclose(
        laid[0, [0, 0, -1, -1], [0, -1, 0, -1]], torch.tensor([0.0, 1.0, 1.0, 0.0]), atol=0.02
    )
