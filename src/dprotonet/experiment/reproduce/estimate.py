"""How long a plan will take here, by a few measured steps of its own networks.

Passes of images through the backbone are counted, forwards and backwards, and multiplied with what one costs
on this machine. The estimate is of the right size, no more: it leaves reading images and other small things
aside.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

import torch
from accelerate import Accelerator

from dprotonet.config import Config, NetworkConfig
from dprotonet.encoder.backbone import Backbone, BackboneSpec, load_backbone
from dprotonet.experiment.benchmark.localisation_plan import LocalisationPlan
from dprotonet.experiment.benchmark.plan import Plan, Run
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.build.training import build_stages
from dprotonet.experiment.compare.method import preset_of
from dprotonet.experiment.reproduce.items import SOURCES
from dprotonet.training.phases import planned_epochs

_BATCH = 4  # images of a measured step
_BEHIND = 1.15  # a step of the whole network, in steps of its backbone (benchmarks/networks.py)
_CHANNELS = 1024  # forward passes of Score-CAM and Ablation-CAM: the channels of the last map, about
_MEASURING = 62  # forward passes that the measures of one map take: two curves of 28 steps, and some more


class Images(NamedTuple):
    """How many there are, of training with validation, and of the test."""

    train: int
    test: int
    classes: int


@dataclass
class Estimate:
    """Seconds of plans; features that frozen runs share are counted once."""

    cached: set[tuple[str, str, int, int]] = field(default_factory=set)
    trained: set[str] = field(default_factory=set)

    def training(self, run: Run, digest: str, known: Mapping[str, Images]) -> float:
        """Of a run; nothing where an equal one is counted already."""
        if digest in self.trained:
            return 0.0
        self.trained.add(digest)
        config, images = run.config, images_of(run.config, known)
        size, network = config.data.image_size, config.network
        forward, step = backbone_speed(network.backbone, network.channels, size)
        epochs = planned_epochs(build_stages(config))
        seen = images.train * config.training.views_per_epoch * epochs
        if config.training.mode == "frozen":
            head = head_speed(network, size, images.classes)
            return self._features(config, images) * forward + seen * head
        judged = (images.train * config.data.val_fraction * epochs + images.test) * forward
        pushes = epochs // config.training.push_every
        again = pushes * images.train * (1 + config.training.views_per_epoch) * forward
        return seen * step * _BEHIND + judged + again

    def _features(self, config: Config, images: Images) -> int:
        key = (
            config.data.data,
            config.network.backbone,
            config.data.image_size,
            config.training.augmentations,
        )
        if key in self.cached:
            return 0
        self.cached.add(key)
        return images.train * (1 + config.training.augmentations) + images.test

    def heatmaps(self, plan: Plan, known: Mapping[str, Images]) -> float:
        """Of all lines and their measures, on every column."""
        if plan.localisation is None:
            return 0.0
        rows = {(cell.row, cell.column): cell.config for cell in plan.cells}
        total = 0.0
        for line in plan.localisation.line:
            for column in plan.columns:
                config = rows.get((line.row, column))
                if config is None:
                    continue
                images = images_of(config, known)
                network = config.network
                forward, _ = backbone_speed(network.backbone, network.channels, config.data.image_size)
                total += _count(plan.localisation, images) * (passes(line.method) + _MEASURING) * forward
        return total

    def pictures(self, plan: Plan) -> float:
        """Of `[figures]`: a map for each decision region, and for each inference two of three prototypes."""
        wanted = plan.figures
        if wanted is None:
            return 0.0
        maps = (wanted.regions + 6 * wanted.inference) * passes(f"mdm-prototype:{wanted.decoder}")
        configs = {cell.column: cell.config for cell in plan.cells if cell.row == wanted.row}
        return sum(
            maps * backbone_speed(found.network.backbone, found.network.channels, found.data.image_size)[0]
            for found in configs.values()
        )


def passes(method: str) -> float:
    """Passes of one map in units of a forward one; a backward pass to the image costs about as much."""
    kind, _, rest = method.partition(":")
    if kind in ("scorecam", "ablationcam"):
        return _CHANNELS
    if kind == "rise":
        return 1000  # its samples, by default
    if kind not in ("mdm", "mdm-prototype"):
        return 2
    chosen = preset_of(rest)[1]
    own = getattr(chosen, "passes", None)
    return 2 * own if own is not None else 8 * getattr(chosen, "iterations", 64)


def images_of(config: Config, known: Mapping[str, Images]) -> Images:
    """As the data has them, or where it is missing, as the paper's data set has."""
    data, kind = config.data, config.data.data.partition(":")[0]
    if data.data in known:
        return known[data.data]
    if kind in SOURCES:
        return Images(SOURCES[kind].train, SOURCES[kind].test, SOURCES[kind].classes)
    each = data.train_per_species + data.val_per_species
    return Images(data.species * each, data.species * data.test_per_species, data.species)


def _count(plan: LocalisationPlan, images: Images) -> int:
    if plan.images_per_class is None:
        return min(plan.images, images.test)
    return min(plan.images_per_class * images.classes, images.test)


@cache
def backbone_speed(backbone: str, channels: int, size: int) -> tuple[float, float]:
    """Seconds of an image forwards, and forwards and back, on the device that training would take."""
    device = Accelerator().device
    spec = BackboneSpec(BackboneSpec.parse(backbone).name, "none")
    network = load_backbone(spec, in_channels=channels, image_size=size).to(device)
    images = torch.randn(_BATCH, channels, size, size, device=device)
    with torch.no_grad():
        forward = _timed(lambda: network(images))
    return forward / _BATCH, _timed(lambda: network(images).sum().backward()) / _BATCH


@cache
def head_speed(config: NetworkConfig, size: int, classes: int) -> float:
    """Seconds of an image forwards and back through what follows the backbone, on features of any content."""
    network = build_network(config, classes=classes, image_size=size, pretrained=False)
    behind = network.without_backbone().to(Accelerator().device)
    backbone = network.encoder.backbone
    assert isinstance(backbone, Backbone)
    shape = (_BATCH, backbone.channels, *backbone.feature_size(size))
    features = torch.randn(*shape, device=Accelerator().device)
    return _timed(lambda: behind(features).sum().backward()) / _BATCH


def _timed(work: Callable[[], object]) -> float:
    """Of the second time: the first one also sets things up."""
    work()
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
