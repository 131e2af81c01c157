"""What is known of each prototype on the training images: how pure, how often it decides, what is near it.

    prototype_facts.json     in the run folder, with digests of the weights and of the data

One pass over the images, a batch at a time. The file is only a memory: made anew when the weights or the data
are others or it is damaged, and a folder that cannot be written to costs the time of another pass.
"""

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.errors import ComputationError
from dprotonet.experiment.prototypes.split_evidence import (
    LabelledEvidence,
    check_split,
    split_evidence,
    splits_of_run,
)
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.files import read_json, write_text
from dprotonet.inference.prune import NearestImages
from dprotonet.metrics.prototypes import twins
from dprotonet.network import DProtoNet, Evidence
from dprotonet.progress import Progress
from dprotonet.training.checkpoint import tensor_digest

logger = logging.getLogger(__name__)

OnBatch = Callable[[LabelledEvidence], None]

FORMAT = 2
FILE = "prototype_facts.json"


@dataclass(frozen=True)
class NearImage:
    """A training image near a prototype: its number and name in the split, and how much it looks like it."""

    index: int
    name: str
    label: int
    distance: float
    similarity: float


@dataclass(frozen=True)
class PrototypeFacts:
    """One prototype, judged on the training images."""

    prototype: int
    class_name: str
    label: int
    weight: float  # to its own class
    purity: float  # share of the `among` nearest training images that are of its class
    among: int  # as many as its class has, at most all of `nearest`: more could not be of its class
    fires: int  # training images in which it says most for the predicted class
    nearest: tuple[NearImage, ...]  # nearest first
    duplicates: tuple[int, ...]  # other prototypes of its class that coincide with it

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers and strings."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "PrototypeFacts":
        """The facts that `to_json` gave; ValueError, KeyError or TypeError for anything else."""
        near = tuple(NearImage(**_checked(NearImage, item)) for item in content["nearest"])
        duplicates = tuple(content["duplicates"])
        if not near or any(type(number) is not int for number in duplicates):
            raise ValueError("a prototype without nearest images, or with nameless duplicates")
        return cls(**{**_checked(cls, content), "nearest": near, "duplicates": duplicates})


def _checked(kind: type, content: dict[str, Any]) -> dict[str, Any]:
    """The content, if it has just the fields of `kind` and their numbers and strings are such."""
    known = {item.name: item.type for item in fields(kind)}
    if content.keys() != known.keys():
        raise ValueError(f"{kind.__name__} has the fields {', '.join(known)}")
    for name, wanted in known.items():
        value = content[name]
        odd = wanted in (int, float, str) and type(value) is not wanted
        if odd or (wanted is float and not math.isfinite(value)):
            raise TypeError(f"{name} is {value!r}")
    return content


def prototype_facts(
    model: TrainedModel,
    train: ImageData,
    *,
    nearest: int = 10,
    on_progress: Progress | None = None,
    on_batch: OnBatch | None = None,
) -> tuple[PrototypeFacts, ...]:
    """Facts of every prototype, in order, in one pass over the training images.

    `on_progress` hears of (images done, images in all), `on_batch` gets what was seen. With fewer images than
    `nearest` all of them are named; purity looks at no more of them than the prototype's class has images.
    """
    check_split(model, train)
    network = model.prototyped
    owner = network.prototype_class
    found = NearestImages(len(owner), nearest=min(nearest, len(train)), device=owner.device)
    fires = torch.zeros(len(owner), dtype=torch.long, device=owner.device)
    for batch in split_evidence(model, train, on_progress):
        found.update(batch.evidence.distances, batch.labels)
        fires += fired(network, batch.evidence)
        if on_batch is not None:
            on_batch(batch)
    if not found.distances.isfinite().all():
        raise ComputationError("distances to prototypes are not finite; the run's weights are damaged")
    return _facts(model, train, found, fires)


@torch.no_grad()
def fired(network: DProtoNet, evidence: Evidence) -> Tensor:
    """In how many images each prototype (P,) says most, and more than 0, for the predicted class."""
    said = network.contributions(evidence, evidence.logits.argmax(dim=1))
    most, which = said.max(dim=1)
    return torch.bincount(which[most > 0], minlength=said.shape[1])


def _facts(
    model: TrainedModel, train: ImageData, found: NearestImages, fires: Tensor
) -> tuple[PrototypeFacts, ...]:
    network = model.prototyped
    owner = network.prototype_class
    sizes = torch.bincount(torch.tensor(train.labels), minlength=len(model.classes))
    among = sizes.clamp(min=1, max=found.labels.shape[1]).to(owner.device)[owner]
    purity = found.of_own_class(owner, among).double() / among
    weight = network.head.weight.detach()[owner, torch.arange(len(owner), device=owner.device)]
    same = twins(network.prototypes.vectors.cpu(), owner.cpu())
    near = _near_images(network, train, found)
    judged = zip(weight.tolist(), purity.tolist(), among.tolist(), fires.tolist(), near, strict=True)
    return tuple(
        PrototypeFacts(number, model.classes[label], label, *facts, duplicates=same.get(number, ()))
        for number, (label, facts) in enumerate(zip(owner.tolist(), judged, strict=True))
    )


def _near_images(network: DProtoNet, train: ImageData, found: NearestImages) -> list[tuple[NearImage, ...]]:
    similarity = network.prototypes.similarity.scores(found.distances)
    columns = (tensor.tolist() for tensor in (found.index, found.labels, found.distances, similarity))
    return [
        tuple(NearImage(index, train.name(index), *facts) for index, *facts in zip(*rows, strict=True))
        for rows in zip(*columns, strict=True)
    ]


# ── keeping ──


def stored_facts(
    model: TrainedModel,
    train: ImageData | None = None,
    *,
    nearest: int = 10,
    on_scan: Progress | None = None,
    on_progress: Progress | None = None,
    on_batch: OnBatch | None = None,
) -> tuple[PrototypeFacts, ...]:
    """The facts in the run folder, made first (and kept there) if it has none of these weights.

    With `train` its fingerprint has to be that of the data they were made on. Without it facts of the same
    weights are believed, so that they outlive the data; only for making them the run's own data is opened.
    """
    model.check_single()
    model.check_prototypes()
    key = {"weights": tensor_digest(model.network.state_dict()), "nearest": nearest}
    if train is not None:
        check_split(model, train)
        key["data"] = train.fingerprint
    kept = _read(model, key)
    if kept is not None:
        return kept
    train = splits_of_run(model, on_scan).train if train is None else train
    made = prototype_facts(model, train, nearest=nearest, on_progress=on_progress, on_batch=on_batch)
    _keep(model, {**key, "data": train.fingerprint}, made)
    return made


def kept_facts(model: TrainedModel, *, nearest: int = 10) -> tuple[PrototypeFacts, ...] | None:
    """The facts in the run folder, of whatever data; None where it has none of these weights."""
    model.check_prototypes()
    return _read(model, {"weights": tensor_digest(model.network.state_dict()), "nearest": nearest})


def _read(model: TrainedModel, key: dict[str, Any]) -> tuple[PrototypeFacts, ...] | None:
    """Kept facts of this key; None where there are none, they are of another, or the file is damaged."""
    path = None if model.folder is None else model.folder / FILE
    if path is None or not path.is_file():
        return None
    try:
        content = read_json(path)
        if content["format"] != FORMAT or any(content[name] != value for name, value in key.items()):
            logger.info("%s is of other weights, data or version and is made anew", path)
            return None
        return _of_model(model, [PrototypeFacts.from_json(item) for item in content["prototypes"]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        logger.warning("%s is damaged (%s) and is made anew", path, error)
        return None


def _of_model(model: TrainedModel, facts: Sequence[PrototypeFacts]) -> tuple[PrototypeFacts, ...]:
    """The facts, if they are those of the model's prototypes, one by one."""
    said = [(item.prototype, item.class_name) for item in facts]
    if said != [(record.prototype, record.class_name) for record in model.prototypes]:
        raise ValueError("it has other prototypes than the run")
    return tuple(facts)


def _keep(model: TrainedModel, key: dict[str, Any], facts: Sequence[PrototypeFacts]) -> None:
    if model.folder is None:
        return
    content = {"format": FORMAT, **key, "prototypes": [item.to_json() for item in facts]}
    try:
        write_text(model.folder / FILE, json.dumps(content, indent=1, ensure_ascii=False))
    except OSError as error:
        reason = error.strerror or error
        logger.warning(
            "%s cannot be written (%s): facts will be made again the next time", model.folder / FILE, reason
        )
