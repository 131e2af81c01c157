"""What grows with images, classes, prototypes, masks and resolution: parts alone, at a size and at twice it.

    python benchmarks/growth.py --out docs/results/growth.json

Every measurement is a copy of this process that does one thing; told is how far its resident memory rose
above that of the idle process, at its peak (Linux). Sizes are those of ImageNet where a part is cheap enough
for it. The whole run, from training to the page, is benchmarks/scale.py.
"""

import argparse
import ctypes
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import say, tell

from dprotonet.data.scan import ImageFile
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.prototypes.facts import NearImage, PrototypeFacts
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.inference.projection import collapsed_prototypes
from dprotonet.inference.prune import NearestImages
from dprotonet.training import score_rows
from dprotonet.training.score_rows import Room, ScoreRows
from dprotonet.training.views import ProcessShare, epoch_parts

IMAGES, CLASSES, PROTOTYPES = 1_280_000, 1000, 10_000


# ── measuring ──


def resident(what: str) -> int:
    """VmRSS (now) or VmHWM (peak) in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))


def peak(action: Callable[[], object]) -> int:
    """Bytes above the idle process, in a copy of it."""
    ctypes.CDLL(None).malloc_trim(0)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        idle, kept = resident("VmRSS"), action()
        os.write(writer, str(resident("VmHWM") - idle).encode())
        del kept
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    return int(said)


# ── with images ──


class Labels:
    """So many images of which only the labels are known."""

    augmentations = 4

    def __init__(self, count: int) -> None:
        self.labels = np.arange(count) % CLASSES

    def __len__(self) -> int:
        return len(self.labels)


def epoch_of(count: int) -> Callable[[], object]:
    """Everything that an epoch is to look at, and the batches one after the other."""
    views: Any = Labels(count)

    def work() -> object:
        parts = epoch_parts(views, seed=0, epoch=1, batch=60, share=ProcessShare())
        return parts, sum(len(parts[number].keys) for number in range(0, len(parts), 50))

    return work


def tuples_of(count: int) -> Callable[[], object]:
    """The same as lists of tuples, as it was."""

    def work() -> object:
        keys = [(index, (1 + index) % 5) for index in range(count)]
        order = torch.randperm(count).tolist()
        shuffled = [keys[place] for place in order]
        return keys, order, [shuffled[first : first + 60] for first in range(0, count, 60)]

    return work


def files_of(count: int) -> Callable[[], object]:
    """What is known of each file of a folder."""

    def work() -> object:
        return [
            ImageFile(f"train/n{number % CLASSES:08d}/n{number % CLASSES:08d}_{number}.JPEG", "train",
                      f"n{number % CLASSES:08d}", extent=(500, 375), digest=f"{number:032x}")
            for number in range(count)
        ]  # fmt: skip

    return work


def scores_of(count: int) -> Callable[[], object]:
    """Scores by ten thousand prototypes: written, and read once."""

    def work() -> object:
        with tempfile.TemporaryDirectory() as folder:
            rows = ScoreRows.empty(Room(count, PROTOTYPES, Path(folder)))
            batch = torch.rand(500, PROTOTYPES)
            for first in range(0, count, 500):
                rows.put(first, batch)
            return sum(float(block[0, 0]) for _, block in rows.blocks())

    return work


# ── with prototypes ──


def collapsed_of(count: int) -> Callable[[], object]:
    vectors, owner = torch.randn(count, 64), torch.arange(count) // 10
    return lambda: collapsed_prototypes(vectors, owner)


def all_pairs_of(count: int) -> Callable[[], object]:
    """The same over all pairs of prototypes, as it was."""
    vectors, owner = torch.randn(count, 64).double(), torch.arange(count) // 10

    def work() -> object:
        gap = torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
        same = owner.unsqueeze(1) == owner
        return ((gap <= 1e-4) & same & torch.ones_like(same).tril(-1)).any(dim=1)

    return work


def nearest_of(count: int) -> Callable[[], object]:
    """The ten nearest images of each, over some batches."""
    found, labels = NearestImages(count, nearest=10), torch.arange(60)

    def work() -> None:
        for _ in range(5):
            found.update(torch.rand(60, count), labels)

    return work


def facts_of(count: int) -> Callable[[], object]:
    near = [NearImage(n, f"train/n{n:08d}/n{n:08d}_{n}.JPEG", n, 1.0 + n / 7, 2.0 - n / 7) for n in range(10)]

    def work() -> object:
        facts = [
            PrototypeFacts(n, f"n{n:08d}", n // 10, 0.9, 0.8, 10, 4, tuple(near), ()) for n in range(count)
        ]
        return facts, json.dumps([item.to_json() for item in facts], indent=1)

    return work


# ── a training step on frozen features ──


def step_of(*, masks: int = 360, side: int = 7, classes: int = 100, batch: int = 20) -> Callable[[], object]:
    """Forward and backward of DProtoNet with masks and ten prototypes of each class, and Adam's memory."""
    words = {"backbone": "timm:tf_efficientnet_lite0:none", "masks": masks, "dimension": 128}
    config = config_from({"recipe": "masks", "network": words})
    network = build_network(config.network, classes=classes, image_size=32 * side, pretrained=False)
    network = network.without_backbone()
    inputs, labels = torch.randn(batch, 1280, side, side), torch.arange(batch) % classes

    def work() -> object:
        optimizer = torch.optim.Adam(network.parameters())
        torch.nn.functional.cross_entropy(network(inputs), labels).backward()
        optimizer.step()
        return optimizer

    return work


MEASURED: dict[str, tuple[str, dict[str, Callable[[], object]]]] = {
    "keys": ("images", {str(count): epoch_of(count) for count in (IMAGES // 2, IMAGES)}),
    "keys as tuples": ("images", {str(count): tuples_of(count) for count in (IMAGES // 2, IMAGES)}),
    "files": ("images", {str(count): files_of(count) for count in (IMAGES // 8, IMAGES // 4)}),
    "scores": ("images", {str(count): scores_of(count) for count in (25_000, 50_000)}),
    "collapsed": ("prototypes", {str(count): collapsed_of(count) for count in (5000, 10_000)}),
    "collapsed, all pairs": ("prototypes", {str(count): all_pairs_of(count) for count in (2500, 5000)}),
    "nearest images": ("prototypes", {str(count): nearest_of(count) for count in (5000, 10_000)}),
    "facts": ("prototypes", {str(count): facts_of(count) for count in (2500, 5000)}),
    "step by masks": ("masks", {str(count): step_of(masks=count) for count in (360, 720)}),
    "step by side": ("side of the map", {str(count): step_of(side=count) for count in (7, 14)}),
    "step by classes": ("classes", {str(count): step_of(classes=count) for count in (100, 200)}),
    "step by batch": ("images at a time", {str(count): step_of(batch=count) for count in (20, 40)}),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=MEASURED)
    parser.add_argument("--out", type=Path, help="JSON; parts that are there and not measured now stay")
    options = parser.parse_args()
    found = json.loads(options.out.read_text()) if options.out and options.out.exists() else {"parts": {}}
    for name in options.only or MEASURED:
        grows, actions = MEASURED[name]
        sizes = {size: round(peak(action) / 1e6, 1) for size, action in actions.items()}
        small, large = sizes.values()
        found["parts"][name] = {"with": grows, "megabytes": sizes, "ratio": round(large / max(small, 0.1), 2)}
        say(f"{name}: {found['parts'][name]}")
    found["scores_in_memory_bytes"] = score_rows.IN_MEMORY
    tell(found)
    if options.out:
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
