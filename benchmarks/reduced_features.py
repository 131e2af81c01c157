"""How much of the frozen features a network needs: all channels, or so many principal components.

    python benchmarks/reduced_features.py --data birds --settings data.species=12 data.train_per_species=300

Frozen features of the training images and their augmentations are computed once (or taken from the cache)
and reduced as `--feature-channels` does, with the projection that it fits. Of each number of channels two
classifiers are judged on a fold of the training images, and test images are never opened: the linear
discriminant of the averages, and DProtoNet with masks, which starts as that discriminant and learns on. JSON.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from recipe_folds import tables_of
from timing import say, tell
from torch import Tensor, nn

from dprotonet.data.transforms import Views
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.levels import JoinedLevels
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.build.inference import build_head, build_prototypes
from dprotonet.experiment.build.network import (
    build_network,
    build_normalise,
    build_regions,
    build_shaping,
)
from dprotonet.experiment.build.training import build_augment, default_cache
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.network import DProtoNet
from dprotonet.training.discriminant import start_as_discriminant
from dprotonet.training.engine import Engine, EngineSettings
from dprotonet.training.features import FeatureCache, FeatureViews
from dprotonet.training.phases import LearningRates, Phase
from dprotonet.training.pooled_discriminant import fit_discriminant
from dprotonet.training.push import Pusher

DEVICE = torch.device("cpu")


@torch.no_grad()
def reduced(features: np.ndarray, backbone: JoinedLevels, variants: int) -> np.ndarray:
    """As the cache would have them: projected, in half precision."""
    found = np.empty((len(features), variants, backbone.channels, *features.shape[3:]), np.float16)
    for row in range(len(features)):
        maps = torch.from_numpy(np.array(features[row, :variants])).float()
        found[row] = backbone.of_maps([maps]).half().numpy()
    return found


def judged(
    features: np.ndarray, labels: Tensor, fold: Tensor, options: argparse.Namespace
) -> dict[str, float]:
    """Accuracies in % on the images of a fold, from the others."""
    train, val = (FeatureViews(features[rows.numpy()], labels[rows].tolist()) for rows in (~fold, fold))
    classes, (channels, *size) = int(labels.max()) + 1, features.shape[2:]
    plain = FeatureViews(features[fold.numpy()][:, :1], val.labels)
    rule = fit_discriminant(train, val, classes=classes)
    network = masks_network(channels, (size[0], size[1]), classes, options)
    start_as_discriminant(network, train, seed=0, device=DEVICE)
    pusher, settings = Pusher(Accelerator(), images=1), EngineSettings(batch=60)
    engine = Engine(network, train, plain, Accelerator(), pusher, settings=settings)
    started = engine.validate().accuracy
    list(engine.run([Phase("warm", options.epochs, LearningRates(backbone=0.0))]))
    found = {"discriminant": rule.val_accuracy, "start": started, "learned": engine.validate().accuracy}
    return {name: round(100 * accuracy, 1) for name, accuracy in found.items()}


def masks_network(
    channels: int, size: tuple[int, int], classes: int, options: argparse.Namespace
) -> DProtoNet:
    words = {"masks": options.masks, "dimension": options.dimension}
    config = config_from({"recipe": "masks", "network": words}).network
    torch.manual_seed(0)
    shaping = build_shaping(config, channels, 0)
    prototypes = build_prototypes(config, classes, config.dimension)
    regions = build_regions(config, size, masks=None, count=0, channels=channels)
    head = build_head(config, classes, prototypes)
    return DProtoNet(Encoder(nn.Identity(), shaping, regions), prototypes, head)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    config = config_from(tables_of(["recipe=masks", f'data.data="{options.data}"', *options.settings]))
    data = build_splits(config.data).train
    network = build_network(config.network, classes=2, image_size=config.data.image_size, pretrained=True)
    backbone = network.encoder.backbone.eval()
    normalise = build_normalise(backbone, 3)
    views = Views(data, normalise, augment=build_augment(config.augmentation), seed=config.data.data_seed)
    cache = FeatureCache(default_cache(), backbone, views, options.augmentations, DEVICE)
    for _ in cache.build():
        pass
    kept = cache.open()
    every = torch.tensor(kept.labels)
    rows = [(every == label).nonzero().flatten()[:: options.every] for label in every.unique()]
    chosen = torch.cat(rows).sort().values
    features, labels = np.asarray(kept.features)[chosen.numpy()], every[chosen]
    fold = torch.zeros(len(labels), dtype=torch.bool)
    for label in labels.unique():
        fold[(labels == label).nonzero().flatten()[:: options.folds]] = True
    found: dict[str, Any] = {"data": options.data, "images": len(labels), "judged": int(fold.sum())}
    variants = 1 + options.variants
    found["channels"] = {}
    for channels in options.channels:
        if channels < features.shape[2]:
            joined = JoinedLevels(backbone, 1, image_size=config.data.image_size, channels=channels)
            spread = np.linspace(0, len(labels) - 1, min(400, len(labels))).round().astype(int)
            maps = (torch.from_numpy(np.array(features[row, :1])).float() for row in spread.tolist())
            fitted(joined, maps)
            some = reduced(features, joined, variants)
        else:
            some = np.array(features[:, :variants])
        size = int(np.prod(some.shape[2:])) * 2
        found["channels"][str(some.shape[2])] = {
            "kilobytes_a_view": round(size / 1000, 1),
            **judged(some, labels, fold, options),
        }
        say(f"{some.shape[2]}: {found['channels'][str(some.shape[2])]}")
    return found


def fitted(joined: JoinedLevels, maps: Any) -> None:
    """By the maps of the trunk, which are there already."""
    plain, joined.last_map = joined.last_map, lambda images: images  # type: ignore[method-assign]
    for _ in joined.fit(maps):
        pass
    joined.last_map = plain  # type: ignore[method-assign]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", default="birds")
    parser.add_argument("--settings", nargs="*", default=[], help="section.key=value of the data")
    parser.add_argument("--channels", nargs="*", type=int, default=[1280, 512, 256, 128, 64])
    parser.add_argument("--augmentations", type=int, default=4, help="in the cache")
    parser.add_argument("--variants", type=int, default=1, help="of them that are learned from")
    parser.add_argument("--folds", type=int, default=3, help="one of which is judged")
    parser.add_argument("--every", type=int, default=1, help="of so many images of a class one is looked at")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--masks", type=int, default=60)
    parser.add_argument("--dimension", type=int, default=128)
    parser.add_argument("--out", type=Path, help="JSON; other data in it stays")
    options = parser.parse_args()
    found = measured(options)
    tell(found)
    if options.out:
        whole = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps({**whole, options.data: found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
