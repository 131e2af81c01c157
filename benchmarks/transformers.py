"""Explainers of transformers, each on the same birds: all columns of `compare`, ROAD, truth by intervention.

    python benchmarks/train_birds_transformers.py --out DIR --network vit
    python benchmarks/transformers.py --trained DIR --keep KEEP > docs/results/transformers.json
    python benchmarks/transformers.py --trained DIR --keep KEEP --count 6 --figure FILE.png

Images are test images of the built-in birds (`--split train` for choosing settings), spread over the species;
the class is the predicted one. Truth by intervention is that of `dprotonet quality --intervention`, for the
logit of the class and its lead over the likeliest other one: how far they fall when a part is exchanged, or
removed, against the heat on that part. What comes first in `--methods` is compared with all others, by image.
`--keep KEEP` keeps what every image gave; a run that was stopped goes on there.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from train_birds_transformers import COUNTS, GRID, PIXELS, SEED, SPECIES, trained

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.data.birds import Birds
from dprotonet.data.transforms import Normalise
from dprotonet.experiment.compare.method import Case, Method, MethodMaps, method
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.quality.intervention.check import spread_over_classes
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.figures import comparison_grid
from dprotonet.files import whole
from dprotonet.interpretation.attnlrp import AttnLRP
from dprotonet.interpretation.base import Passes
from dprotonet.metrics.comparison import mean_interval, paired_bootstrap
from dprotonet.metrics.intervention import importance, part_correlation, part_heat, top_part_right
from dprotonet.metrics.measures import Explained, Protocol, Truth, measured
from dprotonet.metrics.road import RoadProtocol, road
from dprotonet.ops import unit_range, upsample

METHODS = (
    *("mdm", "gradcam", "gradcam at norm1"),
    *("rollout", "chefer", "legrad", "attnlrp", "attnlrp by patches"),
)
CONTROLS = ("random", "centre")
FALLS = ("deletion", "AD", "AD50", "ROAD hottest")  # less is better
AREA = "area"
ROAD = RoadProtocol(shares=(0.2, 0.4, 0.6, 0.8))


class Measuring:
    """A network, its birds, and everything that is measured of one image and method."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.start = options, time.monotonic()
        self.model = trained(options.network, options.trained)
        self.classifier = Classifier.of_module(
            self.model,
            size=PIXELS,
            normalise=Normalise((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            name=options.network,
        )
        self.birds = Birds(
            species=SPECIES, per_species=COUNTS[options.split], split=options.split, seed=SEED, size=PIXELS
        )
        self.chosen = spread_over_classes(self.birds.labels, options.count)
        self.methods = [self.by_name(name) for name in (*options.methods, *CONTROLS, AREA)]

    def by_name(self, name: str) -> Method:
        if name in OWN:
            make = OWN[name]
            return Method(name, lambda case: make(self.model, case))
        return method(name, self.classifier)

    @torch.no_grad()
    def logits(self, pictures: list[Tensor]) -> Tensor:
        """Logits (N, C) of pictures (3, H, W) uint8."""
        return self.model(self.classifier.normalise(torch.stack(pictures))).double()

    def case(self, index: int) -> Case:
        sample = self.birds[index]
        label = self.logits([sample.image]).argmax(dim=1)
        return Case(index, sample, self.classifier.normalise(sample.image.unsqueeze(0)), label)

    def truth(self, case: Case) -> dict[str, Tensor]:
        """How far the logit and its lead fall with each part (K,), by form; NaN for a part that is unseen."""
        names = list(case.sample.parts)
        before = self.logits([case.sample.image])[0]
        label = int(case.label)
        rival = int(before.index_fill(0, torch.tensor(label), -torch.inf).argmax())
        found = {}
        for form, count in (("exchange", 3), ("removal", 1)):
            after = torch.full((len(names), count, SPECIES), torch.nan, dtype=torch.double)
            for part, name in enumerate(names):
                if case.sample.parts[name].any():
                    changed = (
                        self.birds.exchanges(case.place, name, count=count)
                        if form == "exchange"
                        else [self.birds.removed(case.place, name)]
                    )
                    after[part] = self.logits([sample.image for sample in changed])
            found[form] = importance(before[label][None], after[None, ..., label])[0]
            lead, later = before[label] - before[rival], after[..., label] - after[..., rival]
            found[f"{form}, lead"] = importance(lead[None], later[None])[0]
        return found

    def values(self, case: Case, maps: MethodMaps, truth: Mapping[str, Tensor]) -> dict[str, float]:
        """Every column of one map."""
        raw, heatmap = maps.raw[None], maps.heatmap[None]

        @torch.no_grad()
        def probability(images: Tensor, _rows: Tensor) -> Tensor:
            return self.model(images).softmax(dim=1)[:, int(case.label)]

        sample = case.sample
        black = self.classifier.normalise(torch.zeros_like(sample.image)[None, :, :1, :1])
        where = Truth(sample.truth[None], sample.parts[sample.deciding_part][None])
        shown = Explained(raw, heatmap)
        found = measured(probability, case.inputs, shown, where, protocol=Protocol(), black=black)
        values = {name: float(column[0]) for name, column in found.values.items()}
        gone = road(probability, case.inputs, raw, protocol=ROAD)
        values |= {f"ROAD {name}": float(column[0]) for name, column in gone._asdict().items()}
        parts = torch.stack(list(sample.parts.values()))[None]
        heat = part_heat(heatmap, parts)
        for form, falls in truth.items():
            values[f"{form}: correlation, mean"] = float(part_correlation(heat.mean, falls[None])[0])
            values[f"{form}: correlation, sum"] = float(part_correlation(heat.total, falls[None])[0])
            values[f"{form}: first part, mean"] = float(top_part_right(heat.mean, falls[None])[0])
            values[f"{form}: first part, sum"] = float(top_part_right(heat.total, falls[None])[0])
        return values

    def run(self) -> None:
        chosen = self.chosen[::-1] if self.options.backwards else self.chosen
        for done, index in enumerate(chosen, start=1):
            lacking = [item for item in self.methods if not self.path(item.name, index).exists()]
            if not lacking:
                continue
            if time.monotonic() - self.start > self.options.stop_after:
                break
            case = self.case(index)
            truth = self.truth(case)
            for item in lacking:
                maps = item.explain(case)
                kept = {"values": self.values(case, maps, truth), "passes": list(maps.passes)}
                kept |= {"predicted": int(case.label), "label": case.sample.label}
                with whole(self.path(item.name, index)) as temporary:
                    temporary.write_text(json.dumps(kept), encoding="utf-8")
            print(f"{done} of {len(self.chosen)}", file=sys.stderr, flush=True)

    def path(self, name: str, index: int) -> Path:
        folder: Path = self.options.keep / self.options.network / self.options.split
        return folder / name.replace(":", "-").replace(" ", "-") / f"{index:04d}.json"

    def result(self) -> dict[str, Any]:
        """Means with intervals, and the first method against the others, on images that all have done."""
        done = [
            index
            for index in self.chosen
            if all(self.path(item.name, index).exists() for item in self.methods)
        ]
        kept = {
            item.name: [json.loads(self.path(item.name, index).read_text()) for index in done]
            for item in self.methods
        }
        names = list(next(iter(kept.values()))[0]["values"])
        columns = {
            name: {key: torch.tensor([item["values"][key] for item in items]) for key in names}
            for name, items in kept.items()
        }
        first, *others = columns
        ours = next(iter(kept.values()))
        return {
            "benchmark": "transformers",
            "network": json.loads((self.options.trained / f"{self.options.network}.json").read_text()),
            "split": self.options.split,
            "images": [self.birds.name(index) for index in done],
            "predicted rightly": sum(item["predicted"] == item["label"] for item in ours),
            "rows": {
                name: {
                    "mean": {key: plain(mean_interval(values)._asdict()) for key, values in found.items()},
                    "passes": kept[name][0]["passes"],
                }
                for name, found in columns.items()
            },
            "compared": {
                f"{first} vs {other}": {
                    key: paired(key, columns[first][key], columns[other][key]) for key in names
                }
                for other in others
            },
        }


def area(_model: nn.Module, case: Case) -> MethodMaps:
    """The same heat everywhere: what a part has by its size."""
    ones = torch.ones(case.inputs.shape[-2:])
    return MethodMaps(ones, ones, Passes(0, 0))


def usual_gradcam(model: nn.Module, case: Case) -> MethodMaps:
    """Grad-CAM as pytorch-grad-cam's page has it for a ViT: at the first norm of the last block."""
    package = import_guarded("pytorch_grad_cam")
    with package.GradCAM(
        model=model,
        target_layers=[model.blocks[-1].norm1],
        reshape_transform=lambda tokens: tokens[:, 1:].unflatten(1, (GRID, GRID)).permute(0, 3, 1, 2),
    ) as cam:
        target = import_guarded("pytorch_grad_cam.utils.model_targets").ClassifierOutputTarget(
            int(case.label)
        )
        found = torch.from_numpy(cam(case.inputs.clone().requires_grad_(), [target]))[0]
    return MethodMaps(found, found, Passes(1, 1))


def relevance_of_patches(model: nn.Module, case: Case) -> MethodMaps:
    """AttnLRP, its relevance added up over each patch."""
    (found,) = AttnLRP(model).explain(case.inputs, int(case.label))
    patches = functional.avg_pool2d(found.raw[None, None], PIXELS // GRID)[0]
    raw = upsample(patches, (PIXELS, PIXELS))
    return MethodMaps(raw[0], unit_range(raw.relu())[0], found.passes)


OWN: dict[str, Callable[[nn.Module, Case], MethodMaps]] = {
    AREA: area,
    "gradcam at norm1": usual_gradcam,
    "attnlrp by patches": relevance_of_patches,
}


def paired(column: str, ours: Tensor, theirs: Tensor) -> dict[str, Any]:
    return plain(paired_bootstrap(signed(column, ours), signed(column, theirs))._asdict())


def signed(column: str, values: Tensor) -> Tensor:
    """So that more is better."""
    return -values if column in FALLS else values


def figure(measuring: Measuring, path: Path) -> None:
    """Test images by lot (seed 1), the bird outlined, as each method explains them."""
    drawn = torch.randperm(len(measuring.birds), generator=torch.Generator().manual_seed(1))
    cases = [measuring.case(index) for index in drawn[: measuring.options.count].tolist()]
    shown = [item for item in measuring.methods if item.name in measuring.options.methods]
    maps = {item.name: [item.explain(case).heatmap for case in cases] for item in shown}
    names = measuring.birds.classes
    titles = [names[int(case.label)] for case in cases]
    right = [int(case.label) == case.sample.label for case in cases]
    said = [
        "predicted" if sure else f"predicted; is {names[case.sample.label]}"
        for sure, case in zip(right, cases, strict=True)
    ]
    images, truth = [case.sample.image for case in cases], [case.sample.truth for case in cases]
    save_picture(comparison_grid(images, maps, truth=truth, titles=titles, captions=said), path)


def plain(numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Five digits, None for what is undefined."""
    return {
        key: value if isinstance(value, bool) else None if value != value else round(float(value), 5)
        for key, value in numbers.items()
    }


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trained", type=Path, required=True, help="--out of train_birds_transformers.py")
    parser.add_argument("--network", choices=("vit",), default="vit")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--split", choices=("train", "val", "test"), default="test")
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--backwards", action="store_true", help="two processes then share the images")
    parser.add_argument("--figure", type=Path, help="only draw maps of so many images drawn by lot")
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()
    options = arguments()
    measuring = Measuring(options)
    if options.figure:
        figure(measuring, options.figure)
        return
    measuring.run()
    print(json.dumps(measuring.result(), indent=1))


if __name__ == "__main__":
    main()
