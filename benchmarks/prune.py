"""Pruning: a running top-k against the usual Python loop with a heap for every prototype.

Both get the same distances, 6,000 images × 2,000 prototypes in batches, and must count the same images. The
loop is what the field runs: an object for each pair, a heap of the k nearest for each prototype.
"""

import argparse
import heapq
from collections import Counter
from functools import partial

import torch
from timing import alternating_seconds, middle, tell
from torch import Tensor

from dprotonet.inference.prune import NearestImages

TARGETS = {"times_faster": 100}


class Found:
    """An image beside a prototype; the heap's head is the farthest."""

    def __init__(self, label: int, distance: float) -> None:
        self.label = label
        self.negative_distance = -distance

    def __lt__(self, other: "Found") -> bool:
        return self.negative_distance < other.negative_distance


def ours(distances: Tensor, labels: Tensor, owner: Tensor, *, nearest: int, batch: int) -> Tensor:
    found = NearestImages(len(owner), nearest=nearest)
    for rows, some in zip(distances.split(batch), labels.split(batch), strict=True):
        found.update(rows, some)
    return found.of_own_class(owner)


def loop(distances: Tensor, labels: Tensor, owner: Tensor, *, nearest: int) -> Tensor:
    heaps: list[list[Found]] = [[] for _ in owner]
    for row, label in zip(distances.numpy(), labels.tolist(), strict=True):
        for number in range(len(heaps)):
            found = Found(label, row[number])
            if len(heaps[number]) < nearest:
                heapq.heappush(heaps[number], found)
            else:
                heapq.heappushpop(heaps[number], found)
    counts = [Counter(item.label for item in heap) for heap in heaps]
    return torch.tensor([count[label] for count, label in zip(counts, owner.tolist(), strict=True)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--classes", type=int, default=200)
    parser.add_argument("--per-class", type=int, default=10)
    parser.add_argument("--nearest", type=int, default=6)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--repeats", type=int, default=2)
    return parser.parse_args()


def main() -> None:
    options = arguments()
    generator = torch.Generator().manual_seed(0)
    owner = torch.arange(options.classes).repeat_interleave(options.per_class)
    distances = torch.rand(options.images, len(owner), generator=generator)
    labels = torch.randint(options.classes, (options.images,), generator=generator)
    distances -= 0.99 * (labels.unsqueeze(1) == owner) * torch.rand(len(owner), generator=generator)
    steps = {
        "ours": partial(ours, distances, labels, owner, nearest=options.nearest, batch=options.batch),
        "loop": partial(loop, distances, labels, owner, nearest=options.nearest),
    }
    same = torch.equal(steps["ours"](), steps["loop"]())
    seconds = alternating_seconds(steps, repeats=options.repeats, warm_up=0)
    faster = middle(seconds["loop"]) / middle(seconds["ours"])
    tell(
        {
            "benchmark": "prune",
            "settings": {**vars(options), "threads": torch.get_num_threads()},
            "ours_seconds": middle(seconds["ours"]),
            "loop_seconds": middle(seconds["loop"]),
            "all_seconds": seconds,
            "same_counts": same,
            "times_faster": faster,
            "targets": TARGETS,
            "reached": faster >= TARGETS["times_faster"],
        }
    )


if __name__ == "__main__":
    main()
