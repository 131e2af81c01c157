"""How well a run tells strange images from known ones: AUROC, and the share it warns of.

    python benchmarks/familiarity.py --run RUN --unknown folder:PATH birds PATH …

Known are the test images of the run's data (or of --data); unknown are those of other data sets, folders of
images without classes, and kinds of images made here, so that it works anywhere: noise, flat, clouds, the
known images cut into tiles and shuffled; for the birds also their scenes without a bird, and other species.
Without --run a small run on the birds is trained first.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from timing import say, tell
from torch import Tensor
from torch.nn.functional import interpolate

from dprotonet.config import Config, DataConfig, NetworkConfig, TrainingConfig
from dprotonet.data.base import ImageData
from dprotonet.data.birds import Birds
from dprotonet.data.birds.species import MOST
from dprotonet.data.folder import loose_images
from dprotonet.experiment.api import train
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.metrics.classification import auroc

TARGETS = {"auroc": 0.95, "known_warned_at_most": 0.1}


def noise(size: int, random: torch.Generator) -> Tensor:
    return torch.randint(0, 256, (3, size, size), generator=random, dtype=torch.uint8)


def flat(size: int, random: torch.Generator) -> Tensor:
    return noise(1, random).expand(3, size, size).contiguous()


def clouds(size: int, random: torch.Generator) -> Tensor:
    coarse = torch.rand(1, 3, 9, 9, generator=random)
    return (interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1)[0] * 255).to(torch.uint8)


def shuffled(image: Tensor, tiles: int, random: torch.Generator) -> Tensor:
    """The same pixels, cut into tiles × tiles and put together in another order."""
    side = image.shape[-1] // tiles
    cut = image.unfold(1, side, side).unfold(2, side, side).reshape(3, tiles * tiles, side, side)
    mixed = cut[:, torch.randperm(tiles * tiles, generator=random)].reshape(3, tiles, tiles, side, side)
    return mixed.permute(0, 1, 3, 2, 4).reshape(3, tiles * side, tiles * side).contiguous()


def made_up(known: Sequence[Tensor], count: int) -> dict[str, list[Tensor]]:
    """Images of no kind at all, the size of the known ones."""
    random, size = torch.Generator().manual_seed(0), known[0].shape[-1]
    makers: dict[str, Callable[[int, torch.Generator], Tensor]] = {
        "noise": noise,
        "flat": flat,
        "clouds": clouds,
    }
    made = {name: [make(size, random) for _ in range(count)] for name, make in makers.items()}
    return made | {"known, shuffled 8 × 8": [shuffled(image, 8, random) for image in known[:count]]}


def spread(data: ImageData, count: int) -> list[Tensor]:
    """At most `count` images, evenly spread over the data."""
    step = max(1.0, len(data) / count)
    return [data[int(number * step)].image for number in range(min(count, len(data)))]


def unknown_images(name: str, size: int, count: int) -> list[Tensor]:
    if name == "birds" or ":" in name:
        return spread(build_splits(DataConfig(data=name, image_size=size, allow_leaks=True)).test, count)
    return spread(loose_images(name, size=size), count)


def near_kinds(known: ImageData, count: int) -> dict[str, list[Tensor]]:
    """The hard ones, where the known are built-in birds: their scenes without a bird, other species."""
    if not isinstance(known, Birds):
        return {}
    own = len(known.species)
    more = Birds(
        species=min(2 * own, MOST), per_species=count, split="test", seed=known.seed, size=known.size
    )
    others = range(own, len(more.species))
    return {
        "known scenes, no bird": [known.background(index) for index in range(min(count, len(known)))],
        "birds of other species": [
            more.render(number, species=others[number % len(others)]).image for number in range(count)
        ],
    }


def far(model: Model, images: Sequence[Tensor]) -> Tensor:
    found = [
        item for start in range(0, len(images), 30) for item in model.predict_many(images[start : start + 30])
    ]
    return torch.tensor([item.distance for item in found], dtype=torch.float64)


def judged(known: Tensor, unknown: Tensor) -> dict[str, float | int]:
    strange = torch.cat([torch.zeros(len(known)), torch.ones(len(unknown))]).bool()
    return {
        "images": len(unknown),
        "auroc": auroc(torch.cat([known, unknown]), strange),
        "warned": float((unknown > 1).double().mean()),
        "median_distance": float(unknown.median()),
    }


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


def measured(model: Model, options: argparse.Namespace) -> dict[str, object]:
    data = replace(model.config.data, data=options.data or model.config.data.data)
    splits = build_splits(data)
    if model.familiarity is None:
        say("the run has no threshold; taking one from its validation images")
        model.familiarity = model.measured_familiarity(splits.val)
    images = spread(splits.test, options.images)
    known, size = far(model, images), model.config.data.image_size
    kinds = made_up(images, min(options.images, options.made_up))
    kinds |= near_kinds(splits.test, options.images)
    kinds |= {name: unknown_images(name, size, options.images) for name in options.unknown}
    rows = {}
    for name, strange in kinds.items():
        rows[name] = judged(known, far(model, strange))
        say(f"{name}: {rows[name]}")
    return {
        "known": {"data": data.data, "images": len(known), "warned": float((known > 1).double().mean())},
        "threshold_from": model.familiarity.images,
        "share": model.familiarity.share,
        "unknown": rows,
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, help="a trained run (default: a small one, trained now)")
    parser.add_argument("--data", help="known images (default: the run's own data)")
    parser.add_argument("--unknown", nargs="*", default=[], help="data sets, or folders of images")
    parser.add_argument("--images", type=int, default=100, help="at most so many of each kind")
    parser.add_argument("--made-up", type=int, default=40, help="at most so many of each kind made here")
    return parser.parse_args()


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        model = Model.load(options.run) if options.run else small_run(Path(folder))
        result = measured(model, options)
    rows = result["unknown"]
    assert isinstance(rows, dict)
    worst = min(row["auroc"] for row in rows.values())
    tell({"benchmark": "familiarity", **result, "worst_auroc": worst, "targets": TARGETS})


if __name__ == "__main__":
    main()
