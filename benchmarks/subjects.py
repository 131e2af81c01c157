"""What `decoder.py` explains: an ImageNet classifier, a probe on a folder of images, a trained DProtoNet."""

import sys

import torch
from torch import Tensor, nn

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData, Sample
from dprotonet.data.transforms import Normalise, Views
from dprotonet.encoder.backbone import load_backbone
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.build.network import build_normalise
from dprotonet.experiment.build.training import default_cache
from dprotonet.network import DProtoNet
from dprotonet.training.features import FeatureCache, FeatureViews
from dprotonet.training.probe import fit_probe


class Probed(nn.Module):
    """A frozen backbone with the linear probe as its head: an ordinary classifier."""

    def __init__(self, backbone: nn.Module, layer: nn.Linear, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.backbone, self.layer = backbone, layer
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.backbone(images).mean(dim=(-2, -1))
        return self.layer((pooled - self.mean) / self.std)


class Similarities(nn.Module):
    """A DProtoNet whose outputs are the scores of its prototypes, so that any explainer can watch one."""

    def __init__(self, network: DProtoNet) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.network.evidence(images).scores
        return scores


def part_of(count: int, part: str) -> list[int]:
    """Numbers of the images of a half: `tune` has the even ones, `held` the odd ones, `all` both."""
    return [index for index in range(count) if part == "all" or index % 2 == ("tune", "held").index(part)]


def spread(indices: list[int], count: int) -> list[int]:
    """At most `count` of them, evenly spread."""
    step = max(1.0, len(indices) / count)
    return [indices[int(number * step)] for number in range(min(count, len(indices)))]


@torch.no_grad()
def predicted(model: nn.Module, images: Tensor) -> Tensor:
    return torch.cat([model(block).argmax(dim=1) for block in images.split(32)])


def samples(data: ImageData, indices: list[int], normalise: Normalise) -> tuple[Tensor, list[Sample]]:
    chosen = [data[index] for index in indices]
    return normalise(torch.stack([sample.image for sample in chosen])), chosen


def stacked(masks: list[Tensor | None]) -> Tensor | None:
    """Truths of all images, or None if one lacks it."""
    present = [mask for mask in masks if mask is not None]
    return torch.stack(present) if len(present) == len(masks) else None


def probe_features(backbone: nn.Module, data: ImageData, normalise: Normalise) -> FeatureViews:
    views = Views(data, normalise, augment=None, seed=0)
    cache = FeatureCache(default_cache(), backbone, views, 0, torch.device("cpu"))
    for done, total in cache.build():
        print(f"\rfeatures: {done}/{total}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40, end="\r", file=sys.stderr)
    return cache.open()


def probe(spec: str, data: str) -> tuple[Probed, Normalise, ImageData]:
    """A probe trained on the training images of `data`, and the test images."""
    backbone = load_backbone(spec).eval().requires_grad_(False)
    normalise = build_normalise(backbone, 3)
    splits = build_splits(DataConfig(data=data))
    train, val = (probe_features(backbone, part, normalise) for part in (splits.train, splits.val))
    fitted = fit_probe(train, val, classes=len(splits.train.classes))
    return Probed(backbone, fitted.layer, fitted.mean, fitted.std).eval(), normalise, splits.test
