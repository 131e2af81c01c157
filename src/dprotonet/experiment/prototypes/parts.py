"""What part of a thing each prototype stands for: its place in the training images of its class.

One pass over the training images finds, for every prototype, the images of its class that look most like it,
and where. Where the data knows parts, the one that most often lies under these places gives the prototype its
suggested name; otherwise prototypes of a class are called A, B, C. A person can call them anything.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from dprotonet.data.base import ImageData, Sample, image_of
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.split_evidence import check_split, split_evidence
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.part_names import PartName, checked_name, letters, write_part_names
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import PartRow, part_sheet
from dprotonet.inference.projection import NOTHING, Sources, SourceSearch
from dprotonet.percent import percent
from dprotonet.progress import Progress

IMAGES = 20  # in which a prototype is looked at
LEAST = 2 / 3  # of them must have the part under the place: so on new images four names in five are right
BACKGROUND = "background"
WHOLE = "whole image"
SHEET = "parts.png"
_BATCH = 32  # images that go through the network together


@dataclass(frozen=True)
class FoundPlace:
    """A training image that looks like a prototype, by its number in the split, and where."""

    index: int
    place: Place


def check_has_places(model: TrainedModel) -> None:
    """An error where prototypes have no place that could be named."""
    model.check_prototypes()
    if model.places is None and not model.parts_follow:
        raise UserError(
            "prototypes of masks have no place: each looks at the whole image, so there is no part to name; "
            "train with --regions points or parts for prototypes that are places"
        )


@torch.no_grad()
def nearest_places(
    model: TrainedModel, train: ImageData, *, images: int = IMAGES, on_progress: Progress | None = None
) -> list[list[FoundPlace]]:
    """For every prototype its nearest images of its own class and the place in each, the nearest first."""
    check_has_places(model)
    check_split(model, train)
    owner = model.prototyped.prototype_class
    search, seen = SourceSearch(model.prototyped.prototypes, images), 0
    for evidence, labels in split_evidence(model, train, on_progress):
        foreign = labels.unsqueeze(1) != owner
        distances = evidence.distances.masked_fill(foreign, torch.inf).T
        numbers = torch.arange(seen, seen + len(labels), device=labels.device)
        search.merge(Sources(distances, numbers.expand(len(owner), -1), evidence.region.T))
        seen += len(labels)
    found = search.sources()
    rows = list(zip(found.index.tolist(), found.region.tolist(), strict=True))
    places = _places_in(model, train, {index for row, _ in rows for index in row if index != NOTHING})
    return [
        [
            FoundPlace(index, places[index][region])
            for index, region in zip(*row, strict=True)
            if index != NOTHING
        ]
        for row in rows
    ]


def _places_in(
    model: TrainedModel, train: ImageData, indices: Collection[int]
) -> Mapping[int, Sequence[Place]]:
    """The places of all regions in these images; only where parts follow the content it takes a look."""
    if model.places is not None:
        return dict.fromkeys(indices, model.places)
    found: dict[int, Sequence[Place]] = {}
    ordered = sorted(indices)
    for some in (ordered[start : start + _BATCH] for start in range(0, len(ordered), _BATCH)):
        _, several = model.looked(model.inputs([image_of(train, index) for index in some]))
        for index, places in zip(some, several, strict=True):
            assert places is not None
            found[index] = places
    return found


def part_under(sample: Sample, place: Place) -> str | None:
    """The part of the sample that covers most of the place; None where none does.

    BACKGROUND where parts are known and nothing of the thing is within the place and its margin; WHOLE where
    the place is all of the image.
    """
    if place.height == place.width == 1:
        return WHOLE
    covered = {name: _covered(mask, place) for name, mask in sample.parts.items()}
    most = max(covered, key=lambda name: covered[name], default=None)
    if most is not None and covered[most]:
        return most
    away = bool(covered) and sample.truth is not None and not _covered(sample.truth, place.shown)
    return BACKGROUND if away else None


def _covered(mask: Tensor, place: Place) -> int:
    """How many pixels of a mask (H, W) lie within the place."""
    left, top, right, bottom = place.box(mask.shape[-2], mask.shape[-1])
    return int(mask[top:bottom, left:right].sum())


def suggested(
    model: TrainedModel, train: ImageData, found: Sequence[Sequence[FoundPlace]], *, least: float = LEAST
) -> dict[int, PartName]:
    """A name for every prototype: the part under its place in at least `least` of its images, else a letter.

    Letters count through a class, named prototypes included, so that a letter never moves. Where regions are
    parts, those of all classes have the same letter, but each its own name: what is the crest of one species
    may be the legs of another.
    """
    names: dict[int, PartName] = {}
    counted: Counter[str] = Counter()
    for record, voted in zip(model.prototypes, _votes(train, found), strict=True):
        images = len(found[record.prototype])
        usual, times = voted.most_common(1)[0] if voted else ("", 0)
        known = times > 0 and times >= least * images
        place = record.region if model.parts_follow else counted[record.class_name]
        letter = PartName(letters(place))
        names[record.prototype] = PartName(usual, times / images) if known else letter
        counted[record.class_name] += 1
    return names


def look_for_parts(
    model: TrainedModel, train: ImageData, *, images: int = IMAGES, on_progress: Progress | None = None
) -> list[list[FoundPlace]]:
    """Where every prototype is found, see `nearest_places`; the names that follow from it are kept."""
    found = nearest_places(model, train, images=images, on_progress=on_progress)
    keep_names(model, suggested(model, train, found))
    return found


def alike(model: TrainedModel, prototype: int) -> list[int]:
    """The prototypes that stand for the same part: of all classes where regions are parts, else itself."""
    if not model.parts_follow:
        return [prototype]
    region = model.prototypes[prototype].region
    return [record.prototype for record in model.prototypes if record.region == region]


def _votes(train: ImageData, found: Sequence[Sequence[FoundPlace]]) -> list[Counter[str]]:
    """How often each part lies under the places of each prototype; every image is opened once."""
    votes: list[Counter[str]] = [Counter() for _ in found]
    asked: dict[int, list[tuple[int, Place]]] = {}
    for number, images in enumerate(found):
        for one in images:
            asked.setdefault(one.index, []).append((number, one.place))
    for index in sorted(asked):
        sample = train[index]
        for number, place in asked[index]:
            if (part := part_under(sample, place)) is not None:
                votes[number][part] += 1
    return votes


def keep_names(model: TrainedModel, names: Mapping[int, PartName]) -> None:
    """The names as the model's own, and in its run folder; those that a person gave stay."""
    given = {number: name for number, name in model.part_names.items() if name.given}
    model.part_names = {**names, **given}
    if model.folder is not None:
        write_part_names(model.folder, model.part_names, model.prototypes)


def name_parts(model: TrainedModel, names: Mapping[int, str]) -> None:
    """Names that a person gives, kept in the run folder; where regions are parts, one for the whole part."""
    check_has_places(model)
    for number in names:
        if not 0 <= number < len(model.prototypes):
            raise UserError(f"there is no prototype {number}; the run has 0 to {len(model.prototypes) - 1}")
    given = {
        one: PartName(checked_name(name, number), given=True)
        for number, name in names.items()
        for one in alike(model, number)
    }
    model.part_names.update(given)  # in place: a model served has a twin that says the same
    if model.folder is not None:
        write_part_names(model.folder, model.part_names, model.prototypes)


def parts_picture(
    model: TrainedModel, train: ImageData, found: Sequence[Sequence[FoundPlace]], *, class_name: str
) -> Image.Image:
    """The prototypes of a class, each with its place in the training images that look most like it."""
    mine = [record for record in model.prototypes if record.class_name == class_name]
    rows = [_row(model, train, record.prototype, found[record.prototype]) for record in mine]
    note = (
        "one row per prototype, the training images of the class that look most like it, the likest first: "
        "above the place with a margin around it, below where that is"
    )
    return part_sheet(rows, title=f"Parts of {class_name}", note=note)


def _row(model: TrainedModel, train: ImageData, number: int, found: Sequence[FoundPlace]) -> PartRow:
    images = [image_of(train, one.index) for one in found]
    name = model.part_names.get(number)
    boxes = [
        one.place.shown.box(image.shape[-2], image.shape[-1])
        for one, image in zip(found, images, strict=True)
    ]
    return PartRow(f"prototype #{number}", "" if name is None else name.words, _note(name), images, boxes)


def _note(name: PartName | None) -> str:
    if name is None or name.lettered:
        return ""
    return "named by a person" if name.share is None else f"under it in {percent(name.share, 0)}"
