"""A push against one inference pass over the very images it looks at, in one run.

    python benchmarks/push_cost.py [--images 3] [--per-species 5]

The push looks at every training image once and at M views of every source image. The inference pass encodes
the same views in the same order and classifies them.
"""

import argparse
import json
import statistics
import time

import torch
from accelerate import Accelerator

from dprotonet.compat import keep_freed_memory
from dprotonet.config import NetworkConfig
from dprotonet.data.birds import Birds
from dprotonet.data.transforms import Augment, Views
from dprotonet.experiment.build.network import build_network, build_normalise
from dprotonet.network import DProtoNet
from dprotonet.training.push import Projection, Pusher
from dprotonet.training.start import starting_vectors
from dprotonet.training.views import chunks, load


@torch.no_grad()
def inference_seconds(network: DProtoNet, views: Views, projection: Projection) -> float:
    keys = [(index, 0) for index in range(len(views))]
    for index in projection.index.unique().tolist():
        keys += [(index, variant) for variant in range(projection.views)]
    started = time.perf_counter()
    for view in load(views, chunks(keys, 60), workers=0):
        network(view.inputs)
    return time.perf_counter() - started


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=3, help="M of multi-image prototype learning")
    parser.add_argument("--per-species", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    network = build_network(NetworkConfig(), classes=12, image_size=224, pretrained=True).eval()
    normalise = build_normalise(network.encoder.backbone, 3)
    views = Views(Birds(species=12, per_species=options.per_species), normalise, augment=Augment(), seed=0)
    start = starting_vectors(network, views, seed=0, device=torch.device("cpu"))
    push = Pusher(Accelerator(cpu=True), images=options.images)
    ratios, pushes, passes = [], [], []
    for _ in range(options.repeats):
        network.initialise_prototypes(start)
        started = time.perf_counter()
        projection = push(network, views)
        pushes.append(time.perf_counter() - started)
        passes.append(inference_seconds(network, views, projection))
        ratios.append(pushes[-1] / passes[-1])
    looked_at = len(views) + projection.views * len(projection.index.unique())
    print(
        json.dumps(
            {
                "benchmark": "push_cost",
                "views_looked_at": looked_at,
                "push_seconds": statistics.median(pushes),
                "inference_seconds": statistics.median(passes),
                "ratio": statistics.median(ratios),
            }
        )
    )


if __name__ == "__main__":
    main()
