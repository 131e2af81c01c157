"""Does the map of "why this species and not its sibling" lie on the part that tells them apart?

    python benchmarks/contrast.py --runs RUN RUN RUN --images 40 --out contrast-maps.json

Birds of a split, drawn with --seed, so that no run has seen them, that a run takes for their sibling, as they
come. Each map is of the predicted class against its sibling. The renderer knows the pixels of the deciding
part; birds of which none is seen are left out. Measured of each map: whether the hottest pixel lies on that
part or within 16 pixels of it, and the share of the heat on the part over the part's share of the object, the
mean of the one over the mean of the other. `contrast` is what `explain --versus` shows, `another pair's
question` the same map of two siblings that share this part and differ in another one, `shares of places` what
each place adds to the difference, exactly; `^0.5` is the root of a map, `^2` its square. `blind` is any place
on the object, with the same probability. The decoder explains the first --slow birds of each run. Results are
written after every bird; what --out has of a run is not done again.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds
from dprotonet.experiment.explaining.explain_contrast import contrast_picture
from dprotonet.experiment.explaining.explainers import contrast_explainer, explainer
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import contact_sheet, outlined
from dprotonet.files import write_text
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.interpretation.occurrence import OccurrenceMaps
from dprotonet.metrics.controls import centre_gaussian
from dprotonet.metrics.localization import energy_share, pointing_within
from dprotonet.ops import upsample

NEAR = 16  # pixels
BATCH = 12
DRAWN = 21
Maps = dict[str, Tensor]


def main() -> None:
    options = arguments()
    content: dict[str, Any] = json.loads(options.out.read_text()) if options.out.exists() else {"birds": []}
    for run in options.runs:
        model = TrainedModel.load(run)
        done = [one for one in content["birds"] if one["run"] == run.name]
        for count, (sample, said) in enumerate(mistakes(model, options)):
            if count >= options.images:
                break
            if count >= len(done):
                content["birds"].append(
                    {"run": run.name, **examined(model, sample, said, count < options.slow)}
                )
                write(options, content["birds"])
    print(json.dumps(summary(content["birds"]), indent=1))
    if options.pictures:
        drawn(options).save(options.pictures)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=Path, nargs="+", required=True)
    parser.add_argument("--split", default="test")
    parser.add_argument("--seed", type=int, default=5, help="of the birds")
    parser.add_argument("--per-species", type=int, default=200, help="birds to look for mistakes in")
    parser.add_argument("--images", type=int, default=40, help="mistakes of each run")
    parser.add_argument("--slow", type=int, default=10, help="of which the decoder explains so many")
    parser.add_argument("--pictures", type=Path, help="a PNG of the first birds of the first run")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


@torch.no_grad()
def mistakes(model: TrainedModel, options: argparse.Namespace) -> Iterator[tuple[Sample, int]]:
    """Birds that are taken for their sibling, and the sibling; only those whose deciding part is seen."""
    data = Birds(
        species=len(model.classes),
        per_species=options.per_species,
        split=options.split,
        seed=options.seed,
        size=model.config.data.image_size,
    )
    for start in range(0, len(data), BATCH):
        samples = [data[index] for index in range(start, min(start + BATCH, len(data)))]
        logits = model.network(model.inputs([sample.image for sample in samples]))
        for sample, said in zip(samples, logits.argmax(dim=1).tolist(), strict=True):
            if said == sample.label ^ 1 and bool(sample.parts[sample.deciding_part].any()):
                yield sample, said


def examined(model: TrainedModel, sample: Sample, said: int, slow: bool) -> dict[str, Any]:
    part = sample.parts[sample.deciding_part]
    inputs = model.inputs([sample.image])
    found, maps = heatmaps(model, inputs, said, sample.label, slow=slow)
    assert found.side is not None
    return {
        "image": sample.name,
        "part": sample.deciding_part,
        "share": round(float(part.sum() / sample.truth.sum()), 5),
        "for the truth": bool((found.side * found.heatmap)[part].sum() < 0),
        "maps": {name: measured(heat, part) for name, heat in maps.items()}
        | {"blind": blind(sample.truth, part)},
    }


def heatmaps(
    model: TrainedModel, inputs: Tensor, said: int, truth: int, *, slow: bool
) -> tuple[Explanation, Maps]:
    """What `explain --versus` shows, and maps (H, W) without negative heat by name."""
    classifier = Classifier.of_model(model)
    pair: Node = ContrastNode(model.network, [said], truth)
    other = (said // 2 * 2 + 2) % len(model.classes)
    ours = contrast_explainer(classifier)
    (found,) = ours.explain(inputs, pair)
    asked: dict[str, tuple[Explainer, Node]] = {
        "another pair's question": (ours, ContrastNode(model.network, [other], other + 1)),
        "where prototypes differ": (explainer("similarity", classifier), pair),
        "rows by lead": (replaced(explainer("similarity", classifier)), pair),
        "gradcam": (explainer("gradcam", classifier), pair),
        "gradcam, class alone": (explainer("gradcam", classifier), ClassNode(model.network, [said])),
    }
    if slow:
        asked["mdm"] = (explainer("mdm", classifier), pair)
    maps = {name: by.explain(inputs, node)[0].raw.relu().cpu() for name, (by, node) in asked.items()}
    size = (inputs.shape[-2], inputs.shape[-1])
    ownership = model.prototyped.encoder.regions.maps(model.prototyped.encoder.feature_map(inputs))
    squared = {
        f"{name} ^{power}": maps[name].pow(power)
        for name in ("gradcam", "where prototypes differ")
        for power in (2, 4)
    }
    return found, {
        "contrast": found.raw,
        "contrast ^0.5": found.raw.sqrt(),
        "contrast ^0.25": found.raw.sqrt().sqrt(),
        "contrast, for the truth": found.raw * (found.side < 0),
        "shares of places": found.side.abs(),
        "shares of places ^2": found.side.square(),
        "shares of places, for the prediction": found.side.relu(),
        "shares of places, for the truth": (-found.side).relu(),
        **maps,
        **squared,
        "all parts": upsample(ownership.detach().sum(dim=1), size)[0],
        "centre": centre_gaussian(1, size)[0],
    }


def drawn(options: argparse.Namespace) -> Image.Image:
    """Birds with the outline of the deciding part, and beside each what `explain --versus` shows."""
    model = TrainedModel.load(options.runs[0])
    tiles, captions = list[Tensor](), list[str]()
    for sample, said in islice(mistakes(model, options), min(options.images, DRAWN)):
        outline = outlined(sample.image, sample.parts[sample.deciding_part], width=1)
        shown = contrast_picture(model, sample.image, said, sample.label)
        assert shown is not None
        tiles += [outline, shown]
        captions += [f"{model.classes[sample.label]}: {sample.deciding_part}", f"or {model.classes[said]}?"]
    return contact_sheet(torch.stack(tiles), columns=6, captions=captions)


def replaced(maps: Explainer) -> Explainer:
    """The parts' maps by how far each is ahead of the sibling's in this image, not by their prototypes."""
    assert isinstance(maps, OccurrenceMaps)
    maps.differing = None
    return maps


def measured(heat: Tensor, part: Tensor) -> dict[str, float]:
    heat, part = heat[None], part[None]
    return {
        "near": round(float(pointing_within(heat, part, NEAR)), 4),
        "heat": round(float(energy_share(heat, part)), 5),
    }


def blind(truth: Tensor, part: Tensor) -> dict[str, float]:
    """A point anywhere on the object, and heat spread over all of it."""
    there, here = truth.nonzero().float(), part.nonzero().float()
    near = torch.cdist(there, here).amin(dim=1) <= NEAR
    heat = float((part & truth).sum() / truth.sum())
    return {"near": round(float(near.float().mean()), 4), "heat": round(heat, 5)}


def write(options: argparse.Namespace, birds: Sequence[Mapping[str, Any]]) -> None:
    """The summary, then a line for each bird."""
    told = {**vars(options), "runs": [run.name for run in options.runs], "out": None, "pictures": None}
    head = json.dumps({"options": told, **summary(birds)}, indent=1).removesuffix("\n}")
    lines = ",\n".join("  " + json.dumps(one) for one in birds)
    write_text(options.out, f'{head},\n "birds": [\n{lines}\n ]\n}}\n')


def summary(birds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Of all birds, of each run and of each part."""

    def grouped(key: str) -> dict[str, Any]:
        return {name: means([b for b in birds if b[key] == name]) for name in sorted({b[key] for b in birds})}

    truth = [one["for the truth"] for one in birds]
    return {
        "counts": {"birds": len(birds), **Counter(one["run"] for one in birds)},
        "parts": dict(Counter(one["part"] for one in birds)),
        "the part speaks for the truth": round(fmean(truth), 4),
        "means": means(birds),
        "by run": grouped("run"),
        "by part": grouped("part"),
    }


def means(group: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, float]]:
    names = dict.fromkeys(name for one in group for name in one["maps"])
    told: dict[str, Mapping[str, float]] = {}
    for name in names:
        having = [one for one in group if name in one["maps"]]
        share = fmean(one["share"] for one in having)
        pick: Callable[[str], float] = lambda what: fmean(one["maps"][name][what] for one in having)  # noqa: B023, E731
        told[name] = {
            "birds": len(having),
            "near": round(pick("near"), 4),
            "heat over area": round(pick("heat") / share, 4),
        }
    return told


if __name__ == "__main__":
    main()
