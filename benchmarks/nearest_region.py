"""`nearest_regions` against the literal formula: time and memory of one forward and backward pass.

Literal is what the field writes: ||z||² - 2 z·p + ||p||², clamped at 0, smallest over regions, with autograd
keeping the whole (B, R, P). Time: both alternate in one process. Memory: each in a fresh process, as the
growth of its resident high-water mark (`ru_maxrss`) over the step, inputs allocated and libraries warm.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial

import torch
from timing import alternating_seconds, middle, peak_mb, say, tell
from torch import Tensor

from dprotonet.inference.nearest import nearest_regions

TARGETS = {"time_ratio": 0.65, "memory_ratio": 1 / 3}
Distances = Callable[[Tensor, Tensor], Tensor]


def ours(regions: Tensor, prototypes: Tensor) -> Tensor:
    return nearest_regions(regions, prototypes).distances


def literal(regions: Tensor, prototypes: Tensor) -> Tensor:
    squares = regions.square().sum(-1, keepdim=True)
    distances = squares - 2 * regions @ prototypes.T + prototypes.square().sum(-1)
    return distances.clamp_min(0).min(dim=1).values


WAYS: dict[str, Distances] = {"ours": ours, "literal": literal}


def inputs(settings: argparse.Namespace) -> tuple[Tensor, Tensor, Tensor]:
    """Region vectors, prototypes and the gradient that arrives at the distances."""
    generator = torch.Generator().manual_seed(0)
    shapes = (
        (settings.batch, settings.regions, settings.dimension),
        (settings.prototypes, settings.dimension),
        (settings.batch, settings.prototypes),
    )
    regions, prototypes, grad = (torch.randn(shape, generator=generator) for shape in shapes)
    return regions.requires_grad_(), prototypes.requires_grad_(), grad


def step(way: Distances, regions: Tensor, prototypes: Tensor, grad: Tensor) -> list[Tensor]:
    """Distances and the gradients of regions and prototypes."""
    distances = way(regions, prototypes)
    return [distances.detach(), *torch.autograd.grad(distances, (regions, prototypes), grad)]


def step_memory(name: str, settings: argparse.Namespace) -> float:
    regions, prototypes, grad = inputs(settings)
    step(WAYS[name], regions[:1], prototypes, grad[:1])  # so that libraries have their buffers
    before = peak_mb()
    step(WAYS[name], regions, prototypes, grad)
    return peak_mb() - before


def memory_in_fresh_process(name: str) -> float:
    command = [sys.executable, __file__, *sys.argv[1:], "--only-memory", name]
    return float(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout))


def largest_relative_difference(settings: argparse.Namespace) -> dict[str, float]:
    """Distances: the largest over all pairs; gradients: largest deviation over largest value."""
    regions, prototypes, grad = inputs(settings)
    fast, slow = (step(way, regions, prototypes, grad) for way in WAYS.values())
    differences = [(a - b).abs() for a, b in zip(fast, slow, strict=True)]
    return {
        "distances": (differences[0] / slow[0]).max().item(),
        "grad_regions": (differences[1].max() / slow[1].abs().max()).item(),
        "grad_prototypes": (differences[2].max() / slow[2].abs().max()).item(),
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=60)
    parser.add_argument("--regions", type=int, default=720)
    parser.add_argument("--prototypes", type=int, default=2000)
    parser.add_argument("--dimension", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only-memory", choices=list(WAYS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    settings = arguments()
    if settings.only_memory:
        print(step_memory(settings.only_memory, settings))
        return
    # Memory first: on Linux a child starts from the high-water mark of the process that spawned it.
    memory = {name: memory_in_fresh_process(name) for name in WAYS}
    say(f"peak memory in MB: {memory}")
    given = inputs(settings)
    turns = {name: partial(step, way, *given) for name, way in WAYS.items()}
    seconds = alternating_seconds(turns, repeats=settings.repeats)
    shape = {name: getattr(settings, name) for name in ("batch", "regions", "prototypes", "dimension")}
    time_ratio = middle(seconds["ours"]) / middle(seconds["literal"])
    memory_ratio = memory["ours"] / memory["literal"]
    tell(
        {
            "benchmark": "nearest_region",
            "settings": {
                **shape,
                "dtype": "float32",
                "repeats": settings.repeats,
                "threads": torch.get_num_threads(),
            },
            "ours_seconds": middle(seconds["ours"]),
            "literal_seconds": middle(seconds["literal"]),
            "all_seconds": seconds,
            "time_ratio": time_ratio,
            "ours_peak_mb": memory["ours"],
            "literal_peak_mb": memory["literal"],
            "memory_ratio": memory_ratio,
            "memory_measured": "growth of ru_maxrss over one forward and backward, fresh process each",
            "largest_relative_difference": largest_relative_difference(settings),
            "targets": TARGETS,
            "reached": time_ratio <= TARGETS["time_ratio"] and memory_ratio <= TARGETS["memory_ratio"],
        }
    )


if __name__ == "__main__":
    main()
