"""How faithful, how well placed and how dear heatmaps are: the MDM decoder against its rivals, in one run.

    python benchmarks/decoder.py --images FOLDER                       ImageNet classifier, predicted classes
    python benchmarks/decoder.py --data folder:ROOT --probe BACKBONE   a probe trained on ROOT, masks as truth
    python benchmarks/decoder.py --data birds --run RUN --node prototype

Every method explains the same images for the same node. Columns: deletion and insertion (protocol rise-28,
class = prediction), AD and AI with the soft map, AD50 and AI50 with the top half of the pixels kept, all in
the network's normalised space; with truth also DICE, IOU, PPV, sensitivity of the top fifth, energy share and
pointing. Random, centred and all-but-one maps are printed as controls. `--part tune` takes every other image,
`held` the rest: settings were chosen on `tune`, so a run on `all` says the held half apart. A preset may be
changed, `--methods fast fast:zoom=1`; what comes first is compared with the others. `--keep DIR` keeps every
map and uses it again, so that a stopped run goes on. Prints a table on stderr and one JSON object on stdout.
"""

import argparse
import ast
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from subjects import Similarities, part_of, predicted, probe, samples, spread, stacked
from torch import Tensor, nn

from dprotonet.compat import keep_freed_memory
from dprotonet.config import DataConfig
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.explaining.explainers import prototype_node
from dprotonet.experiment.model import Model
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.files import whole
from dprotonet.interpretation.cam import CAM, CAM_CLASSES
from dprotonet.interpretation.mdm import MDM, PRESETS, Preset, preset
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.metrics.comparison import paired_bootstrap
from dprotonet.metrics.controls import all_but_one, centre_gaussian, random_maps
from dprotonet.metrics.faithfulness import Score
from dprotonet.metrics.measures import Explained, Protocol, Truth
from dprotonet.metrics.measures import measured as all_measures
from dprotonet.network import DProtoNet
from dprotonet.ops import unit_range

PROTOCOL = Protocol()
SMALLER_IS_BETTER = tuple(measure.name for measure in PROTOCOL.measures if not measure.higher)
ROOM = 4.0  # scores are at most 1, and a masked image may be more similar than the whole, hardly fourfold
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
    network: DProtoNet | None = None  # the outputs are the scores of its prototypes, no logits

    @property
    def probability(self) -> bool:
        return self.network is None

    def node(self, row: int, chosen: Preset | None) -> Node:
        """What a method watches: a preset a prototype or the class, as it prefers; a CAM an output."""
        labels = self.labels[row : row + 1]
        if chosen is not None and self.network is not None:
            return prototype_node(self.network, labels)
        watches_probability = self.probability and chosen is not None and chosen.probability
        return ClassNode(self.model, labels, probability=watches_probability)

    def score(self) -> Score:
        """Probability of each image's class, or similarity relative to the unmasked image's, / ROOM."""

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
        return lambda images, rows: probability(images, rows) / (ROOM * whole[rows])


@dataclass(frozen=True)
class Maps:
    """Of one method: ranking maps, heatmaps in [0, 1], seconds and passes an image."""

    raw: Tensor
    heatmaps: Tensor
    seconds: tuple[float, ...] = (0.0,)
    passes: tuple[int, int] = (0, 0)


def explained(subject: Subject, method: str, keep: Path | None) -> Maps:
    """Maps of a method for all images, one by one, as a user would ask for them."""
    found = []
    explainer = _explainer(subject, method)
    for row in range(len(subject.images)):
        path = keep / method.replace(":", "-") / f"{row:04d}.npz" if keep is not None else None
        found.append(kept_map(path) or _one(subject, method, explainer, row))
        if path is not None:
            store(path, found[-1])
        print(f"\r{method}: {row + 1}/{len(subject.images)}", end="", file=sys.stderr, flush=True)
    print("\r" + " " * 40, end="\r", file=sys.stderr)
    return Maps(
        torch.stack([item.raw for item in found]),
        torch.stack([item.heatmap for item in found]),
        tuple(item.seconds for item in found),
        found[0].passes,
    )


class One(NamedTuple):
    """The maps of one image and what they cost."""

    raw: Tensor
    heatmap: Tensor
    seconds: float
    passes: tuple[int, int]


def _one(subject: Subject, method: str, explainer: MDM | CAM, row: int) -> One:
    node = subject.node(row, named_preset(method))
    start = time.perf_counter()
    (found,) = explainer.explain(subject.images[row : row + 1], node)
    return One(found.raw, found.heatmap, time.perf_counter() - start, tuple(found.passes))


def kept_map(path: Path | None) -> One | None:
    if path is None or not path.exists():
        return None
    with np.load(path, allow_pickle=False) as file:
        maps = torch.from_numpy(file["raw"]), torch.from_numpy(file["heatmap"])
        return One(*maps, float(file["seconds"]), tuple(file["passes"].tolist()))


def store(path: Path, one: One) -> None:
    with whole(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file, raw=one.raw.numpy(), heatmap=one.heatmap.numpy(), seconds=one.seconds, passes=one.passes
        )


def named_preset(method: str) -> Preset | None:
    """`fast`, or with changes: `fast:zoom=1,trust=1`; None for a method that is no preset."""
    name, _, changes = method.partition(":")
    if name not in PRESETS:
        return None
    call = ast.parse(f"dict({changes})", mode="eval").body
    assert isinstance(call, ast.Call)
    return preset(name, **{str(item.arg): ast.literal_eval(item.value) for item in call.keywords})


def _explainer(subject: Subject, method: str) -> MDM | CAM:
    chosen = named_preset(method)
    return (
        CAM(subject.model, method, layer=subject.layer)
        if chosen is None
        else MDM(subject.model, preset=chosen)
    )


def control(subject: Subject, name: str) -> Maps:
    count, size = len(subject.images), (subject.images.shape[-2], subject.images.shape[-1])
    raw = {
        "random": lambda: random_maps(count, size, 0),
        "centre": lambda: centre_gaussian(count, size),
        "all but one": lambda: all_but_one(count, size),
    }[name]()
    return Maps(raw, unit_range(raw))


def columns(subject: Subject, maps: Maps) -> dict[str, Tensor]:
    """Every metric, one value an image; those that need a truth only where there is one."""
    truth = Truth(subject.truth, subject.part)
    found = all_measures(
        subject.score(), subject.images, Explained(maps.raw, maps.heatmaps), truth, protocol=PROTOCOL
    )
    values = {name: column for name, column in found.values.items() if not column.isnan().all()}
    if not subject.probability:
        values |= {name: ROOM * values[name] for name in ("deletion", "insertion")}
        del values["AG"]  # a gain is a share of what is left up to 1, and nothing is
    return values


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


def _held_half(held: dict[str, dict[str, Tensor]], methods: list[str]) -> dict[str, Any]:
    """The same for the images that no setting was chosen on."""
    means = {method: {name: mean(column) for name, column in found.items()} for method, found in held.items()}
    ours = held[methods[0]]
    return {
        "held rows": means,
        "held compared": {f"{methods[0]} vs {name}": compared(ours, held[name]) for name in methods[1:]},
    }


def measured(subject: Subject, methods: list[str], *, keep: Path | None, part: str) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = {}
    values: dict[str, dict[str, Tensor]] = {}
    for method in (*CONTROLS, *methods):
        maps = control(subject, method) if method in CONTROLS else explained(subject, method, keep)
        values[method] = columns(subject, maps)
        rows[method] = {
            "mean": {name: mean(column) for name, column in values[method].items()},
            "seconds": statistics.median(maps.seconds),
            "passes": maps.passes,
        }
        print(table({method: rows[method]}), file=sys.stderr, flush=True)
    print(table(rows), file=sys.stderr)
    held = {
        method: {name: column[1::2] for name, column in found.items()} for method, found in values.items()
    }
    ours = methods[0]
    rivals = [method for method in methods[1:] if method in CAM_CLASSES]
    return {
        "images": len(subject.images),
        "rows": rows,
        "values": {
            method: {name: [round(value, 6) for value in column.tolist()] for name, column in found.items()}
            for method, found in values.items()
        },
        "compared": {f"{ours} vs {name}": compared(values[ours], values[name]) for name in methods[1:]},
        **(_held_half(held, methods) if part == "all" else {}),
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
    return Subject(Similarities(model).eval(), images, strongest, truth, part, network=model)


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
    parser.add_argument("--methods", nargs="+", default=["fast", *CAM_CLASSES])
    parser.add_argument("--keep", type=Path, help="folder in which maps are kept and found again")
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()
    options = arguments()
    subject = imagenet(options) if options.images else located(options)
    result = measured(subject, options.methods, keep=options.keep, part=options.part)
    settings = {key: str(value) if isinstance(value, Path) else value for key, value in vars(options).items()}
    facts = {"protocol": PROTOCOL.facts, "threads": torch.get_num_threads()}
    print(json.dumps({"benchmark": "decoder", "settings": settings | facts, **result}))


if __name__ == "__main__":
    main()
