"""The decoder against that of another checkout, and against every CAM of one pass, in one run.

    git worktree add BEFORE c2c4d89
    python benchmarks/decoder_before.py --before BEFORE --images FOLDER --pets PETS --cub CUB --keep DIR

Every method explains the same image before the next image comes, so that both checkouts run under the same
load; seconds are CPU seconds of one thread. EfficientNet-Lite0, predicted classes: of ImageNet itself on
odd-numbered images of FOLDER, of a linear probe on odd-numbered test images of pets and CUB. Settings were
chosen on other images (`--part tune`: even-numbered images of FOLDER, validation images of pets and CUB).
Columns as in `decoder.py`, and ROAD (combined, of pytorch-grad-cam). `--keep DIR` keeps what every image
gave; a run that stopped, or was told to stop by `--stop-after SECONDS`, goes on there. What all methods have
explained is on stdout as JSON.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from decoder import Maps, Subject, columns, imagenet, named_preset, table
from decoder_before_results import BEFORE, all_together, columns_of, compared, row_of
from subjects import predicted, probe, samples, spread, stacked
from torch import Tensor

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.config import DataConfig
from dprotonet.experiment.build.data import build_splits
from dprotonet.files import whole
from dprotonet.interpretation.folding import Pair, folded, seen_pairs
from dprotonet.interpretation.mdm import MDM

LITE0 = "timm:tf_efficientnet_lite0:packaged"
CAMS = {
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMPlusPlus",
    "hirescam": "HiResCAM",
    "layercam": "LayerCAM",
    "xgradcam": "XGradCAM",
    "eigencam": "EigenCAM",
}
ROAD = [20, 40, 60, 80]
WORKER = Path(__file__).with_name("decoder_before_worker.py")


class One(NamedTuple):
    """Raw map and heatmap (1, H, W), CPU seconds, passes forward and backward."""

    raw: Tensor
    heatmap: Tensor
    seconds: float
    passes: tuple[int, int]


class Other:
    """The decoder of another checkout, in a process of its own that is asked image by image."""

    def __init__(self, checkout: Path, model: torch.nn.Module, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        torch.save(model, folder / "model.pt")
        paths = [str(checkout.resolve() / part) for part in ("src", "benchmarks")]
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), str(folder), *paths],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, image: Tensor, label: int) -> One:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        torch.save((image, label), self.folder / "asked.pt")
        self.process.stdin.write("asked.pt\n")
        self.process.stdin.flush()
        if not self.process.stdout.readline():
            raise SystemExit("the decoder of the other checkout failed; see its error above")
        raw, heatmap, seconds, passes = torch.load(self.folder / "found.pt", weights_only=True)
        return One(raw, heatmap, seconds, tuple(passes))


def ours(subject: Subject, method: str) -> One:
    """`fast`, `instant`, or a preset with changes, of this checkout."""
    explainer = MDM(subject.model, preset=named_preset(method) or "fast")
    node = subject.node(0, explainer.preset)
    start = time.process_time()
    (found,) = explainer.explain(subject.images, node)
    return One(
        found.raw[None], found.heatmap[None], time.process_time() - start, (found.passes[0], found.passes[1])
    )


def cam(subject: Subject, method: str) -> One:
    """pytorch-grad-cam's, at the same layer for all of them."""
    images, target = (
        subject.images.clone().requires_grad_(True),
        [_targets().ClassifierOutputTarget(int(subject.labels[0]))],
    )
    with getattr(import_guarded("pytorch_grad_cam"), CAMS[method])(
        subject.model, [subject.layer]
    ) as explainer:
        start = time.process_time()
        found = torch.from_numpy(explainer(images, target))
        return One(found, found, time.process_time() - start, (1, 1))


def road(subject: Subject, raw: Tensor) -> float:
    """How much more the class loses by the hottest pixels than by the coldest, over four shares."""
    np.random.seed(0)
    random.seed(0)
    torch.manual_seed(0)
    target = [_targets().ClassifierOutputSoftmaxTarget(int(subject.labels[0]))]
    found = import_guarded("pytorch_grad_cam.metrics.road").ROADCombined(percentiles=ROAD)(
        subject.images, raw.numpy(), target, subject.model
    )
    return float(np.asarray(found).reshape(-1)[0])


def _targets() -> Any:
    return import_guarded("pytorch_grad_cam.utils.model_targets")


@cache
def probed(name: str, part: str, count: int) -> Subject:
    """A linear probe on test images of an odd number, or on validation images."""
    model, normalise, test = probe(LITE0, name)
    data = build_splits(DataConfig(data=name)).val if part == "tune" else test
    numbers = range(len(data)) if part == "tune" else range(1, len(data), 2)
    images, chosen = samples(data, spread(list(numbers), count), normalise)
    layer = deepest_block(model)
    truth = stacked([sample.truth for sample in chosen])
    return Subject(model, images, predicted(model, images), truth, layer=layer)


def deepest_block(model: torch.nn.Module) -> torch.nn.Module:
    """`blocks.6`, whatever it lies in."""
    found = [module for name, module in model.named_modules() if name.endswith("blocks.6")]
    if len(found) != 1:
        raise SystemExit(f"blocks.6 is there {len(found)} times")
    return found[0]


def subjects(options: argparse.Namespace) -> dict[str, Callable[[], Subject]]:
    """What is explained, by name; each is made when it is needed."""
    asked: dict[str, Callable[[], Subject]] = {}
    if options.images:
        given = argparse.Namespace(
            images=options.images, model=LITE0, layer="blocks.6", part=options.part, count=options.count
        )
        asked["imagenet"] = cache(lambda: imagenet(given))
    if options.pets:
        asked["pets"] = lambda: probed(f"folder:{options.pets}", options.part, options.count)
    if options.cub:
        asked["cub"] = lambda: probed(f"cub:{options.cub}", options.part, options.count)
    return asked


def only(subject: Subject, row: int) -> Subject:
    truth = None if subject.truth is None else subject.truth[row : row + 1]
    return replace(
        subject, images=subject.images[row : row + 1], labels=subject.labels[row : row + 1], truth=truth
    )


def judged(subject: Subject, found: One, *, with_road: bool) -> dict[str, Any]:
    with folded(foldable(subject.model)):
        measured = columns(subject, Maps(found.raw, found.heatmap))
        values = {name: float(column[0]) for name, column in measured.items()}
        values |= {"ROAD": road(subject, found.raw)} if with_road else {}
    return {"values": values, "seconds": found.seconds, "passes": list(found.passes)}


@cache
@torch.no_grad()
def foldable(model: torch.nn.Module) -> list[Pair]:
    """Normalisations that need not be computed while maps are judged, for all methods alike."""
    with seen_pairs(model) as pairs:
        model(torch.zeros(1, 3, 224, 224))
    return list(pairs)


def ranks(raw: Tensor) -> Tensor:
    order = raw.flatten().double().argsort(stable=True).argsort().double()
    return (order - order.mean()) / order.std()


def one_image(
    name: str, subject: Subject, row: int, options: argparse.Namespace, other: Callable[[], Other]
) -> None:
    """Everything about one image: what is not kept yet is made, method by method."""
    here, former = only(subject, row), options.keep / name / BEFORE / f"{row:04d}.npy"
    with_cams = asked_of_cams(name, row, options)
    for method in methods_on(with_cams, options):
        path = kept_result(name, method, row, options)
        if path.exists():
            continue
        if method == BEFORE:
            found = other()(here.images, int(here.labels[0]))
        else:
            found = cam(here, method) if method in CAMS else ours(here, method)
        result = judged(here, found, with_road=with_cams and options.road)
        path.parent.mkdir(parents=True, exist_ok=True)
        if method == BEFORE:
            np.save(former, found.raw.numpy())
        elif method not in CAMS:
            before = torch.from_numpy(np.load(former))
            result["rank correlation"] = float((ranks(found.raw) * ranks(before)).mean())
        with whole(path) as temporary:
            temporary.write_text(json.dumps(result), encoding="utf-8")


def asked_of_cams(name: str, row: int, options: argparse.Namespace) -> bool:
    """The CAMs, and ROAD, which is slow, are asked about some images of ImageNet only."""
    return name == "imagenet" and row % options.cams_every == 0


def methods_on(with_cams: bool, options: argparse.Namespace) -> tuple[str, ...]:
    return (BEFORE, *options.methods, *(CAMS if with_cams else ()))


def kept_result(name: str, method: str, row: int, options: argparse.Namespace) -> Path:
    folder: Path = options.keep / name / method.replace(":", "-")
    return folder / f"{row:04d}.json"


def done(name: str, options: argparse.Namespace) -> list[int]:
    """The images that every method has explained."""
    return [
        row
        for row in range(options.count)
        if all(
            kept_result(name, method, row, options).exists()
            for method in methods_on(asked_of_cams(name, row, options), options)
        )
    ]


def gathered(name: str, options: argparse.Namespace, *, with_cams: bool = False) -> dict[str, Any]:
    """Of one data set, or of its images with CAMs: means, differences to other checkout and CAMs, cost."""
    rows = [row for row in done(name, options) if not with_cams or asked_of_cams(name, row, options)]
    kept = {
        method: [
            json.loads(kept_result(name, method, row, options).read_text(encoding="utf-8")) for row in rows
        ]
        for method in methods_on(with_cams, options)
    }
    some = () if with_cams and options.road else ("ROAD",)  # what only images with CAMs have
    values = {method: columns_of(items, without=some) for method, items in kept.items()}
    return {
        "images": len(rows),
        "rows": {method: row_of(kept[method], values[method], kept[BEFORE]) for method in kept},
        "values": {
            method: {
                key: [round(one, 6) if one == one else None for one in column.tolist()]
                for key, column in found.items()
            }
            for method, found in values.items()
        },
        **compared(values, options.methods),
    }


def times(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Of a network of timm without its weights: CPU seconds of both checkouts, image by image in turn."""
    path = options.keep / name / "times.json"
    if path.exists():
        kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return kept
    torch.manual_seed(0)
    model = import_guarded("timm").create_model(name, pretrained=False).eval().requires_grad_(False)
    images = torch.randn(options.repeats, 3, 224, 224)
    subject = Subject(model, images, predicted(model, images))
    other = Other(options.before, model, options.keep / name)
    pairs = []
    for row in range(options.repeats):
        here = only(subject, row)
        pairs.append((other(here.images, int(here.labels[0])).seconds, ours(here, "fast").seconds))
        print(f"\r{name}: {row + 1}/{options.repeats}", end="", file=sys.stderr, flush=True)
    before, now = (sum(seconds) for seconds in zip(*pairs, strict=True))
    result = {"seconds": pairs, "of before": now / before}
    with whole(path) as temporary:
        temporary.write_text(json.dumps(result), encoding="utf-8")
    return result


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="the other checkout")
    parser.add_argument("--images", type=Path, help="folder of images for an ImageNet classifier")
    parser.add_argument("--pets", type=Path, help="folder of pets, train/ and test/")
    parser.add_argument("--cub", type=Path, help="folder CUB_200_2011")
    parser.add_argument("--timed", nargs="*", default=[], help="networks of timm, random weights, time only")
    parser.add_argument("--repeats", type=int, default=3, help="images that they are timed on")
    parser.add_argument("--part", choices=("tune", "held"), default="held")
    parser.add_argument("--count", type=int, default=34, help="images of each data set")
    parser.add_argument("--methods", nargs="+", default=["fast", "instant"])
    parser.add_argument("--cams-every", type=int, default=1, help="CAMs and ROAD on one of so many images")
    parser.add_argument("--no-road", dest="road", action="store_false", help="without ROAD, which is slow")
    parser.add_argument("--first", type=int, default=0, help="go on from this image of each data set")
    parser.add_argument(
        "--keep", type=Path, required=True, help="folder in which results are kept and found again"
    )
    parser.add_argument("--stop-after", type=float, default=float("inf"), help="CPU seconds, to go on later")
    return parser.parse_args()


def explain(sets: Mapping[str, Callable[[], Subject]], options: argparse.Namespace) -> None:
    """Every data set in turn, image by image, so that a run that stops has as many of each."""
    start = time.process_time()
    others = {
        name: cache(
            lambda name=name: Other(
                options.before, sets[name]().model, options.keep / name / f"other-{os.getpid()}"
            )
        )
        for name in sets
    }
    for row in range(options.first, options.count):
        for name, make in sets.items():
            if time.process_time() - start > options.stop_after:
                return
            if row < len(make().images):
                one_image(name, make(), row, options, others[name])
                print(f"\r{name}: {row + 1}", end="", file=sys.stderr, flush=True)


def main() -> None:
    keep_freed_memory()
    torch.set_num_threads(1)
    options = arguments()
    explain(subjects(options), options)
    sets = [name for name in ("imagenet", "pets", "cub") if (options.keep / name / BEFORE).exists()]
    found = {name: gathered(name, options) for name in sets if done(name, options)}
    for name, item in found.items():
        print(f"\n{name}\n{table(item['rows'])}", file=sys.stderr)
    kept = {
        key: value
        for key, value in vars(options).items()
        if key in ("part", "count", "methods", "cams_every", "road")
    }
    together = all_together(found, options.methods) if len(found) > 1 else {}
    rivals = gathered("imagenet", options, with_cams=True) if "imagenet" in found else {}
    timed = {name: times(name, options) for name in options.timed}
    print(
        json.dumps(
            {
                "benchmark": "decoder_before",
                "settings": kept,
                "sets": found,
                "rivals": rivals,
                "together": together,
                "timed": timed,
            }
        )
    )


if __name__ == "__main__":
    main()
