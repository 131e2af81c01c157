"""How faithful, how well placed and how dear heatmaps are: the MDM decoder against its rivals, in one run.

    python benchmarks/decoder.py --images FOLDER                       ImageNet classifier, predicted classes
    python benchmarks/decoder.py --data folder:ROOT --probe BACKBONE   a probe trained on ROOT, masks as truth
    python benchmarks/decoder.py --data birds --run RUN --node prototype

Every method explains the same images for the same node. Columns: deletion and insertion (protocol rise-28,
class = prediction), AD and AI with the soft map, AD50 and AI50 with the top half of the pixels kept, all in
the network's normalised space; with truth also DICE, IOU, PPV, sensitivity of the top fifth, energy share and
pointing. Random, centred and all-but-one maps are printed as controls. `--part tune` takes every other image,
`held` the rest: settings were chosen on `tune`. A preset may be changed, `--methods fast fast:zoom=1`; what
comes first is compared with the others. Prints a table on stderr and one JSON object on stdout.
"""

import argparse
import ast
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from subjects import Similarities, part_of, predicted, probe, samples, spread, stacked
from torch import Tensor, nn

from dprotonet.compat import keep_freed_memory
from dprotonet.config import DataConfig
from dprotonet.experiment.build import build_splits
from dprotonet.experiment.classifier import Classifier
from dprotonet.experiment.model import Model
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import CAM, METHODS
from dprotonet.interpretation.mdm import MDM, PRESETS, Preset, preset
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.metrics.comparison import paired_bootstrap
from dprotonet.metrics.controls import all_but_one, centre_gaussian, random_maps
from dprotonet.metrics.faithfulness import (
    RiseProtocol,
    Score,
    area_under,
    average_drop,
    average_increase,
    deletion_curves,
    explained_images,
    insertion_curves,
)
from dprotonet.metrics.localization import energy_share, overlap, pointing, top_share
from dprotonet.ops import unit_range

SMALLER_IS_BETTER = ("deletion", "AD", "AD50")
CONTROLS = ("random", "centre", "all but one")


@dataclass(frozen=True)
class Subject:
    """What is explained: a network with logits, its images, and where the answer lies if that is known."""

    model: nn.Module
    images: Tensor  # (N, C, H, W), normalised
    labels: Tensor  # (N,), the node of each image
    truth: Tensor | None = None  # (N, H, W) bool
    part: Tensor | None = None  # (N, H, W) bool, what tells the class from its sibling
    layer: nn.Module | None = None  # of the CAMs; None for the deepest map
    probability: bool = True  # False: the outputs are similarities, not logits of a softmax

    def score(self) -> Score:
        """Probability of each image's class, or its similarity as a share of the unmasked image's."""

        @torch.no_grad()
        def probability(images: Tensor, rows: Tensor) -> Tensor:
            outputs = self.model(images).float()
            values = outputs.softmax(dim=1) if self.probability else outputs
            return values.gather(1, self.labels[rows].unsqueeze(1)).squeeze(1)

        if self.probability:
            return probability
        whole = torch.cat(
            [probability(self.images[row : row + 1], torch.tensor([row])) for row in range(len(self.images))]
        )
        return lambda images, rows: (probability(images, rows) / whole[rows]).clamp(0, 1)


@dataclass(frozen=True)
class Maps:
    """Of one method: ranking maps, heatmaps in [0, 1], seconds and passes an image."""

    raw: Tensor
    heatmaps: Tensor
    seconds: tuple[float, ...] = (0.0,)
    passes: tuple[int, int] = (0, 0)


def explained(subject: Subject, method: str) -> Maps:
    """Maps of a method for all images, one by one, as a user would ask for them."""
    found: list[Explanation] = []
    seconds = []
    explainer = _explainer(subject, method)
    for row in range(len(subject.images)):
        node = ClassNode(
            subject.model, subject.labels[row : row + 1], probability=_watches_probability(subject, method)
        )
        start = time.perf_counter()
        found += explainer.explain(subject.images[row : row + 1], node)
        seconds.append(time.perf_counter() - start)
        print(f"\r{method}: {row + 1}/{len(subject.images)}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40, end="\r", file=sys.stderr)
    maps = Maps(
        torch.stack([item.raw for item in found]),
        torch.stack([item.heatmap for item in found]),
        tuple(seconds),
        tuple(found[0].passes),
    )
    return maps


def _preset(method: str) -> Preset | None:
    """`fast`, or with changes: `fast:zoom=1,trust=1`; None for a method that is no preset."""
    name, _, changes = method.partition(":")
    if name not in PRESETS:
        return None
    pairs = (change.split("=", 1) for change in changes.split(",") if change)
    return preset(name, **{key: ast.literal_eval(value) for key, value in pairs})


def _explainer(subject: Subject, method: str) -> MDM | CAM:
    chosen = _preset(method)
    return (
        CAM(subject.model, method, layer=subject.layer)
        if chosen is None
        else MDM(subject.model, preset=chosen)
    )


def _watches_probability(subject: Subject, method: str) -> bool:
    chosen = _preset(method)
    return subject.probability and chosen is not None and chosen.probability


def control(subject: Subject, name: str) -> Maps:
    count, size = len(subject.images), (subject.images.shape[-2], subject.images.shape[-1])
    raw = {
        "random": lambda: random_maps(count, size, 0),
        "centre": lambda: centre_gaussian(count, size),
        "all but one": lambda: all_but_one(count, size),
    }[name]()
    return Maps(raw, unit_range(raw))


def columns(subject: Subject, maps: Maps) -> dict[str, Tensor]:
    """Every metric, one value an image."""
    score, images, rows = subject.score(), subject.images, torch.arange(len(subject.images))
    protocol = RiseProtocol()

    def of(pictures: Tensor) -> Tensor:
        return torch.cat([score(a, b) for a, b in zip(pictures.split(32), rows.split(32), strict=True)])

    before = of(images)
    soft = of(explained_images(images, maps.heatmaps, keep=None))
    half = of(explained_images(images, maps.raw, keep=0.5))
    found = {
        "deletion": area_under(deletion_curves(score, images, maps.raw, protocol=protocol)),
        "insertion": area_under(insertion_curves(score, images, maps.raw, protocol=protocol)),
        "AD": average_drop(before, soft),
        "AI": average_increase(before, soft),
        "AD50": average_drop(before, half),
        "AI50": average_increase(before, half),
    }
    if subject.truth is not None:
        found |= dict(overlap(top_share(maps.raw, 0.2), subject.truth)._asdict())
        found |= {
            "energy": energy_share(maps.heatmaps, subject.truth),
            "pointing": pointing(maps.raw, subject.truth).float(),
        }
    if subject.part is not None:
        found["heat on part"] = energy_share(maps.heatmaps, subject.part)
    return found


def compared(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> dict[str, Any]:
    """Ours against a rival's, column by column: the difference, its interval, and who is better."""
    result = {}
    for name in ours:
        sign = -1 if name in SMALLER_IS_BETTER else 1
        found = paired_bootstrap(sign * ours[name], sign * theirs[name])
        result[name] = {
            **found._asdict(),
            "better": found.difference > 0,
            "sure": found.low > 0 or found.high < 0,
        }
    return result


def mean(values: Tensor) -> float:
    return float(torch.nanmean(values.double()))


def table(rows: dict[str, dict[str, Any]]) -> str:
    names = list(next(iter(rows.values()))["mean"])
    lines = [f"{'':14}" + "".join(f"{name:>12}" for name in (*names, "seconds", "F", "B"))]
    for method, row in rows.items():
        numbers = [f"{row['mean'][name]:12.3f}" for name in names]
        numbers += [f"{row['seconds']:12.2f}", *(f"{count:12d}" for count in row["passes"])]
        lines.append(f"{method:14}" + "".join(numbers))
    return "\n".join(lines)


def measured(subject: Subject, methods: list[str], keep: Path | None) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, Tensor]] = {}
    for method in (*CONTROLS, *methods):
        maps = control(subject, method) if method in CONTROLS else explained(subject, method)
        values[method] = columns(subject, maps)
        rows[method] = {
            "mean": {name: mean(column) for name, column in values[method].items()},
            "seconds": statistics.median(maps.seconds),
            "passes": maps.passes,
        }
        print(table({method: rows[method]}), file=sys.stderr, flush=True)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            np.save(keep / f"{method.replace(':', '-')}.npy", maps.raw.numpy())
    print(table(rows), file=sys.stderr)
    ours = methods[0]
    rivals = [method for method in methods[1:] if method in METHODS]
    return {
        "images": len(subject.images),
        "rows": rows,
        "compared": {f"{ours} vs {name}": compared(values[ours], values[name]) for name in methods[1:]},
        "time ratio": {name: rows[ours]["seconds"] / rows[name]["seconds"] for name in methods[1:]},
        "first in": [
            name
            for name in values[ours]
            if all(_better(name, rows[ours]["mean"][name], rows[rival]["mean"][name]) for rival in rivals)
        ],
    }


def _better(name: str, ours: float, theirs: float) -> bool:
    return ours < theirs if name in SMALLER_IS_BETTER else ours > theirs


def imagenet(options: argparse.Namespace) -> Subject:
    """Predicted classes of an ImageNet classifier on a folder of images."""
    suffixes = (".jpg", ".jpeg", ".png")
    paths = sorted(path for path in options.images.iterdir() if path.suffix.lower() in suffixes)
    classifier = Classifier.open(options.model)
    model = classifier.module.eval().requires_grad_(False)
    chosen = [paths[index] for index in spread(part_of(len(paths), options.part), options.count)]
    images = classifier.inputs(list(chosen))
    layer = dict(model.named_modules())[options.layer] if options.layer else None
    return Subject(model, images, predicted(model, images), layer=layer)


def located(options: argparse.Namespace) -> Subject:
    """A probe, or a trained DProtoNet, on test images whose foreground (and telling part) is known."""
    if options.run is not None:
        trained = Model.load(options.run)
        model: nn.Module = trained.network
        normalise = trained.normalise
        data = (
            build_splits(DataConfig(data=options.data)).test
            if options.data
            else build_splits(trained.config.data).test
        )
    else:
        model, normalise, data = probe(options.probe, options.data)
    images, chosen = samples(data, spread(part_of(len(data), options.part), options.count), normalise)
    labels = predicted(model, images)
    truth = stacked([sample.truth for sample in chosen])
    part = stacked(
        [sample.parts.get(sample.deciding_part) if sample.deciding_part else None for sample in chosen]
    )
    if options.node == "class":
        return Subject(model, images, labels, truth, part)
    with torch.no_grad():
        seen = model.evidence(images)
    strongest = model.contributions(seen, labels).argmax(dim=1)
    return Subject(Similarities(model).eval(), images, strongest, truth, part, probability=False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=Path, help="folder of images for an ImageNet classifier")
    parser.add_argument("--model", default="timm:tf_efficientnet_lite0:packaged")
    parser.add_argument("--layer", default="", help="module for the CAMs (default: the deepest map)")
    parser.add_argument("--data", default="birds", help="birds or folder:ROOT")
    parser.add_argument("--probe", default="timm:tf_efficientnet_lite0:packaged")
    parser.add_argument("--run", type=Path, help="a trained DProtoNet instead of a probe")
    parser.add_argument("--node", choices=("class", "prototype"), default="class")
    parser.add_argument("--part", choices=("tune", "held", "all"), default="held")
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--methods", nargs="+", default=["fast", *METHODS])
    parser.add_argument("--keep", type=Path, help="folder for the raw maps as .npy")
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()
    options = arguments()
    subject = imagenet(options) if options.images else located(options)
    result = measured(subject, options.methods, options.keep)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    facts = {"protocol": RiseProtocol().name, "space": "normalised", "threads": torch.get_num_threads()}
    print(json.dumps({"benchmark": "decoder", "settings": settings | facts, **result}))


if __name__ == "__main__":
    main()
