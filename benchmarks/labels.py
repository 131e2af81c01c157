"""Several labels per image: how good, beside simple classifiers, and is each finding explained where it is?

    python benchmarks/labels.py --run /tmp/findings --out docs/results/labels-birds.json

Trains on the birds with findings, frozen, and measures on test images: average precision, AUROC and F1 of
every label, beside what frequencies give, a logistic regression and a discriminant of averaged features.
Their ridges are chosen on validation images. `--data labels:FOLDER` takes other data, without truth.
On the birds also: what a label's logit loses when its finding is taken out of the picture, and where
heatmaps of the label are hottest, beside the middle of the image and a place drawn by lot.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.config import Config, from_tables
from dprotonet.data.birds import BirdFindings
from dprotonet.experiment.build.training import build_accelerator, default_cache
from dprotonet.experiment.evaluation.several_labels import LabelEvaluation, evaluate_label_images
from dprotonet.experiment.explaining.saliency import saliency
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.metrics.localization import energy_share, pointing_within
from dprotonet.metrics.several_labels import mean_average_precision
from dprotonet.training.evaluation import Predictions
from dprotonet.training.label_head import fit_label_head, logistic_fit
from dprotonet.training.moments import LabelMoments
from dprotonet.training.probe import pooled_features
from dprotonet.training.scores import Scoring, score_views

RIDGES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1)
SHRINKAGES = (0.1, 0.3, 0.5, 0.7)
METHODS = ("similarity", "gradcam", "mdm")
NEAR = 8.0  # pixels of 224 by which the hottest one may miss a finding: half a place of the feature map
Table = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", type=Path, required=True, help="where the run goes, or is")
    parser.add_argument("--data", default="birds-findings")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--augmentations", type=int, default=1)
    parser.add_argument("--recipe", default="default")
    parser.add_argument("--images", type=int, default=60, help="test images that are explained")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    trainer = Trainer(asked(options), options.run)
    if not (options.run / "evaluation").is_dir():
        finished(trainer.run(), lambda event: None)
        (options.run / "evaluation").mkdir()
    model = Model.load(options.run, several_labels=True)
    splits = trainer.splits(trainer.config.data, None)
    found: Table = {
        "benchmark": "labels",
        "command": " ".join(["python", "benchmarks/labels.py", *sys.argv[1:]]),
    }
    found |= {"data": options.data, "seed": options.seed, "augmentations": options.augmentations}
    found |= {"images": {name: len(getattr(splits, name)) for name in ("train", "val", "test")}}
    found["classifiers"] = {"dprotonet": evaluate_label_images(model, splits.test).summary()}
    found |= classifiers(trainer, model, splits, found["classifiers"])
    if isinstance(splits.test, BirdFindings):
        found["without"] = without(model, splits.test)
        found["places"] = places(model, splits.test, options.images)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


def asked(options: argparse.Namespace) -> Config:
    data, recipe = options.data, options.recipe
    folder = data.partition(":")[2]
    given = {"data": data if not folder else f"labels:{Path(folder).resolve()}"}
    training = {"mode": "frozen", "seed": options.seed, "augmentations": options.augmentations}
    return from_tables(Config, {"recipe": recipe, "data": given, "training": training}, where="")


def classifiers(trainer: Trainer, model: Model, splits: Any, table: Table) -> Table:
    """The simple classifiers into the table, and how the head's ridge was chosen."""
    accelerator = build_accelerator(trainer.config.training)
    backbone = model.network.encoder.backbone
    views = []
    for name, augment in (("train", trainer.augment), ("val", None), ("test", None)):
        plain = trainer.views(model.network, getattr(splits, name), augment=augment)
        count = trainer.config.training.augmentations if augment else 0
        views.append(finished(trainer.frozen(plain, backbone, accelerator, count), lambda event: None))
    rows = [pooled_features(view, augmented=place == 0) for place, view in enumerate(views)]
    for name, logits in (("logistic regression", logistic(rows)), ("discriminant", discriminant(rows))):
        table[name] = LabelEvaluation("test", model.classes, Predictions(logits, rows[2][1])).summary()
    frequency = torch.logit(rows[0][1].mean(dim=0)).expand(len(rows[2][1]), -1)
    table["frequencies"] = LabelEvaluation(
        "test", model.classes, Predictions(frequency, rows[2][1])
    ).summary()
    return {"ridge": ridges(model, views[:2], accelerator)}


def best(tried: Mapping[float, Tensor], labels: Tensor) -> float:
    """What gives the best mean average precision on validation images."""
    return max(tried, key=lambda key: mean_average_precision(tried[key], labels))


def logistic(rows: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Logits of the test images by a logistic regression for each label."""
    (train, labels), (val, known), (test, _) = rows
    train = train.double()

    def fitted(ridge: float) -> tuple[Tensor, Tensor]:
        parts = [logistic_fit(train, column, ridge=ridge, negative=True) for column in labels.double().T]
        weights, biases = zip(*parts, strict=True)
        return torch.stack(weights), torch.stack(biases)

    rules = {ridge: fitted(ridge) for ridge in RIDGES}
    chosen = best({key: val.double() @ w.T + b for key, (w, b) in rules.items()}, known)
    weight, bias = rules[chosen]
    return test.double() @ weight.T + bias


def discriminant(rows: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """The same by what each label adds, whitened by the covariance of what labels do not explain."""
    (train, labels), (val, known), (test, _) = rows
    moments = LabelMoments(labels.shape[1], train.shape[1])
    moments.update(train, labels)
    within, adds = moments.within(), moments.coefficients()[1:]
    base = moments.coefficients()[0]
    share = labels.double().mean(dim=0)

    def rule(shrinkage: float) -> tuple[Tensor, Tensor]:
        isotropic = within.diagonal().mean() * torch.eye(len(within), dtype=within.dtype)
        inverse = torch.linalg.inv((1 - shrinkage) * within + shrinkage * isotropic)
        weight = adds @ inverse
        middle = base + adds / 2 + share @ adds - share.unsqueeze(1) * adds
        return weight, torch.logit(share) - (weight * middle).sum(dim=1)

    rules = {shrinkage: rule(shrinkage) for shrinkage in SHRINKAGES}
    chosen = best({key: val.double() @ w.T + b for key, (w, b) in rules.items()}, known)
    weight, bias = rules[chosen]
    return test.double() @ weight.T + bias


@torch.no_grad()
def ridges(model: Model, views: Sequence[Any], accelerator: Any) -> Table:
    """Mean average precision on validation images with other ridges of the head, the rest as it is."""
    network = model.prototyped.without_backbone()
    scoring = Scoring(accelerator, default_cache())
    (train, labels), (val, known) = (
        (found.scores[torch.arange(len(found))], torch.stack(list(found.labels)))
        for found in (score_views(network, view, scoring) for view in views)
    )
    kept = {name: value.clone() for name, value in network.head.state_dict().items()}
    table = {}
    for ridge in RIDGES:
        fit_label_head(network.head, train, labels, network.prototype_class, ridge=ridge)
        logits = network.head(val.to(network.head.weight)).cpu()
        entropy = torch.nn.functional.binary_cross_entropy_with_logits(logits, known).item()
        precision = mean_average_precision(logits, known)
        table[f"{ridge:g}"] = {
            "val_mean_average_precision": round(precision, 4),
            "val_entropy": round(entropy, 4),
        }
    network.head.load_state_dict(kept)
    return table


def without(model: Model, test: BirdFindings) -> Table:
    """Logits of test images less those without one of their findings: of the label itself, and of others."""
    own: dict[str, list[float]] = {name: [] for name in test.classes}
    other: list[float] = []
    for index in range(0, len(test), 4):
        names = test[index].findings
        if not names:
            continue
        images = [test[index].image, *(test.removed(index, name).image for name in names)]
        with torch.no_grad():
            logits = model.network(model.inputs(images)).double().cpu()
        for row, name in enumerate(names, start=1):
            lost = (logits[0] - logits[row]).tolist()
            label = test.classes.index(name)
            own[name].append(lost[label])
            other += [abs(value) for place, value in enumerate(lost) if place != label]
    return {
        "pairs": sum(map(len, own.values())),
        "own": {name: round(sum(values) / len(values), 3) for name, values in own.items()},
        "own_falls": round(
            sum(v > 0 for some in own.values() for v in some) / sum(map(len, own.values())), 4
        ),
        "others_move_by": round(sum(other) / len(other), 3),
    }


def places(model: Model, test: BirdFindings, count: int) -> Table:
    """Where heat is, for findings that are there, are seen, and are predicted: by method and label."""
    cases = []
    for index in range(len(test)):
        if len({case[0] for case in cases}) >= count:
            break
        sample = test[index]
        predicted = {one.name for one in model.findings(sample.image)[0].present}
        cases += [
            (index, sample.image, name, sample.parts[name])
            for name in sample.findings
            if name in predicted and sample.parts[name].any()
        ]
    truth = torch.stack([case[3] for case in cases])
    names = [case[2] for case in cases]
    size = truth.shape[-1]
    middle = torch.zeros_like(truth, dtype=torch.float32)
    middle[:, size // 2, size // 2] = 1
    area = truth.flatten(1).float().mean(dim=1)
    grown = torch.nn.functional.conv2d(truth.float().unsqueeze(1), disc(), padding=int(NEAR)) > 0
    table = {
        "middle of the image": pointed(pointing_within(middle, truth, NEAR), area, names),
        "a place by lot": pointed(grown.flatten(1).float().mean(dim=1), area, names),
        "row of the sheet": pointed(pointing_within(rows(model, cases, size), truth, NEAR), None, names),
    }
    for method in METHODS:
        found = [
            saliency(model, image, method=method, target=name, preset="instant")[0]
            for _, image, name, _ in cases
        ]
        heat = torch.stack([one.heatmap for one in found])
        table[method] = pointed(pointing_within(heat, truth, NEAR), energy_share(heat, truth), names)
    return {
        "findings": len(cases),
        "images": len({case[0] for case in cases}),
        "near": NEAR,
        "methods": table,
    }


def rows(model: Model, cases: Sequence[tuple[int, Tensor, str, Tensor]], size: int) -> Tensor:
    """The middle of the place of each label's first row, as the network itself has it."""
    heat = torch.zeros(len(cases), size, size)
    for number, (_, image, name, _) in enumerate(cases):
        place = model.findings(image)[0].of(name).evidence[0].place
        assert place is not None
        down, along = place.top + place.height / 2, place.left + place.width / 2
        heat[number, min(int(down * size), size - 1), min(int(along * size), size - 1)] = 1
    return heat


def pointed(hits: Tensor, energy: Tensor | None, names: Sequence[str]) -> Table:
    """The shares of findings that are hit, and of heat on them, in all and by label."""
    by_label = {
        name: round(hits[[other == name for other in names]].mean().item(), 3)
        for name in dict.fromkeys(names)
    }
    shown = {} if energy is None else {"heat_on_it": round(energy.mean().item(), 4)}
    return {"pointing": round(hits.mean().item(), 4), **shown, "by_label": by_label}


def disc() -> Tensor:
    side = torch.arange(-int(NEAR), int(NEAR) + 1)
    return (side.unsqueeze(0) ** 2 + side.unsqueeze(1) ** 2 <= NEAR**2).float()[None, None]


if __name__ == "__main__":
    main()
