"""What deletion and insertion cost: against Quantus, against torchcam, and beyond the network's own passes.

The packaged Lite0 at 224 px on built-in birds, the predicted class, the same smooth random maps for all, 28
steps. Quantus' pixel flipping is one curve, so it is compared with our deletion; torchcam has both curves in
one call, so it is compared with both of ours. The fastest of the turns counts, the least disturbed one. A
real network takes nearly the same passes whoever asks for them (`passes_an_image`; torchcam scores an end of
both curves once), so only what is spent beside them can be saved: a network that costs next to nothing,
`cheap`, shows that. What is not installed is null (`pip install dprotonet[bench]` has Quantus).
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from timing import alternating_seconds, middle, say, tell
from torch import Tensor, nn

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.data.birds import Birds
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.metrics.controls import random_maps
from dprotonet.metrics.faithfulness import RiseProtocol, area_under, deletion_curves, insertion_curves
from dprotonet.ops import unit_range, upsample

TARGETS = {"quantus_ratio": 10.0, "torchcam_ratio": 1.0, "outside_share": 0.10}
SIZE = (224, 224)
PROTOCOL = RiseProtocol()


class Cheap(nn.Module):
    """Two logits from the mean of the image: a network that is not worth mentioning."""

    def forward(self, images: Tensor) -> Tensor:
        mean = images.mean(dim=(1, 2, 3))
        return torch.stack([mean, -mean], dim=1)


class Subject:
    """A network, images, their predicted classes and maps; counts the seconds inside the network."""

    def __init__(self, model: nn.Module, images: Tensor, maps: Tensor) -> None:
        self.model, self.images, self.maps = model, images, maps
        self.inside = 0.0
        with torch.no_grad():
            self.labels = model(images).argmax(dim=1)

    def score(self, images: Tensor, rows: Tensor) -> Tensor:
        start = time.perf_counter()
        logits = self.model(images)
        self.inside += time.perf_counter() - start
        return logits.softmax(dim=1).gather(1, self.labels[rows].unsqueeze(1)).squeeze(1)

    def deletion(self) -> float:
        return self._area(deletion_curves)

    def insertion(self) -> float:
        return self._area(insertion_curves)

    def _area(self, curves: Callable[..., Tensor]) -> float:
        return area_under(curves(self.score, self.images, self.maps, protocol=PROTOCOL)).mean().item()

    def both(self) -> tuple[float, float]:
        return self.deletion(), self.insertion()


class GivenMaps:
    """What torchcam takes for an extractor, with our maps instead of its own."""

    def __init__(self, model: nn.Module, maps: Tensor) -> None:
        self.model, self.maps = model, maps

    def __call__(self, *_: object, **__: object) -> list[Tensor]:
        return [self.maps]

    def fuse_cams(self, cams: list[Tensor]) -> Tensor:
        return cams[0]

    @contextmanager
    def _hooks_off(self) -> Iterator[None]:
        yield


def torchcam_both(subject: Subject) -> dict[str, float]:
    """Deletion and insertion from zeros, in batches of our size."""
    metric = import_guarded("torchcam.metrics").DeletionInsertionMetric(
        GivenMaps(subject.model, subject.maps),
        lambda logits: logits.softmax(-1),
        steps=PROTOCOL.steps,
        batch_size=PROTOCOL.batch,
    )
    with torch.no_grad():
        metric.update(subject.images, subject.labels.tolist())
    areas: dict[str, float] = metric.summary()
    return areas


def quantus_deletion(subject: Subject) -> list[list[float]]:
    """Pixel flipping to zeros; it counts the numbers of all channels, so three for a pixel."""
    metric = import_guarded("quantus").PixelFlipping(
        features_in_step=3 * SIZE[0] * SIZE[1] // (PROTOCOL.steps or 1),
        normalise=False,
        perturb_baseline=0.0,
        disable_warnings=True,
    )
    # Its check divides the pixels, not the numbers, by the step, and so refuses steps of whole pixels.
    metric.custom_preprocess = lambda **_: None
    curves: list[list[float]] = metric(
        model=subject.model,
        x_batch=subject.images.numpy(),
        y_batch=subject.labels.numpy(),
        a_batch=subject.maps.unsqueeze(1).numpy(),
        channel_first=True,
        batch_size=PROTOCOL.batch,
    )
    return curves


def passes(subject: Subject, steps: dict[str, Callable[[], object]]) -> dict[str, float]:
    """How many images each step sends through the network for one image."""
    seen: list[int] = []
    hook = subject.model.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    counts = {}
    for name, step in steps.items():
        seen.clear()
        step()
        counts[name] = sum(seen) / len(subject.images)
    hook.remove()
    return counts


def subjects(count: int) -> dict[str, Subject]:
    say(f"drawing {count} birds")
    classifier = Classifier.open("timm:tf_efficientnet_lite0:packaged")
    birds = Birds(species=count, per_species=1, split="test", size=SIZE[0])
    images = classifier.normalise(torch.stack([birds[index].image for index in range(count)]))
    maps = unit_range(upsample(random_maps(count, (7, 7), 0), SIZE) + 1e-3 * random_maps(count, SIZE, 1))
    models = {"lite0": classifier.module.eval().requires_grad_(False), "cheap": Cheap().eval()}
    return {name: Subject(model, images, maps) for name, model in models.items()}


def outside_share(subject: Subject) -> float:
    """Share of the seconds of deletion and insertion that the network does not take."""
    subject.inside, start = 0.0, time.perf_counter()
    subject.both()
    return 1 - subject.inside / (time.perf_counter() - start)


def rivals(subject: Subject) -> dict[str, Callable[[], object]]:
    """What is timed, as far as it is installed."""
    steps: dict[str, Callable[[], object]] = {"ours_deletion": subject.deletion, "ours_both": subject.both}
    if find_spec("torchcam"):
        steps["torchcam_both"] = lambda: torchcam_both(subject)
    if find_spec("quantus"):
        steps["quantus_deletion"] = lambda: quantus_deletion(subject)
    return steps


def measured(subject: Subject, repeats: int) -> dict[str, Any]:
    steps = rivals(subject)
    all_seconds = alternating_seconds(steps, repeats=repeats)
    seconds = {name: min(values) for name, values in all_seconds.items()}
    pairs = {
        "quantus_ratio": ("quantus_deletion", "ours_deletion"),
        "torchcam_ratio": ("torchcam_both", "ours_both"),
    }
    ratios = {
        name: seconds[theirs] / seconds[ours] if theirs in seconds else None
        for name, (theirs, ours) in pairs.items()
    }
    shares = [outside_share(subject) for _ in range(repeats)]
    return {"seconds": seconds, "all_seconds": all_seconds, **ratios, "outside_share": middle(shares)}


def reached(name: str, value: float | None) -> bool | None:
    if value is None:
        return None
    return value <= TARGETS[name] if name == "outside_share" else value >= TARGETS[name]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()  # as the commands do
    settings = arguments()
    import_guarded("torchvision")
    chosen = subjects(settings.images)
    results = {name: measured(item, settings.repeats) for name, item in chosen.items()}
    facts = {"protocol": PROTOCOL.name, "pixels": SIZE[0], "threads": torch.get_num_threads()}
    tell(
        {
            "benchmark": "metrics",
            "settings": vars(settings) | facts,
            **results,
            "passes_an_image": passes(chosen["cheap"], rivals(chosen["cheap"])),
            "targets": TARGETS,
            "reached": {name: reached(name, results["lite0"][name]) for name in TARGETS},
        }
    )


if __name__ == "__main__":
    main()
