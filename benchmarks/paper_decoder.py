"""The paper's decoder at full length on a trained DProtoNet: share kept, every measure and time, per node.

    python benchmarks/paper_decoder.py --run RUN --keep MAPS --out docs/results/paper_decoder.json

Test images evenly spread; the predicted class at its logit, and the region vector of the prototype that
contributes most to it (Eqs. (12) and (14)), by every method. Measured is the probability of the predicted
class, as `dprotonet compare` does. A map is kept in MAPS and its row in the JSON as soon as it is finished,
so that a stopped run goes on where it was: a map of the paper's takes 8,000 passes. A method is a preset,
with changes if wanted (`paper:reference=None` for an η that is absolute). BatchNorm is folded into
the convolutions and only the watched region is computed, which changes nothing but rounding. `--part train`
takes training images, to choose a setting on. `--sheet FILE` draws all maps that are kept. The table of the
JSON is drawn by docs/network_tables.py.
"""

import argparse
import copy
import json
import os
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from decoder import One, kept_map, named_preset, store
from subjects import samples, stacked
from torch import Tensor, nn

from dprotonet.compat import keep_freed_memory
from dprotonet.encoder.encoder import Encoder
from dprotonet.encoder.regions import Masks
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.figures import contact_sheet, overlay
from dprotonet.files import write_text
from dprotonet.interpretation.mdm import MDM, Preset
from dprotonet.interpretation.nodes import ClassNode, Node, RegionNode
from dprotonet.metrics.controls import centre_gaussian, random_maps
from dprotonet.metrics.measures import Explained, Protocol, Truth
from dprotonet.metrics.measures import measured as all_measures
from dprotonet.network import DProtoNet
from dprotonet.ops import unit_range

PROTOCOL = Protocol()
NODES = ("prototype", "class")
CONTROLS = {
    "random": lambda size: random_maps(1, size, 0)[0],
    "centre": lambda size: centre_gaussian(1, size)[0],
}
COLUMNS = ("kept", *(m.name for m in PROTOCOL.measures if m.name not in ("AG", "energy", "pointing", "part")))


def folded(network: nn.Module) -> nn.Module:
    """A copy whose BatchNorms are part of the convolutions before them; its activations stay."""
    network = copy.deepcopy(network).eval().requires_grad_(False)
    for parent in list(network.modules()):
        children = list(parent.named_children())
        for (_, conv), (name, norm) in pairwise(children):
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                _fold(conv, norm)
                setattr(parent, name, getattr(norm, "act", nn.Identity()))
    return network


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    assert norm.running_var is not None
    assert norm.running_mean is not None
    scale = norm.weight / (norm.running_var + norm.eps).sqrt()
    shift = norm.bias - norm.running_mean * scale + (0 if conv.bias is None else conv.bias * scale)
    conv.weight = nn.Parameter(conv.weight * scale.view(-1, 1, 1, 1), requires_grad=False)
    conv.bias = nn.Parameter(shift.detach(), requires_grad=False)


@dataclass(frozen=True)
class Subject:
    """A network, its images, and what each of them is asked for."""

    network: DProtoNet
    images: Tensor  # (N, 3, H, W), normalised
    pixels: Tensor  # (N, 3, H, W) uint8
    numbers: list[int]  # in the data
    truth: Tensor | None  # (N, H, W) bool
    labels: Tensor  # (N,), predicted
    prototypes: Tensor  # (N,), the strongest of that class
    regions: Tensor  # (N,), where they were found
    rounding: float  # by how much folding changed a logit at most

    @classmethod
    def of(cls, run: Path, count: int, part: str) -> "Subject":
        model = Model.load(run)
        data = getattr(build_splits(model.config.data), part)
        numbers = [
            (place * (len(data) // count) + place) % len(data) for place in range(count)
        ]  # all species
        images, chosen = samples(data, numbers, model.normalise)
        network = folded(model.prototyped)
        assert isinstance(network, DProtoNet)
        with torch.no_grad():
            seen, logits = network.evidence(images), model.prototyped.eval()(images)
        labels = logits.argmax(dim=1)
        strongest = network.contributions(seen, labels).argmax(dim=1)
        return cls(
            network,
            images,
            torch.stack([sample.image for sample in chosen]),
            numbers,
            stacked([sample.truth for sample in chosen]),
            labels,
            strongest,
            seen.region.gather(1, strongest.unsqueeze(1)).squeeze(1),
            float((seen.logits - logits).abs().max()),
        )

    def node(self, kind: str, row: int, chosen: Preset) -> Node:
        if kind == "class":
            return ClassNode(self.network, self.labels[row : row + 1], probability=chosen.probability)
        encoder = self.network.encoder
        assert isinstance(encoder.regions, Masks)
        one = Masks(
            encoder.regions.masks[self.regions[row]].unsqueeze(0), dimension=encoder.regions.dimension
        )
        alone = Encoder(encoder.backbone, encoder.shaping, one).eval()
        return RegionNode(alone, torch.zeros(1, dtype=torch.long), model=alone)

    def values(self, row: int, one: One) -> dict[str, float]:
        """Every measure of one map."""

        @torch.no_grad()
        def score(images: Tensor, rows: Tensor) -> Tensor:
            return self.network(images).softmax(dim=1)[:, self.labels[row]]

        truth = Truth(None if self.truth is None else self.truth[row : row + 1])
        maps = Explained(one.raw.unsqueeze(0), one.heatmap.unsqueeze(0))
        found = all_measures(score, self.images[row : row + 1], maps, truth, protocol=PROTOCOL)
        return {name: round(float(found.values[name]), 6) for name in COLUMNS[1:]}


def made(subject: Subject, method: str, kind: str, row: int) -> tuple[One, dict[str, Any]]:
    """One map, and what it cost on how busy a machine."""
    if method in CONTROLS:
        raw = CONTROLS[method](subject.images.shape[-2:])
        return One(raw, unit_range(raw), 0.0, (0, 0)), {}
    chosen = named_preset(method)
    assert chosen is not None
    wall, cpu = time.perf_counter(), time.process_time()
    (found,) = MDM(preset=chosen).explain(subject.images[row : row + 1], subject.node(kind, row, chosen))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    cost = {"seconds": round(wall, 1), "cpu_seconds": round(cpu, 1), "load": round(os.getloadavg()[0], 1)}
    return One(found.raw, found.heatmap, cpu, tuple(found.passes)), cost


def share_kept(method: str, raw: Tensor) -> float | None:
    """The share of the pixels above γ; None for a method without γ."""
    chosen = None if method in CONTROLS else named_preset(method)
    above = None if chosen is None else chosen.above(raw)
    return None if above is None else round(float(above.float().mean()), 6)


def measured(subject: Subject, options: argparse.Namespace) -> None:
    """All rows that the JSON does not have yet, the cheap ones first; written after each."""
    result = _read(options.out) or {"settings": _settings(subject, options), "rows": []}
    if result["settings"] != json.loads(json.dumps(_settings(subject, options))):
        raise SystemExit(f"{options.out} is of another run or other images; name another file")
    done = {(row["method"], row["node"], row["image"]) for row in result["rows"]}
    for method in options.methods:
        for place, number in enumerate(subject.numbers):
            for kind in NODES:
                if (method, kind, number) not in done:
                    result["rows"].append(_row(subject, method, kind, place, options.keep))
                    write_text(options.out, json.dumps(result, indent=1))


def _row(subject: Subject, method: str, kind: str, place: int, keep: Path) -> dict[str, Any]:
    path = keep / f"{method.replace(':', '-')}-{kind}" / f"{subject.numbers[place]:04d}.npz"
    cost_path, one = path.with_suffix(".json"), kept_map(path)
    if one is None:
        one, cost = made(subject, method, kind, place)
        write_text(cost_path, json.dumps(cost))
        store(path, one)
    row = {
        "method": method,
        "node": kind,
        "image": subject.numbers[place],
        "label": int(subject.labels[place]),
        "prototype": int(subject.prototypes[place]),
        "passes": list(one.passes),
        **json.loads(cost_path.read_text("utf-8")),
        "kept": share_kept(method, one.raw),
        **subject.values(place, one),
    }
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


def _settings(subject: Subject, options: argparse.Namespace) -> dict[str, Any]:
    return {
        "data": options.part,
        "images": subject.numbers,
        "protocol": PROTOCOL.facts,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text("utf-8")) if path.is_file() else None


def sheet(subject: Subject, options: argparse.Namespace) -> None:
    """Every map that is kept over its image: a line per image, a column per node and method."""
    pairs = [(kind, method) for kind in NODES for method in options.methods if method not in CONTROLS]
    pictures, captions = [], []
    for place, number in enumerate(subject.numbers):
        pictures.append(subject.pixels[place])
        captions.append(f"image {number}\nclass {int(subject.labels[place])}")
        for kind, method in pairs:
            path = options.keep / f"{method.replace(':', '-')}-{kind}" / f"{number:04d}.npz"
            one = kept_map(path)
            blank = torch.full_like(subject.pixels[place], 230)
            pictures.append(blank if one is None else overlay(subject.pixels[place], one.heatmap))
            kept = None if one is None else share_kept(method, one.raw)
            captions.append(f"{method.split(',')[0]}\n{kind}" + ("" if kept is None else f", {kept:.1%}"))
    drawn = contact_sheet(torch.stack(pictures), columns=1 + len(pairs), captions=captions)
    options.sheet.parent.mkdir(parents=True, exist_ok=True)
    drawn.save(options.sheet)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="a trained DProtoNet with masks as regions")
    parser.add_argument("--part", choices=("test", "val", "train"), default="test")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--methods", nargs="+", default=[*CONTROLS, "fast", "paper"])
    parser.add_argument("--keep", type=Path, default=Path("paper-decoder-maps"))
    parser.add_argument("--out", type=Path, default=Path("docs/results/paper_decoder.json"))
    parser.add_argument("--sheet", type=Path, help="draw what is kept, measure nothing")
    return parser.parse_args()


def main() -> None:
    keep_freed_memory()
    options = arguments()
    subject = Subject.of(options.run, options.count, options.part)
    sheet(subject, options) if options.sheet else measured(subject, options)


if __name__ == "__main__":
    main()
