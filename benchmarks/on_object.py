"""Do parts lie on the object? Cross-validation inside training images; test images are never opened.

    python benchmarks/on_object.py --data cub:PATH --folds 3 --name before
    python benchmarks/on_object.py --data cub:PATH --folds 3 --name after training.part_area=0.35
    python benchmarks/on_object.py --data birds --folds 0 data.val_per_species=60

Settings and folds as in recipe_folds.py. Of the network after its last push, on validation images whose
object is known (boxes, masks; nothing of them is seen in training): the share of a part's region that lies on
the object, and whether its largest place does, over all parts and over the five rows that decide; how many
parts lie mostly beside it; how far the five rows are different places. Controls: the object's share of the
image, which is what blind places have, and of its four middle places. One JSON object a call.
"""

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from recipe_folds import folds_of, read_options
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from dprotonet.data.base import ImageData, Splits
from dprotonet.encoder.part_maps import WithParts
from dprotonet.encoder.regions import Parts
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.inference.contrast import leads
from dprotonet.inference.region_assignment import PartRegion
from dprotonet.network import DProtoNet
from dprotonet.training.engine import Engine
from dprotonet.training.events import RoundDone

_ROWS = 5  # of an explanation
_HOT = 0.1  # of the places: the hottest, whose overlap is measured
_APART = 2  # places: farther peaks are different places


class Watched(Trainer):
    """Keeps hold of what it trains."""

    engine: Engine
    val: ImageData

    def _resume_or_start(self, engine: Engine, folder: RunFolder, splits: Splits) -> None:
        super()._resume_or_start(engine, folder, splits)
        self.engine, self.val = engine, splits.val


def region_weights(shares: Tensor, sharpness: float) -> Tensor:
    """What the regions of shares (K, h, w) are made of: (K, h·w), sums to one; as `Parts.pooled`."""
    flat = shares.flatten(1)
    weight = (flat / flat.amax(dim=1, keepdim=True).clamp_min(torch.finfo(flat.dtype).tiny)).pow(sharpness)
    return weight / weight.sum(dim=1, keepdim=True)


def distinctness(shares: Tensor) -> dict[str, Tensor]:
    """Of rows (R, h, w): mean overlap of their hottest places, share of pairs whose peaks lie apart."""
    flat = shares.flatten(1)
    pairs = torch.triu_indices(len(flat), len(flat), 1).unbind()
    count = max(1, round(_HOT * flat.shape[1]))
    hot = torch.zeros_like(flat).scatter_(1, flat.topk(count, dim=1).indices, 1.0)
    common = hot @ hot.T
    peak = flat.argmax(dim=1)
    place = torch.stack([peak // shares.shape[-1], peak % shares.shape[-1]], dim=1).float()
    return {
        "overlap": (common / (2 * count - common))[pairs].mean(),
        "apart": (torch.cdist(place, place)[pairs] > _APART).float().mean(),
    }


@torch.no_grad()
def measured(network: DProtoNet, feature_map: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Of one image, its feature map (1, C, h, w) and the object's share of each place (h, w)."""
    regions, shaping, assignment = (
        network.encoder.regions,
        network.encoder.shaping,
        network.prototypes.assignment,
    )
    assert isinstance(regions, Parts)
    assert isinstance(shaping, WithParts)
    assert isinstance(assignment, PartRegion)
    shaped = network.encoder.feature_map(feature_map)
    shares = regions.maps(shaped)[0, : shaping.part_maps.parts]
    on, flat = truth.flatten(), shares.flatten(1)
    inside = region_weights(shares, regions.sharpness) @ on
    peak = (on[flat.argmax(dim=1)] > 0.5).float()
    evidence = network.evidence(feature_map)
    found = leads(
        evidence.scores[0],
        weight=network.head.weight,
        part=assignment.part,
        prototype_class=network.prototype_class,
        label=int(evidence.logits.argmax()),
    )
    points = found.points.nan_to_num(-torch.inf)
    points[assignment.part >= len(shares)] = -torch.inf  # the image as a whole has no place
    rows = assignment.part[points.argsort(descending=True)[:_ROWS]]
    height, width = truth.shape
    middle = truth[height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1]
    return {
        "region on object": inside,
        "peak on object": peak,
        "rows: region on object": inside[rows].mean(),
        "rows: peak on object": peak[rows].mean(),
        **{f"rows: {name}": value for name, value in distinctness(shares[rows]).items()},
        "area of parts": shares.sum(dim=0).mean(),
        "presence": flat.amax(dim=1).mean(),
        "object's share": truth.mean(),
        "object's share, middle": middle.mean(),
    }


def on_object(network: DProtoNet, views: Any, data: ImageData) -> dict[str, Any]:
    """Means over the images of a split that know their object; nothing where none does."""
    network.eval()
    found = []
    for index in range(len(views)):
        truth = data[index].truth
        if truth is None or not truth.any():
            continue
        feature_map = views[index, 0].inputs.unsqueeze(0)
        place = adaptive_avg_pool2d(truth.float()[None], feature_map.shape[-2:])[0]
        found.append(measured(network, feature_map, place))
    if not found:
        return {}
    means = {key: torch.stack([one[key] for one in found]).mean(dim=0) for key in found[0]}
    each = means["region on object"]
    told = {key: round(float(value.mean()), 4) for key, value in means.items()}
    beside = int((each < 0.5).sum())
    return {**told, "parts mostly beside": beside, "each part": [round(float(x), 3) for x in each]}


def fold_of(tables: dict[str, Any], cache: Path, splits: RememberedSplits) -> dict[str, Any]:
    """One run: validation accuracy in % after each push, and where its parts lie."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = Watched(config_from(tables), Path(folder, "run"), cache=cache, splits=splits)
        events = [event for event in trainer.run() if isinstance(event, RoundDone)]
    assert isinstance(trainer.engine.network, DProtoNet)
    accuracy = [100 * event.val_accuracy for event in events]
    where = on_object(trainer.engine.network, trainer.engine.val_views, trainer.val)
    return {"accuracy": accuracy, "where": where}


def mean_of(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Over folds."""
    keys = [key for key in found[0]["where"] if key != "each part"]
    where = {key: round(mean(one["where"][key] for one in found), 3) for key in keys}
    first, last = (round(mean(one["accuracy"][place] for one in found), 2) for place in (0, -1))
    return {"accuracy, first push": first, "accuracy, last push": last, **where}


def main() -> None:
    options, splits = read_options(), RememberedSplits()
    found = [fold_of(tables, options.cache, splits) for tables in folds_of(options)]
    told = {"name": options.name, "data": options.data, "settings": options.settings, **mean_of(found)}
    json.dump({**told, "folds": found}, sys.stdout)
    print()


if __name__ == "__main__":
    main()
