"""Costs that can be counted and need no clock: the same on a busy machine, and on another one.

    python benchmarks/counted_costs.py            what they are now, beside what is accepted; JSON on stdout
    python benchmarks/counted_costs.py --accept   and keep them in docs/results/counted-costs.json

For commands on a small folder of JPEGs: images that pass the backbone, and how often a file of the data set
is opened. For the presets of the decoder: passes of a heatmap. For training steps, predictions and a heatmap:
floating-point operations of convolutions and matrix products, and the most bytes that tensors take at a time,
those from before not counted. `tests/end_to_end/test_counted_costs.py` fails where one of them grows.
"""

import argparse
import gc
import json
import os
import sys
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from networks import objective
from PIL import Image
from timing import say, tell
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from dprotonet.cli.main import main as command
from dprotonet.config import Config
from dprotonet.data.birds import Birds
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.interpretation.mdm import MDM, PRESETS, preset
from dprotonet.network import Network

ACCEPTED = Path(__file__).resolve().parents[1] / "docs" / "results" / "counted-costs.json"
IMAGES, FILES = "images through the backbone", "files opened, of all in the data set"
ALLOWED = {"operations": 1.01, "bytes of tensors at most": 1.01, IMAGES: 1.15, FILES: 1.15}
"""How far they may grow, passes not at all: other builds of torch divide a step otherwise, and which images
are pushed or explained depends on answers whose last digits differ between machines."""

EDGE, CLASSES = 64, 4
PER_SPLIT = {"train": 6, "val": 3, "test": 3}  # images of each class
BACKBONE = "timm:test_resnet:none"
PAPER_STEPS = 5  # of the paper's preset, for each size of masks: all of them take minutes
FAST_STEPS = 3  # where heatmaps are not the point, or every operation is looked at

Costs = dict[str, dict[str, float]]


# ── counting ──


class LargestTensors(TorchDispatchMode):
    """The most bytes that tensors take which were made while it is on; views count once."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, int] = {}  # bytes by the address of a storage
        self.now = self.most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = {self._key(leaf) for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)}
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor) and self._key(leaf) not in given:
                self._remember(leaf.untyped_storage())
        return found

    @staticmethod
    def _key(tensor: Tensor) -> int:
        return tensor.untyped_storage()._cdata

    def _remember(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.known:
            self.known[key] = storage.nbytes()
            self.now += storage.nbytes()
            self.most = max(self.most, self.now)
            weakref.finalize(storage, self._forget, key)

    def _forget(self, key: int) -> None:
        self.now -= self.known.pop(key, 0)


@dataclass
class Counted:
    """What was counted while `counting` went on."""

    images: int = 0  # that passed the backbone
    opened: list[str] = field(default_factory=list)


_counts: list[Counted] = []  # of the one that counts now, if any
_hooked: list[bool] = []


def _seen(event: str, given: tuple[Any, ...]) -> None:
    if _counts and event == "open" and isinstance(given[0], str | bytes):
        _counts[0].opened.append(os.fsdecode(given[0]))


@contextmanager
def counting() -> Iterator[Counted]:
    """Counts what happens until it is left."""
    found = Counted()

    def entering(module: torch.nn.Module, given: tuple[Any, ...]) -> None:
        if isinstance(module, torch.nn.Conv2d) and module.in_channels == 3:  # the first of a backbone
            found.images += len(given[0])

    if not _hooked:
        sys.addaudithook(_seen)  # for as long as the process lives
        _hooked.append(True)
    hook = register_module_forward_pre_hook(entering)
    _counts.append(found)
    try:
        yield found
    finally:
        _counts.clear()
        hook.remove()


def of_step(step: Callable[[], object]) -> dict[str, float]:
    """Operations and bytes of what this thread does; garbage is collected by reference only."""
    operations, largest = FlopCounterMode(display=False), LargestTensors()
    gc.collect()
    gc.disable()
    try:
        with operations, largest:
            step()
    finally:
        gc.enable()
    return {"operations": operations.get_total_flops(), "bytes of tensors at most": largest.most}


# ── what is counted ──


def photographs(root: Path) -> Path:
    """The built-in birds as a folder of JPEGs, train, val and test."""
    for split, each in PER_SPLIT.items():
        birds = Birds(species=CLASSES, per_species=each, split=split, size=EDGE)
        for number in range(len(birds)):
            sample = birds[number]
            path = root / split / birds.classes[sample.label] / f"{number:03d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(path, quality=85)
    return root


def of_commands(folder: Path) -> Costs:
    """Commands one after the other, as somebody would type them."""
    data = photographs(folder / "data")
    image, few = str(min((data / "test").glob("*/*.jpg"))), ["--iterations", str(FAST_STEPS)]
    test, run, cache = str(data / "test"), str(folder / "run"), str(folder / "cache")
    settings = (
        f"--data folder:{data} --image-size {EDGE} --backbone {BACKBONE} --epochs 2 --warm-epochs 1 "
        f"--push-every 2 --workers 0 --dimension 16 --prototypes-per-class 2"
    ).split()
    frozen = ["train", *settings, "--mode", "frozen", "--cache", cache]
    typed = {
        "train, frozen": [*frozen, "--out", run],
        "train, frozen, features kept": [*frozen, "--out", f"{run}-again"],
        "train, joint": ["train", *settings, "--mode", "joint", "--out", f"{run}-joint"],
        "evaluate": ["evaluate", run],
        "predict a table": ["predict", run, test, "--out", str(folder / "table.csv")],
        "explain": ["explain", run, image, "--out", str(folder / "one"), *few],
        "report": ["report", run, "--out", str(folder / "report.html"), "--images", "1", *few],
        "report again": ["report", run, "--out", str(folder / "report.html"), "--images", "1", *few],
    }
    return {name: _of_command(words, data) for name, words in typed.items()}


def _of_command(words: list[str], data: Path) -> dict[str, float]:
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said), counting() as found:
        code = command(words)
    if code:
        raise SystemExit(f"{' '.join(words)} failed:\n{said.getvalue()}")
    files = sum(len(list((data / split).glob("*/*"))) for split in PER_SPLIT)
    opened = sum(Path(path).is_relative_to(data) and Path(path).is_file() for path in found.opened)
    return {
        IMAGES: found.images,
        FILES: round(opened / files, 3),
    }


NETWORKS = {
    "masks": {"mask_style": "spatial"},
    "parts": {"regions": "parts"},
    "blackbox": {"network": "blackbox"},
}


def built(name: str) -> tuple[Config, Network]:
    config = config_from({"network": {**NETWORKS[name], "backbone": BACKBONE}})
    torch.manual_seed(0)
    return config, build_network(config.network, classes=CLASSES, image_size=EDGE, pretrained=False)


def of_steps(batch: int = 8) -> Costs:
    """A prediction, and a training step of the whole network without the optimiser."""
    images, labels = torch.randn(batch, 3, EDGE, EDGE), torch.arange(batch) % CLASSES
    found: Costs = {}
    for name in NETWORKS:
        config, network = built(name)
        aim = objective(config, network)

        def predict(network: Network = network) -> None:
            with torch.no_grad():
                network.eval()(images)

        def train(network: Network = network, aim: torch.nn.Module = aim) -> None:
            network.train()
            aim(images, labels).terms.total.backward()

        found[f"prediction, {name}"] = of_step(predict)
        found[f"training step, {name}"] = of_step(train)
    return found


def of_presets() -> Costs:
    """One heatmap of the predicted class by every preset of the decoder."""
    _, network = built("masks")
    image, found = torch.randn(1, 3, EDGE, EDGE, generator=torch.Generator().manual_seed(0)), {}
    for name in PRESETS:
        given = preset(name, iterations=PAPER_STEPS) if name == "paper" else name
        decoder = MDM(network.eval(), preset=given)
        passes = decoder.explain(image)[0].passes
        found[f"heatmap, {name}"] = {"forward": passes.forward, "backward": passes.backward}
    few = MDM(network, preset=preset("fast", iterations=FAST_STEPS))
    found["heatmap, fast, a few steps"] = of_step(lambda: few.explain(image))
    return found


def counted(folder: Path) -> Costs:
    """Everything; files go into the folder."""
    found: Costs = {}
    for part in (of_steps, of_presets, partial(of_commands, folder)):
        begun = time.process_time()
        found |= part()
        say(f"{len(found)} counted, {time.process_time() - begun:.1f} CPU seconds")
    return found


# ── compared with what is accepted ──


def worse(found: Costs, accepted: Costs) -> list[str]:
    """What has grown, or is on one side only, in words."""
    said = [f"{name}: only {where}" for where, name in _lone(found, accepted)]
    for name in found.keys() & accepted.keys():
        for kind, value in found[name].items():
            before = accepted[name].get(kind)
            if before is None or value > before * ALLOWED.get(kind, 1):
                said.append(f"{name}: {kind} {before} → {value}")
    return sorted(said)


def _lone(found: Costs, accepted: Costs) -> Iterator[tuple[str, str]]:
    yield from (("here", name) for name in found.keys() - accepted.keys())
    yield from (("in the accepted ones", name) for name in accepted.keys() - found.keys())


def read_accepted() -> Costs:
    costs: Costs = json.loads(ACCEPTED.read_text(encoding="utf-8"))["costs"]
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accept", action="store_true", help="these are the new ones")
    with tempfile.TemporaryDirectory() as folder:
        asked = parser.parse_args()
        found = counted(Path(folder))
    if asked.accept:
        content = {
            "made by": "python benchmarks/counted_costs.py --accept",
            "torch": torch.__version__,
            "costs": found,
        }
        ACCEPTED.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    tell({"benchmark": "counted_costs", "costs": found, "worse": worse(found, read_accepted())})


if __name__ == "__main__":
    main()
