"""An epoch on cached features against an epoch that draws, augments and encodes again, in one run.

    python benchmarks/frozen_epoch.py [--per-species 40] [--epochs 1]

Both train the same network (EfficientNet-Lite0 packaged, backbone resting, shaping, 720 spatial masks, 120
prototypes) on the built-in birds. The time of building the cache is printed too, and counted in neither.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from accelerate import Accelerator

from dprotonet.compat import keep_freed_memory
from dprotonet.config import NetworkConfig
from dprotonet.data.birds import Birds
from dprotonet.data.transforms import Augment, Views
from dprotonet.experiment.build.network import build_network, build_normalise
from dprotonet.network import DProtoNet
from dprotonet.training.engine import Engine
from dprotonet.training.events import EpochDone
from dprotonet.training.features import FeatureCache
from dprotonet.training.phases import LearningRates, Phase
from dprotonet.training.push import Pusher
from dprotonet.training.views import ViewSource


def seconds_an_epoch(network: DProtoNet, train: ViewSource, val: ViewSource, epochs: int) -> list[float]:
    accelerator = Accelerator()
    engine = Engine(network, train, val, accelerator, Pusher(accelerator))
    phase = Phase("warm", epochs + 1, LearningRates(backbone=0.0))
    seconds = [event.seconds for event in engine.run([phase]) if isinstance(event, EpochDone)]
    return seconds[1:]  # the first warms up


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--per-species", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=1)
    options = parser.parse_args()
    birds = Birds(species=12, per_species=options.per_species)
    val_birds = Birds(species=12, per_species=1, split="val")
    network = build_network(NetworkConfig(), classes=12, image_size=224, pretrained=True)
    normalise = build_normalise(network.encoder.backbone, 3)
    train = Views(birds, normalise, augment=Augment(), seed=0)
    val = Views(val_birds, normalise, augment=None, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        sources = []
        for views, count in ((train, 1), (val, 0)):
            cache = FeatureCache(Path(folder), network.encoder.backbone, views, count, Accelerator().device)
            for _ in cache.build():
                pass
            sources.append(cache.open())
        building = time.perf_counter() - started
        print("cached", file=sys.stderr)
        frozen = seconds_an_epoch(network.without_backbone(), sources[0], sources[1], options.epochs)
        print("frozen epochs done", file=sys.stderr)
        live = seconds_an_epoch(network, train, val, options.epochs)
    best_frozen, best_live = min(frozen), min(live)
    print(
        json.dumps(
            {
                "benchmark": "frozen_epoch",
                "images": len(birds),
                "frozen_seconds": best_frozen,
                "recomputing_seconds": best_live,
                "speedup": best_live / best_frozen,
                "building_seconds": building,
            }
        )
    )


if __name__ == "__main__":
    main()
