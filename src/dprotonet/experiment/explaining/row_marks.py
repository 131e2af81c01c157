"""What a row of an explanation is worth: does it stay under noise, and do its two places look alike?

Both are asked of where the network itself finds a prototype: its places, or the hottest place of its own maps
where it has none. That takes a forward pass for each noisy copy and each source, and no decoder; where
regions are parts, the decoder's maps are hottest at the same place (docs/clinical.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from dprotonet.data.base import ImageData, image_of
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explainers import own_maps
from dprotonet.experiment.explaining.pictures import source_image
from dprotonet.experiment.runs.place import Place, place_of
from dprotonet.experiment.runs.row_places import SHARE, PlaceLimit, limit_of
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.metrics.row_places import kept_share, place_rank
from dprotonet.progress import Progress

NOISE = 0.1  # standard deviation, as the network sees images; cut at 1.25 of it, as in `quality`
COPIES = 8
HALF = 0.5  # so often a place must stay to be "moving" and not "unsteady"
WORDS = ("steady", "moves", "unsteady")
_CUT = 1.25
_GRID = 14  # places across, where a map has no cells of its own


@dataclass(frozen=True)
class RowMark:
    """`kept` is the share of noisy copies in which the row's place stays; `rank` is of `place_rank`.

    `limit` is what few rows of known images exceed; None where nobody measured it.
    """

    kept: float
    rank: float
    limit: float | None = None

    @property
    def word(self) -> str:
        """The one mark that people see."""
        return WORDS[0 if self.kept == 1 else 1 if self.kept >= HALF else 2]

    @property
    def symbol(self) -> str:
        return ("●●●", "●●○", "●○○")[WORDS.index(self.word)]

    @property
    def said(self) -> str:
        """Symbol and word, for pictures and pages."""
        return f"{self.symbol} {self.word}"

    @property
    def differ(self) -> bool | None:
        """Whether the two places do not look alike; None where that cannot be said."""
        return None if self.limit is None else self.rank > self.limit

    @property
    def warning(self) -> str:
        """What to tell people; nothing where the places agree or nobody knows."""
        return "the two places do not look alike" if self.differ else ""

    def told(self) -> dict[str, object]:
        """For JSON."""
        return {
            "reliability": self.kept,
            "reliability_word": self.word,
            "place_rank": self.rank,
            "place_limit": self.limit,
            "places_differ": self.differ,
        }


def row_marks(
    model: TrainedModel, images: Sequence[Tensor], chosen: Sequence[Sequence[EvidenceItem]]
) -> list[list[RowMark]]:
    """For each image (3, H, W) uint8 the marks of the rows chosen for it."""
    limit, sources = _stored_limit(model), _Sources(model)
    return [
        [] if not items else _marks(model, image, [item.prototype for item in items], sources, limit)
        for image, items in zip(images, chosen, strict=True)
    ]


def measured_limit(
    model: TrainedModel,
    known: ImageData,
    *,
    top: int = 3,
    share: float = SHARE,
    on_progress: Progress | None = None,
) -> PlaceLimit:
    """The limit from the rows of rightly answered images, such as those of the validation split."""
    ranks, images, sources = list[float](), 0, _Sources(model)
    for index, label in enumerate(known.labels):
        image = image_of(known, index)
        (answer,) = model.answers([image])
        if answer.label() == label:
            numbers = [item.prototype for item in answer.evidence(label)[:top]]
            inputs = model.inputs([image])
            ranks += _ranks(model, inputs, numbers, sources, _points(model, inputs, numbers)[0])
            images += 1
        if on_progress is not None:
            on_progress(index + 1, len(known))
    if not ranks:
        raise UserError("no image gets the right answer, so there is nothing to measure")
    return limit_of(torch.tensor(ranks), images=images, network=model.network, share=share)


@dataclass
class _Looked:
    """Features (D, h, w) of an image, and where prototypes are found in it: points (M, 2), x and y."""

    features: Tensor
    points: Tensor


class _Sources:
    """What the source images of prototypes look like, each looked at once."""

    def __init__(self, model: TrainedModel) -> None:
        self.model = model
        self.seen: dict[int, _Looked] = {}

    def __getitem__(self, prototype: int) -> _Looked:
        if prototype not in self.seen:
            inputs = self.model.inputs([source_image(self.model, prototype)])
            points = _points(self.model, inputs, [prototype])[0]
            self.seen[prototype] = _Looked(_features(self.model, inputs)[0], points)
        return self.seen[prototype]


def _stored_limit(model: TrainedModel) -> float | None:
    found = None if model.folder is None else PlaceLimit.read(model.folder, model.network)
    return None if found is None else found.limit


def _marks(
    model: TrainedModel, image: Tensor, numbers: Sequence[int], sources: _Sources, limit: float | None
) -> list[RowMark]:
    inputs = model.inputs([image])
    points = _points(model, inputs, numbers)[0]
    kept = kept_share(points, _points(model, _noisy(inputs), numbers))
    ranks = _ranks(model, inputs, numbers, sources, points)
    return [RowMark(share, rank, limit) for share, rank in zip(kept.tolist(), ranks, strict=True)]


def _ranks(
    model: TrainedModel, inputs: Tensor, numbers: Sequence[int], sources: _Sources, points: Tensor
) -> list[float]:
    """`points` (M, 2) are where the prototypes are found in the image."""
    features = _features(model, inputs)[0]
    return [
        place_rank(features, sources[number].features, torch.stack([point, sources[number].points[0]]))
        for number, point in zip(numbers, points, strict=True)
    ]


def _noisy(inputs: Tensor) -> Tensor:
    """Copies of an image (1, C, H, W) with noise, the same whenever and wherever they are made."""
    generator = torch.Generator().manual_seed(0)
    drawn = NOISE * torch.randn((COPIES, *inputs.shape[1:]), generator=generator)
    return inputs + drawn.clamp(-_CUT * NOISE, _CUT * NOISE).to(inputs)


@torch.no_grad()
def _features(model: TrainedModel, inputs: Tensor) -> Tensor:
    """Local features (B, D, h, w), before parts or masks are made of them."""
    features: Tensor = model.network.encoder.backbone(inputs)
    return features.float().cpu()


@torch.no_grad()
def _points(model: TrainedModel, inputs: Tensor, numbers: Sequence[int]) -> Tensor:
    """Where the network finds prototypes in each image, x and y as shares of the sides: (B, M, 2)."""
    evidence, places = model.looked(inputs)
    if places[0] is None:
        return _hottest(model, inputs, numbers)
    rows = [
        [_middle(place_of(int(region[number]), some)) for number in numbers]
        for region, some in zip(evidence.region, places, strict=True)
    ]
    return torch.tensor(rows, dtype=torch.double)


def _middle(place: Place | None) -> tuple[float, float]:
    assert place is not None  # a region of a network whose regions are places
    return place.left + place.width / 2, place.top + place.height / 2


def _hottest(model: TrainedModel, inputs: Tensor, numbers: Sequence[int]) -> Tensor:
    """The same by the network's own maps, where its regions are no places."""
    maps = own_maps(model.prototyped)
    heat = torch.stack([maps.of_prototypes(image.unsqueeze(0), numbers).cpu() for image in inputs])
    most = adaptive_avg_pool2d(heat, _GRID).flatten(2).argmax(dim=2).double()
    return torch.stack([most % _GRID + 0.5, (most / _GRID).floor() + 0.5], dim=2) / _GRID
