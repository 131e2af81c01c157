"""A run without some of its prototypes, in a folder of its own that says what was dropped and why.

    cleaned.json     in the new run folder: which prototypes of which run, reasons, accuracy before and after

Prototypes are chosen by a person or a rule, the last layer learns on training images, and what it did is told
on the splits asked for: training and validation. Test data has no say.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.what_if import WhatIf, cleaned, kept_mask, last_layer, without
from dprotonet.experiment.runs.calibration import Calibration, adjusted
from dprotonet.experiment.runs.familiarity import Familiarity
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import whole_folder, write_text
from dprotonet.progress import NamedProgress, Progress
from dprotonet.training.checkpoint import tensor_digest
from dprotonet.training.score_rows import ScoreRows
from dprotonet.version import __version__

FILE = "cleaned.json"


@dataclass(frozen=True)
class BeforeAfter:
    """Accuracy on a split of the model as it was, and without the prototypes."""

    before: float
    after: float


@dataclass(frozen=True)
class Cleaning:
    """The cleaned model, and what was done: `reasons` by the numbers the prototypes had before."""

    original: TrainedModel
    model: TrainedModel
    reasons: Mapping[int, str]
    epochs: int  # in which the last layer learned again
    accuracy: Mapping[str, BeforeAfter]

    @property
    def dropped(self) -> tuple[int, ...]:
        return tuple(sorted(self.reasons))

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(kept_mask(self.original, self.dropped).nonzero().flatten().tolist())

    def to_json(self) -> dict[str, Any]:
        """Where the run came from, and what it lacks."""
        old = self.original
        return {
            "version": __version__,
            "run": None if old.folder is None else str(old.folder),
            "weights": tensor_digest(old.network.state_dict()),
            "prototypes_before": len(old.prototypes),
            "dropped": [_dropped(old, number, self.reasons[number]) for number in self.dropped],
            "kept": list(self.kept),
            "last_layer_epochs": self.epochs,
            "accuracy": {name: vars(item) for name, item in self.accuracy.items()},
        }

    def save(self, out: str | PathLike[str]) -> None:
        """Write the run folder, pictures of the prototypes included; it must be new or empty."""
        folder = Path(out).expanduser()
        check_new(folder)
        with whole_folder(folder) as unfinished:
            self.model.save(unfinished)
            write_text(unfinished / FILE, json.dumps(self.to_json(), indent=1, ensure_ascii=False))
        self.model.folder = folder


def clean(
    model: TrainedModel,
    reasons: Mapping[int, str],
    splits: Mapping[str, ImageData | WhatIf],
    *,
    epochs: int | None = None,
    on_progress: NamedProgress | None = None,
    on_epoch: Progress | None = None,
) -> Cleaning:
    """Drop the prototypes that `reasons` names and let the last layer learn on `splits["train"]`.

    Accuracy is told on every split given. `epochs` are the run's own unless told; 0 leaves the weights, as
    dropping nothing does. A WhatIf in place of a split spares the pass over its images. `on_progress` hears
    of the passes, `on_epoch` of (epochs done, epochs in all).
    """
    model.check_single()
    without(model, reasons)  # what cannot be dropped is refused here, before the passes over the images
    if "train" not in splits:
        raise ValueError("the last layer learns on the training split: give splits['train']")
    asked = {name: _asked(model, name, split, on_progress) for name, split in splits.items()}
    epochs = last_layer(model, epochs).epochs if reasons else 0
    made = cleaned(model, reasons, asked["train"], epochs=epochs, on_epoch=on_epoch)
    made.familiarity = _familiarity(made, asked.get("val"), reasons)
    made.calibration = _calibration(made, asked.get("val"), reasons)
    accuracy = {
        name: BeforeAfter(item.accuracy(), item.right(made.network.head, _left(item, reasons)))
        for name, item in asked.items()
    }
    return Cleaning(model, made, dict(reasons), epochs, accuracy)


def check_new(out: Path) -> None:
    """Nothing is ever overwritten."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; name a folder")
    if out.is_dir() and any(out.iterdir()):
        raise UserError(f"--out {out} is not empty; name another folder")


def _asked(
    model: TrainedModel, name: str, split: ImageData | WhatIf, on_progress: NamedProgress | None
) -> WhatIf:
    if isinstance(split, WhatIf):
        return split
    heard = None if on_progress is None else (lambda done, total: on_progress(name, done, total))
    return WhatIf(model, split, on_progress=heard)


def _familiarity(made: TrainedModel, known: WhatIf | None, off: Mapping[int, str]) -> Familiarity | None:
    """With fewer prototypes all images are a little stranger, so the limit is measured anew."""
    if known is None or known.model.familiarity is None:
        return made.familiarity
    distances = known.distances[:, kept_mask(known.model, off)]
    before, levels = known.model.familiarity, known.model.level_distances(known.data)
    return before.remeasured(distances.cpu(), made.prototyped, share=before.share, levels=levels)


def _calibration(made: TrainedModel, known: WhatIf | None, off: Mapping[int, str]) -> Calibration | None:
    """Other prototypes and another last layer have other logits, so the temperature changes."""
    if known is None or known.model.calibration is None or not len(known.labels):
        return None
    before, after = _logits(known.model, known.scores), _logits(made, _left(known, off))
    return adjusted(known.model.calibration, before, after, known.labels, made.network)


def _left(asked: WhatIf, off: Mapping[int, str]) -> ScoreRows:
    """The scores of the prototypes that are left: those of the cleaned model are the same."""
    return asked.scores.seen_by(kept_mask(asked.model, off))


@torch.no_grad()
def _logits(model: TrainedModel, scores: ScoreRows) -> Tensor:
    head = model.prototyped.head
    return torch.cat([head(some.to(head.weight)).cpu() for _, some in scores.blocks()])


def _dropped(model: TrainedModel, number: int, reason: str) -> dict[str, Any]:
    record = model.prototypes[number]
    return {
        "prototype": number,
        "class_name": record.class_name,
        "source": record.source,
        "reason": reason,
    }
