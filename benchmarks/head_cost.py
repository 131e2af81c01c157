"""What the prototypes cost: a training step of a DProtoNet against one of its plain backbone.

ResNet50 without weights, 224 px, forward, backward and Adam over all parameters. Plain is the global average
and a linear layer on cross-entropy; ours is shaping, feature masks, prototypes, head and the loss of Eq. (4).
The steps alternate in one process and the fastest of each counts, the least disturbed one. The batch is the
paper's 60; a smaller one (`--batch`) is told in the settings. Single steps scatter by a tenth, as much as the
target allows: judge by `all_seconds` too, and measure on an idle machine.
"""

import argparse
from collections.abc import Callable
from functools import partial

import torch
from timing import alternating_seconds, tell
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks, spatial_masks, uniform_masks
from dprotonet.encoder.shaping import Shaping
from dprotonet.inference.head import Head
from dprotonet.inference.losses import PrototypeLoss
from dprotonet.inference.prototypes import Prototypes
from dprotonet.inference.similarity import LogSimilarity
from dprotonet.network import DProtoNet

CLASSES, PER_CLASS, DIMENSION, MASKS, PIXELS = 200, 10, 512, 720, 224
TARGET = 1.10


def resnet50(classes: int) -> nn.Module:
    """With a linear classifier, or, for no classes, its feature map."""
    pool = {"global_pool": ""} if not classes else {}
    network: nn.Module = import_guarded("timm").create_model("resnet50", num_classes=classes, **pool)
    return network


def prototype_network(masks: Tensor) -> DProtoNet:
    encoder = Encoder(resnet50(0), Shaping(2048, DIMENSION), Masks(masks, dimension=DIMENSION))
    prototypes = Prototypes(CLASSES, PER_CLASS, DIMENSION, similarity=LogSimilarity())
    return DProtoNet(encoder, prototypes, Head(prototypes.prototype_class))


def prototype_loss(network: DProtoNet, images: Tensor, labels: Tensor) -> Tensor:
    seen = network.evidence(images)
    head, classes = network.head.weight, network.prototype_class
    loss = PrototypeLoss()
    return loss(seen.logits, seen.distances, labels, weight=head, prototype_class=classes).total


def plain_loss(network: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    return cross_entropy(network(images), labels)


def training_step(network: nn.Module, loss: Callable[[], Tensor]) -> Callable[[], None]:
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        loss().backward()
        optimiser.step()

    return step


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=4)
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()  # as the commands do
    settings = arguments()
    torch.manual_seed(0)
    data = torch.randn(settings.batch, 3, PIXELS, PIXELS), torch.randint(CLASSES, (settings.batch,))
    styles = {
        "spatial": spatial_masks(MASKS, (7, 7), seed=0),
        "uniform": uniform_masks(MASKS, DIMENSION, (7, 7), seed=0),
    }
    plain = resnet50(CLASSES)
    steps = {"plain": training_step(plain, partial(plain_loss, plain, *data))}
    for style, masks in styles.items():
        network = prototype_network(masks)
        steps[style] = training_step(network, partial(prototype_loss, network, *data))
    seconds = alternating_seconds(steps, repeats=settings.repeats)
    ratios = {style: min(seconds[style]) / min(seconds["plain"]) for style in styles}
    tell(
        {
            "benchmark": "head_cost",
            "settings": {
                "backbone": "resnet50",
                "pixels": PIXELS,
                "batch": settings.batch,
                "classes": CLASSES,
                "masks": MASKS,
                "dimension": DIMENSION,
                "prototypes": CLASSES * PER_CLASS,
                "repeats": settings.repeats,
                "threads": torch.get_num_threads(),
            },
            "plain_seconds": min(seconds["plain"]),
            "spatial_seconds": min(seconds["spatial"]),
            "uniform_seconds": min(seconds["uniform"]),
            "all_seconds": seconds,
            "spatial_ratio": ratios["spatial"],
            "uniform_ratio": ratios["uniform"],
            "target": TARGET,
            "reached": all(ratio <= TARGET for ratio in ratios.values()),
        }
    )


if __name__ == "__main__":
    main()
