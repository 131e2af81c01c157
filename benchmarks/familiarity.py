"""How well runs tell strange images from known ones: AUROC, and the share they warn of, beside baselines.

    python benchmarks/familiarity.py --run RUN … --unknown folder:PATH birds PATH … [--out FILE.json]

Known are the test images of a run's data; unknown are those of other data sets (but not of its own), folders
of images without classes, and kinds of images made here, so that it works anywhere: noise, flat, clouds, the
known images cut into tiles and shuffled, or spoilt; for the birds also their scenes without a bird, and other
species. Without --run a small run on the birds is trained first.

Baselines get their limits as the warning does, from images that were not fitted to: the largest probability,
the energy of the logits, the distance to prototypes (the only measure of earlier versions), and on averages
of the last feature map one Gaussian (Mahalanobis) and the distance to the fifth nearest training image.

`warned` is by these limits. `warned_at_5` is by one that 5 % of the known test images exceed: it compares the
order of measures whose limits spare more images or fewer, and is no warning that anybody could have set.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from timing import say, tell
from torch import Tensor
from unknown_images import made_up, near_kinds, spoilt, spread, unknown_images

from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.base import Splits
from dprotonet.data.transforms import Views
from dprotonet.encoder.backbone import Backbone
from dprotonet.encoder.level_averages import LevelAverages, Levels, every_level
from dprotonet.experiment.api import train
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.calibration import shares_of
from dprotonet.experiment.runs.familiarity import Familiarity, familiarity_of, of_prototypes
from dprotonet.experiment.runs.known_features import backbone_digest, level_averages, measured_features
from dprotonet.inference.familiarity import conformal_threshold
from dprotonet.inference.feature_spread import LevelSpread, cross_fitted
from dprotonet.metrics.classification import auroc
from dprotonet.training.checkpoint import load_tensors, save_tensors

TARGETS = {"auroc": 0.95, "known_warned_at_most": 0.1}
WARNING, PROBABILITY, ENERGY, PROTOTYPES, GAUSSIAN, NEIGHBOUR = (
    "warning",
    "largest probability",
    "energy",
    "prototypes only",
    "mahalanobis",
    "nearest images",
)
_NEAREST = 5
Beyond = dict[str, Tensor]


class Known(NamedTuple):
    """What baselines compare images with: averages of the last map (N, D), and their limits."""

    levels: Levels
    width: int
    train: Tensor
    gaussian: LevelSpread
    limits: dict[str, float]


def known_images(model: Model, splits: Splits, kept: Path | None) -> tuple[Known, Familiarity]:
    """What baselines need, and the limits of the earlier warning; the model gets features if it has none."""
    backbone = model.network.encoder.backbone
    assert isinstance(backbone, Backbone)
    levels = every_level(backbone, model.config.data.image_size)
    width = levels.widths[-1] // 2
    every = averages_of_training(model, splits, levels, kept)
    seen = [_seen(model, levels, part) for part in batches(spread(splits.val, len(splits.val)))]
    val, logits, distances = (torch.cat(column) for column in zip(*seen, strict=True))
    stored = None if model.familiarity is None else model.familiarity.features
    if stored is None or not stored.unit:
        say("the run has no features as this version takes them; measuring them")
        learned = model.config.training.mode != "frozen"
        features = measured_features(levels, every, val, learned=learned)
        model.familiarity = familiarity_of(distances, model.network, features=features)
    train, others = (rows[:, -2 * width : -width] for rows in (every, val))
    gaussian = LevelSpread.fit(train)
    mahalanobis = torch.cat([cross_fitted(train, [width])[:, 0], gaussian(others)])
    nearest = torch.cat([to_nearest(train, train, itself=True), to_nearest(others, train)])
    surest = shares_of(logits.double(), model.calibration).amax(dim=1)
    limits = {
        GAUSSIAN: conformal_threshold(mahalanobis),
        NEIGHBOUR: conformal_threshold(nearest),
        PROBABILITY: conformal_threshold(-surest),
        ENERGY: conformal_threshold(energy(logits)),
    }
    return Known(levels, width, train, gaussian, limits), of_prototypes(distances, model.prototyped)


def averages_of_training(model: Model, splits: Splits, levels: Levels, kept: Path | None) -> Tensor:
    """Averages of all levels; in the folder `kept`, if it is given, for the next time."""
    data = model.config.data
    name = f"{short(data.data)}-{data.image_size}-{backbone_digest(model.network)}.safetensors"
    if kept is not None and (kept / name).is_file():
        return load_tensors(kept / name)["train"].float()
    views = Views(splits.train, model.normalise, augment=None, seed=0)
    found = level_averages(model.network, views, levels)
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        save_tensors(kept / name, {"train": found})
    return found


def batches(images: Sequence[Tensor], size: int = 30) -> list[Sequence[Tensor]]:
    return [images[at : at + size] for at in range(0, len(images), size)]


def to_nearest(asked: Tensor, train: Tensor, *, itself: bool = False) -> Tensor:
    """Distance (B,) to the fifth nearest of the training images, all of length one."""
    far = torch.cdist(*(torch.nn.functional.normalize(rows, dim=1) for rows in (asked, train)))
    return far.sort(dim=1).values[:, min(_NEAREST - 1 + itself, len(train) - 1)]


def energy(logits: Tensor) -> Tensor:
    """Of logits (B, C): large where no class has many points (Liu et al. 2020)."""
    return -logits.double().logsumexp(dim=1)


@torch.no_grad()
def strangeness(model: Model, known: Known, images: Sequence[Tensor], earlier: Familiarity) -> Beyond:
    """How far images (B,) lie beyond the limit of the warning, and of every baseline; one pass for all."""
    parts = [_seen(model, known.levels, part) for part in batches(images)]
    averages, logits, distances = (torch.cat(column) for column in zip(*parts, strict=True))
    assert model.familiarity is not None
    assert model.familiarity.features is not None
    far = model.familiarity.distance(distances, model.familiarity.features.strangeness(averages))
    last = averages[:, -2 * known.width : -known.width]
    values = {
        GAUSSIAN: known.gaussian(last),
        NEIGHBOUR: to_nearest(last, known.train),
        PROBABILITY: -shares_of(logits.double(), model.calibration).amax(dim=1),
        ENERGY: energy(logits),
    }
    beyond = {name: value.double() - known.limits[name] for name, value in values.items()}
    return {WARNING: far - 1, **beyond, PROTOTYPES: earlier.distance(distances) - 1}


@torch.no_grad()
def _seen(model: Model, levels: Levels, images: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Averages of all levels, logits and distances to prototypes."""
    network, backbone = model.prototyped, model.network.encoder.backbone
    assert isinstance(backbone, Backbone)
    found = LevelAverages(backbone, levels.taken).seen(model.inputs(list(images)))
    evidence = network.evidence_of(network.encoder.regions(network.encoder.shaping(found.feature_map)))
    return found.averages, evidence.logits, evidence.distances.float()


def judged(known: Beyond, unknown: Beyond) -> dict[str, Any]:
    """By the warning, and beneath `baselines` by each of them."""
    count = len(unknown[WARNING])
    strange = torch.cat([torch.zeros(len(known[WARNING])), torch.ones(count)]).bool()
    rows = {
        name: {
            "auroc": auroc(torch.cat([known[name], far]), strange),
            "warned": float((far > 0).double().mean()),
            "warned_at_5": float((far > known[name].quantile(0.95)).double().mean()),
        }
        for name, far in unknown.items()
    }
    median = float(unknown[WARNING].median()) + 1
    return {"images": count, **rows.pop(WARNING), "median_distance": median, "baselines": rows}


def small_run(folder: Path) -> Model:
    """Four species at 128 pixels, a random start: enough to tell kinds of images apart, in a minute."""
    return train(
        Config(
            DataConfig(
                species=4, train_per_species=20, val_per_species=10, test_per_species=10, image_size=128
            ),
            NetworkConfig(dimension=128, masks=60, prototypes_per_class=3),
            TrainingConfig(
                mode="frozen",
                shaping_start="random",
                warm_epochs=5,
                push_every=10,
                epochs=20,
                batch_size=8,
                augmentations=1,
                push_images=10,
                last_layer_epochs=5,
                rate_shaping=0.01,
                rate_prototypes=0.01,
            ),
        ),
        folder / "run",
    )


def measured(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    data = model.config.data
    splits = build_splits(data)
    compared, earlier = known_images(model, splits, options.kept)
    assert model.familiarity is not None
    images = spread(splits.test, options.known or len(splits.test))
    known = strangeness(model, compared, images, earlier)
    some = images[:: max(1, len(images) // options.images)][: options.images]
    kinds = made_up(some, min(options.images, options.made_up)) | spoilt(some)
    kinds |= near_kinds(splits.test, options.images)
    others = [
        name
        for name in options.unknown
        if name != data.data and Path(name.partition(":")[2] or name).name not in data.data
    ]
    kinds |= {short(name): unknown_images(name, data.image_size, options.images) for name in others}
    rows = {}
    for name, strange in kinds.items():
        rows[name] = judged(known, strangeness(model, compared, strange, earlier))
        say(f"{name}: {rows[name]}")
    return {
        "data": short(data.data),
        "known": {
            "images": len(images),
            **{name: float((far > 0).double().mean()) for name, far in known.items()},
        },
        "seed": data.data_seed,
        "validation": len(splits.val),
        "limits_from": model.familiarity.images,
        "share": model.familiarity.share,
        "by": model.familiarity.words,
        "unknown": rows,
    }


def short(name: str) -> str:
    """A data set without the machine's folders."""
    return Path(name.partition(":")[2] or name).name


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="trained runs (default: a small one)")
    parser.add_argument("--unknown", nargs="*", default=[], help="data sets, or folders of images")
    parser.add_argument("--images", type=int, default=100, help="at most so many of each kind")
    parser.add_argument("--known", type=int, help="at most so many known ones (default: all test images)")
    parser.add_argument("--made-up", type=int, default=40, help="at most so many of each kind made here")
    parser.add_argument("--kept", type=Path, help="averages of training images are kept there")
    parser.add_argument("--out", type=Path, help="keep the result there")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        models = [Model.load(path) for path in options.run] or [small_run(Path(folder))]
        found: dict[str, Any] = {}
        for model in models:
            assert model.folder is not None
            found[model.folder.name] = measured(model, options)
            if options.out is not None:
                options.out.write_text(json.dumps({"benchmark": "familiarity", "runs": found}, indent=1))
    tell({"benchmark": "familiarity", "runs": found, "targets": TARGETS})


if __name__ == "__main__":
    main()
