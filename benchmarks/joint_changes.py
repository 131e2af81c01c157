"""Parts trained whole, one change at a time: validation accuracy and every epoch's curves on one fold.

    python benchmarks/joint_changes.py --data cub:PATH --out changes.json
    python benchmarks/joint_changes.py --data cub:PATH --out changes.json --changes "as it is" "images mixed"

A third of the training images judges; test images are never opened. Changes that are no setting of the
library, because they bought nothing, are made here. What is in --out already is not run again.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from recipe_folds import tables_of
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dprotonet.compat import import_guarded, keep_freed_memory
from dprotonet.data.transforms import Augment
from dprotonet.encoder.regions import Parts
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.build.training import default_cache
from dprotonet.experiment.runs import trainer
from dprotonet.experiment.settings.recipes import config_from
from dprotonet.files import write_text
from dprotonet.training.engine import Engine
from dprotonet.training.evaluation import Validation
from dprotonet.training.events import EpochDone, PushDone, RoundDone
from dprotonet.training.memory import Piece
from dprotonet.training.objective import Sums
from dprotonet.training.part_discriminant import start_parts_as_discriminants
from dprotonet.training.phases import Phase
from dprotonet.training.views import chunks, load

_DECAY = 0.98  # of averaged weights, a step: fifty of about a hundred steps
_SLOWER = 0.5  # of the rate, from each stage of the backbone to the one before
_MIXING = 0.2  # both parameters of the Beta distribution


class LayerRates(Engine):
    """The earlier a stage of the backbone, the slower it learns."""

    def parameter_groups(self, phase: Phase) -> list[dict]:
        found = super().parameter_groups(phase)
        names = {id(value): name for name, value in self.network.parts()["backbone"].named_parameters()}
        if not any(id(found[0]["params"][0]) == key for key in names):
            return found
        stages: dict[str, list[nn.Parameter]] = {}
        for value in found[0]["params"]:
            stages.setdefault(_stage(names[id(value)]), []).append(value)
        last = len(stages) - 1
        slower = [
            {**found[0], "params": values, "lr": found[0]["lr"] * _SLOWER ** (last - number)}
            for number, values in enumerate(stages.values())
        ]
        return [*slower, *found[1:]]


def _stage(name: str) -> str:
    """`trunk.blocks.4` of `trunk.blocks.4.1.conv.weight`; what has no number is a stage of its own."""
    words = name.split(".")
    first = next((place for place, word in enumerate(words) if word.isdigit()), 1)
    return ".".join(words[: first + 1])


class Averaged(Engine):
    """What is judged and pushed is a running mean of the weights."""

    shadow: dict[str, Tensor] | None = None
    inside = False

    def step(self, *args: Any, **kwargs: Any) -> Sums:
        sums = super().step(*args, **kwargs)
        now = {name: value.detach() for name, value in self.network.state_dict().items()}
        if self.shadow is None:
            self.shadow = {name: value.clone() for name, value in now.items()}
        for name, value in now.items():
            if value.is_floating_point():
                self.shadow[name].lerp_(value, 1 - _DECAY)
        return sums

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        if self.shadow is None or self.inside:
            yield
            return
        self.inside, own = True, {name: value.clone() for name, value in self.network.state_dict().items()}
        self.network.load_state_dict(self.shadow)
        yield
        pushed = {name: value for name, value in self.network.state_dict().items() if "prototypes" in name}
        self.shadow |= {name: value.clone() for name, value in pushed.items()}
        self.network.load_state_dict({**own, **pushed})
        self.inside = False

    def validate(self) -> Validation:
        with self._averaged():
            return super().validate()

    def push(self) -> PushDone:
        with self._averaged():
            return super().push()


class FreshStatistics(Engine):
    """BatchNorm learns, and before each judgement its statistics are taken anew from the training images."""

    def validate(self) -> Validation:
        norms = [part for part in self.network.encoder.backbone.modules() if isinstance(part, _BatchNorm)]
        self.network.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum, norm.training = None, True
        with torch.no_grad():
            keys = [(index, 0) for index in range(len(self.train_views))]
            for view in load(self.train_views, chunks(keys, self.settings.batch), workers=0):
                self.network.encoder.backbone(view.inputs)
        for norm in norms:
            norm.momentum, norm.training = 0.1, False
        return super().validate()


class Mixing(Engine):
    """Every image is mixed with another of its batch, and so is the loss: mixup, behind the frozen stages."""

    def backward(self, model: nn.Module, piece: Piece, *, phase: Phase, weight: float) -> Sums:
        other = torch.randperm(len(piece.labels))
        share = float(np.random.default_rng(self.position.steps).beta(_MIXING, _MIXING))
        inputs = share * piece.inputs + (1 - share) * piece.inputs[other]
        sums = Sums()
        for labels, part in ((piece.labels, share), (piece.labels[other], 1 - share)):
            mixed = Piece(inputs, labels, piece.share * part)
            found = super().backward(model, mixed, phase=phase, weight=weight)
            terms = {name: part * value for name, value in found.terms.items()}
            sums += Sums(terms, part * found.right, part * found.images)
        return sums


class DiscriminantAnew(Engine):
    """At each push the shaping nets of the parts are fitted anew, in closed form, to the moved features."""

    def push(self) -> PushDone:
        regions = self.prototyped.encoder.regions
        if self.position.epoch and isinstance(regions, Parts):
            device = self.accelerator.device
            start_parts_as_discriminants(self.prototyped, regions, self.train_views, device=device)
        return super().push()


class Cropping(Augment):
    """Behind the usual warp a random crop of half of the area or more, enlarged."""

    def __call__(self, image: Tensor, *, seed: int, epoch: int, index: int) -> Tensor:
        functional = import_guarded("torchvision.transforms.v2.functional")
        random = np.random.default_rng(np.random.SeedSequence((seed, epoch, index, 1)))
        side = image.shape[-1]
        part = int(side * random.uniform(0.5, 1.0) ** 0.5)
        top, left = (int(random.integers(0, side - part + 1)) for _ in range(2))
        warped = super().__call__(image, seed=seed, epoch=epoch, index=index)
        return functional.resized_crop(warped, top, left, part, part, [side, side], antialias=True)


class CroppingTrainer(trainer.Trainer):
    """Views are cropped too."""

    @property
    def augment(self) -> Augment:
        return Cropping(**vars(super().augment))


@dataclass(frozen=True)
class Change:
    """Settings, and what is no setting."""

    settings: tuple[str, ...] = ()
    engine: type[Engine] = Engine
    make: Callable[..., trainer.Trainer] = trainer.Trainer


CHANGES = {
    "as it is": Change(),
    "BatchNorm learns": Change(("training.batchnorm='learns'",)),
    "BatchNorm learns, statistics taken anew": Change(("training.batchnorm='learns'",), FreshStatistics),
    "random start": Change(("training.shaping_start='random'",)),
    "random start, three epochs before the backbone": Change(
        ("training.shaping_start='random'", "training.warm_epochs=3", "training.epochs=13")
    ),
    "no dropout": Change(("training.shaping_dropout=0.0",)),
    "no label smoothing": Change(("training.label_smoothing=0.0",)),
    "without Eq. (5)": Change(("training.cluster=0.0",)),
    "Eq. (5) twice as strong": Change(("training.cluster=1.6",)),
    "rate of the backbone 3e-4": Change(("training.rate_backbone=3e-4",)),
    "rate of the backbone 3e-5": Change(("training.rate_backbone=3e-5",)),
    "slower from stage to stage": Change((), LayerRates),
    "constant rates": Change(("training.rate_schedule='constant'",)),
    "three epochs before the backbone": Change(("training.warm_epochs=3", "training.epochs=13")),
    "twenty epochs": Change(("training.epochs=20",)),
    "a push every second epoch": Change(("training.push_every=2",)),
    "discriminant fitted anew at each push": Change((), DiscriminantAnew),
    "weights averaged": Change((), Averaged),
    "images mixed": Change((), Mixing),
    "random crops": Change((), Engine, CroppingTrainer),
    "part dropout 0.3": Change(("training.part_dropout=0.3",)),
    "the whole image beside the parts": Change(("network.whole=4.0",)),
    "the whole image, evened, part dropout": Change(
        ("network.whole=4.0", "network.level_power=0.5", "training.part_dropout=0.3")
    ),
    "masks": Change(("recipe=masks",)),
}


def curves(run: trainer.Trainer) -> dict[str, Any]:
    """What happened epoch by epoch and push by push; accuracies in %."""
    found: dict[str, Any] = {"epochs": [], "pushes": [], "after": []}
    for event in run.run():
        if isinstance(event, EpochDone):
            terms = {name: round(value, 4) for name, value in event.terms.items()}
            accuracy = {"train": _percent(event.train_accuracy), "val": _percent(event.val_accuracy)}
            found["epochs"].append({"phase": event.phase, **accuracy, **terms})
        elif isinstance(event, PushDone):
            found["pushes"].append([_percent(event.val_before), _percent(event.val_after)])
        elif isinstance(event, RoundDone):
            found["after"].append(_percent(event.val_accuracy))
    return found


def _percent(share: float) -> float:
    return round(100 * share, 2)


def main() -> None:
    keep_freed_memory()
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--changes", nargs="+", default=list(CHANGES), choices=list(CHANGES))
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--frozen-stages", type=int, default=3)
    parser.add_argument("--cache", type=Path, default=default_cache())
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = json.loads(options.out.read_text(encoding="utf-8")) if options.out.is_file() else []
    splits = RememberedSplits()
    for name in options.changes:
        if any((row["change"], row["fold"]) == (name, options.fold) for row in rows):
            continue
        change = CHANGES[name]
        tables = tables_of(list(change.settings))
        tables["data"] |= {"data": options.data, "folds": 3, "fold": options.fold}
        joint = {"mode": "joint", "frozen_stages": options.frozen_stages, "patience": 1000}
        tables["training"] |= joint
        with tempfile.TemporaryDirectory() as folder, patch.object(trainer, "Engine", change.engine):
            run = change.make(config_from(tables), Path(folder, "run"), cache=options.cache, splits=splits)
            rows.append({"change": name, "fold": options.fold, "settings": change.settings, **curves(run)})
        write_text(options.out, json.dumps(rows, indent=1))
        print(name, rows[-1]["after"], flush=True)


if __name__ == "__main__":
    main()
