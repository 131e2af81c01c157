"""Does the map of "why this species and not its sibling" lie on the part that tells them apart?

    python benchmarks/contrast.py --run runs/demo --out contrast.json
    python benchmarks/contrast.py --run runs/demo --split val --seed 77 --per-species 100 --images 12

Birds of a split that are taken for their sibling, and if there are fewer than --images those with the
smallest margin to it. Each map is of the class that was predicted against its sibling. The renderer knows the
pixels of the deciding part; birds of which none is seen are left out. Measured: whether the hottest pixel
lies on that part or within 16 pixels of it, and the share of the heat on the part over the part's share of
the object, the mean of the one over the mean of the other. `similarity, contrast` shows where the prototypes
of the two species differ, `rows by lead` where one is ahead of the other in this image; `blind` is any place
on the object, with the same probability. Results are written after every bird.
"""

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from dprotonet.data.birds import Birds
from dprotonet.experiment.explaining.explainers import explainer
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import write_text
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.interpretation.occurrence import OccurrenceMaps
from dprotonet.metrics.controls import centre_gaussian
from dprotonet.metrics.localization import energy_share, pointing_within

NEAR = 16  # pixels
BATCH = 24
METHODS = ("mdm", "gradcam", "similarity")
LEADS = "rows by lead"


def main() -> None:
    options = arguments()
    model = TrainedModel.load(options.run)
    data = Birds(
        species=len(model.classes),
        per_species=options.per_species,
        split=options.split,
        seed=options.seed,
        size=model.config.data.image_size,
    )
    subjects = chosen(model, data, options.images)
    found: list[dict[str, Any]] = []
    for index, label, sibling, mistaken in subjects:
        sample = data[index]
        part = sample.parts[sample.deciding_part]
        if bool(part.any()):
            maps = heatmaps(model, model.inputs([sample.image]), label, sibling, options.methods)
            found.append(
                {
                    "image": sample.name,
                    "part": sample.deciding_part,
                    "mistaken": mistaken,
                    "share": float(part.sum() / sample.truth.sum()),
                    "maps": {name: measured(heat, part) for name, heat in maps.items()}
                    | {"blind": blind(sample.truth, part)},
                }
            )
            content = {"options": {**vars(options), "run": options.run.name, "out": None}, **summary(found)}
            if options.out:
                write_text(options.out, json.dumps({**content, "birds": found}, indent=1) + "\n")
    print(json.dumps(content, indent=1))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--seed", type=int, default=0, help="of the birds")
    parser.add_argument("--per-species", type=int, default=40)
    parser.add_argument("--images", type=int, default=30)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


@torch.no_grad()
def chosen(model: TrainedModel, data: Birds, count: int) -> list[tuple[int, int, int, bool]]:
    """Number, predicted class, its sibling, and whether it was mistaken: mistakes first, then near ones."""
    margins = []
    for start in range(0, len(data), BATCH):
        block = range(start, min(start + BATCH, len(data)))
        logits = model.network(model.inputs([data[index].image for index in block]))
        for index, row in zip(block, logits, strict=True):
            predicted, truth = int(row.argmax()), data.labels[index]
            if predicted in (truth, truth ^ 1):
                apart = float(row[predicted] - row[predicted ^ 1])
                margins.append((predicted == truth, apart, index, predicted))
    return [(index, said, said ^ 1, not right) for right, _, index, said in sorted(margins)[:count]]


def heatmaps(
    model: TrainedModel, inputs: Tensor, label: int, sibling: int, methods: Sequence[str]
) -> dict[str, Tensor]:
    """Maps (H, W) without negative heat, by name."""
    classifier = Classifier.of_model(model)
    nodes: dict[str, Callable[[], Node]] = {
        "contrast": lambda: ContrastNode(model.network, [label], sibling),
        "class alone": lambda: ClassNode(model.network, [label]),
    }
    maps = {
        f"{method}, {what}": explainer(method, classifier).explain(inputs, node())[0].raw.relu().cpu()
        for method in methods
        for what, node in nodes.items()
    }
    by_lead = replaced(explainer("similarity", classifier))
    maps[LEADS] = by_lead.explain(inputs, nodes["contrast"]())[0].raw.relu().cpu()
    size = (inputs.shape[-2], inputs.shape[-1])
    return {**maps, "centre": centre_gaussian(1, size)[0]}


def replaced(maps: Explainer) -> Explainer:
    """The parts' maps by how far each is ahead of the sibling's in this image, not by their prototypes."""
    assert isinstance(maps, OccurrenceMaps)
    maps.differing = None
    return maps


def measured(heat: Tensor, part: Tensor) -> dict[str, float]:
    heat, part = heat[None], part[None]
    return {
        "near": float(pointing_within(heat, part, NEAR)),
        "heat": float(energy_share(heat, part)),
    }


def blind(truth: Tensor, part: Tensor) -> dict[str, float]:
    """A point anywhere on the object, and heat spread over all of it."""
    there, here = truth.nonzero().float(), part.nonzero().float()
    near = torch.cdist(there, here).amin(dim=1) <= NEAR
    return {"near": float(near.float().mean()), "heat": float((part & truth).sum() / truth.sum())}


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Of all birds, and of those that were mistaken."""
    groups = {"birds": found, "mistaken": [one for one in found if one["mistaken"]]}
    return {
        "counts": {name: len(group) for name, group in groups.items()},
        "parts": {
            part: sum(one["part"] == part for one in found) for part in sorted({o["part"] for o in found})
        },
        "means": {name: means(group) for name, group in groups.items() if group},
    }


def means(group: list[dict[str, Any]]) -> dict[str, Mapping[str, float]]:
    share = fmean(one["share"] for one in group)
    rows = {name: [one["maps"][name] for one in group] for name in group[0]["maps"]}
    told = {
        name: {
            "near": round(fmean(one["near"] for one in values), 4),
            "heat over area": round(fmean(one["heat"] for one in values) / share, 4),
        }
        for name, values in rows.items()
    }
    return told


if __name__ == "__main__":
    main()
