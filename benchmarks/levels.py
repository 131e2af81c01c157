"""What joined levels cost: two levels against one, in one run.

    python benchmarks/levels.py [--backbone timm:tf_efficientnet_lite0:none] [--batch 8] [--clock cpu]

DProtoNet with masks on the last map against `--levels 2` with masks, with `--regions points --similarity
cosine`, and with parts, frozen mode's default. A prediction is a forward pass; a joint step is forward, loss,
backward and Adam over everything; a frozen step is the same behind the backbone, on feature maps. Reading
images or features and fitting the projection are not counted. In turns; the fastest counts. JSON on stdout.
"""

import argparse
from collections.abc import Callable
from typing import Any

import torch
from networks import CLOCKS, prediction, training_step
from timing import alternating_seconds, tell

from dprotonet.compat import keep_freed_memory
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.settings.recipes import config_from

POINTS = {"regions": "points", "similarity": "cosine"}
NETWORKS: dict[str, dict[str, Any]] = {
    "one level, masks": {},
    "two levels, masks": {"levels": 2},
    "two levels, points": {"levels": 2, **POINTS},
    "one level, points": POINTS,
    "parts": {"levels": 2, "regions": "parts", "similarity": "cosine", "dimension": 256},
}
FIRST, *_ = NETWORKS


def steps_of(name: str, options: argparse.Namespace) -> dict[str, Callable[[], object]]:
    config = config_from({"network": {**NETWORKS[name], "backbone": options.backbone}})
    torch.manual_seed(0)
    network = build_network(
        config.network, classes=options.classes, image_size=options.pixels, pretrained=False
    )
    images = torch.randn(options.batch, 3, options.pixels, options.pixels)
    with torch.no_grad():
        maps = network.eval().encoder.backbone(images)
    labels = torch.randint(options.classes, (options.frozen_batch,))
    features = maps[torch.arange(options.frozen_batch) % options.batch]
    return {
        f"{name}: prediction": prediction(network, images),
        f"{name}: joint step": training_step(config, network, (images, labels[: options.batch])),
        f"{name}: frozen step": training_step(config, network.without_backbone(), (features, labels)),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backbone", default="timm:tf_efficientnet_lite0:none")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--frozen-batch", type=int, default=60)
    parser.add_argument("--classes", type=int, default=12)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall", help="cpu: where others use the machine")
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()  # as the commands do
    options = arguments()
    steps = {key: step for name in NETWORKS for key, step in steps_of(name, options).items()}
    taken = alternating_seconds(steps, repeats=options.repeats, clock=CLOCKS[options.clock])
    kinds = ("prediction", "joint step", "frozen step")
    best = {name: {kind: min(taken[f"{name}: {kind}"]) for kind in kinds} for name in NETWORKS}
    ratios = {
        name: {kind: best[name][kind] / best[FIRST][kind] for kind in kinds}
        for name in NETWORKS
        if name != FIRST
    }
    settings = {**vars(options), "threads": torch.get_num_threads()}
    tell({"benchmark": "levels", "settings": settings, "seconds": best, f"ratio to {FIRST}": ratios})


if __name__ == "__main__":
    main()
