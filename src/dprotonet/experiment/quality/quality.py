"""How good are a run's prototypes? What their rows show, how steady they are, whether they mean one thing.

For some images of each class, two sets of prototypes are looked for: the rows that `explain` would show for
the predicted class (overlap, parts, misalignment), and the strongest prototypes of the image's own class, in
the image and once more with noise (consistency, stability, steadiness). Everything is measured on maps of the
decoder or on the network's own, and on controls. Without parts, what needs them is left out.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, image_of
from dprotonet.errors import UserError
from dprotonet.experiment.prototypes.split_evidence import split_evidence
from dprotonet.experiment.quality.prototype_quality import (
    PrototypePair,
    PrototypeQuality,
    prototype_pairs,
    prototype_qualities,
)
from dprotonet.experiment.quality.row_maps import CONTROLS, ControlMaps, RowMaps, row_maps
from dprotonet.experiment.quality.row_quality import (
    MEASURES,
    Keypoints,
    PeakPoints,
    Scene,
    Table,
    consistency_rows,
    judged,
    mean_rows,
    part_points,
    purity_row,
)
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.mdm import Preset
from dprotonet.metrics.keypoints import peaks
from dprotonet.progress import Progress
from dprotonet.training.processes import Group

STAGES = ("noise", "far", "purity")
"""What can be left out, for each costs maps of its own."""
_CUT = 1.25  # standard deviations of the noise at which Huang et al. cut it


@dataclass(frozen=True)
class Quality:
    """Every prototype that was looked for, and the table of measures, by whose maps: the run's, controls."""

    maps: str
    images: int
    prototypes: Sequence[PrototypeQuality]
    measures: Table
    visible: float | None  # parts to be seen in an image, on average


class _Looked(NamedTuple):
    """What was found in an image, by whose maps; pairs only by the run's."""

    values: dict[str, dict[str, float]]
    points: dict[str, Tensor]
    pairs: list[PrototypePair]


@dataclass
class _Seen:
    """What was found so far, image by image, by whose maps."""

    values: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    points: dict[str, list[Tensor]] = field(default_factory=dict)
    keypoints: list[Keypoints] = field(default_factory=list)
    own: list[Sequence[int]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    pairs: list[PrototypePair] = field(default_factory=list)

    def add(self, looked: _Looked) -> None:
        for name, values in looked.values.items():
            self.values.setdefault(name, []).append(values)
            self.points.setdefault(name, []).append(looked.points[name])
        self.pairs += looked.pairs

    def found(self, name: str) -> PeakPoints:
        """Own prototypes of all images by the maps of that name."""
        image = [number for number, own in enumerate(self.own) for _ in own]
        prototype = [number for own in self.own for number in own]
        return PeakPoints(torch.cat(self.points[name]), torch.tensor(prototype), torch.tensor(image))


@dataclass(frozen=True)
class QualityCheck:
    """What to look at: `images` of every class, `top` rows of each and prototypes of a class, and how."""

    model: TrainedModel
    data: ImageData
    images: int = 3
    top: int = 5
    maps: str = "decoder"
    noise: float = 0.2  # standard deviation, in the network's normalised space (Huang et al., 2023)
    patches: int = 10  # images of a prototype that its purity is read from (Nauta et al., 2023)
    skip: Sequence[str] = ()  # of STAGES
    tolerance: float = 1e-3  # distance of twins, as a share of the mean length of prototypes
    preset: str | Preset = "fast"
    seed: int = 0

    def run(self, on_progress: Progress | None = None, group: Group | None = None) -> Quality:
        """Look at every image by the run's maps and by the controls.

        Of several processes each makes the run's maps of its images. Controls, which cost next to nothing and
        are drawn by lot one after the other, are made by all.
        """
        group = group or Group()
        having = set(self.model.prototyped.prototype_class.tolist())
        chosen = {label: self._of_class(label) for label in sorted(having)}
        numbers = [number for own in chosen.values() for number in own]
        if not numbers:
            raise UserError("the split has no image to look at prototypes in")
        strongest = {label: self._strongest(label, own) for label, own in chosen.items() if own}
        own = row_maps(self.maps, self.model.prototyped, self.preset)
        controls: dict[str, RowMaps] = {name: ControlMaps(name, self.seed) for name in CONTROLS}
        seen, pure = _Seen(), self._pure_images(strongest, group)
        total = len(numbers) + len(pure)
        mine: list[_Looked] = []
        others: list[_Looked] = []
        for done, scene in enumerate(self._scenes(numbers, strongest)):
            if done % group.processes == group.process:
                mine.append(self._looked(scene, {self.maps: own}))
            others.append(self._looked(scene, controls))
            seen.keypoints.append(part_points(scene.sample))
            seen.own.append(scene.own)
            seen.labels.append(scene.sample.label)
            if on_progress is not None:
                on_progress(done + 1, total)
        for looked in (*group.together(mine), *others):
            seen.add(looked)
        table = self._table(seen)
        table |= self._purity(
            pure, own, controls, group, lambda done: on_progress and on_progress(len(numbers) + done, total)
        )
        visible = [len(points) for points in seen.keypoints]
        prototypes = prototype_qualities(self.model, seen.pairs, tolerance=self.tolerance)
        mean = sum(visible) / len(visible) if any(visible) else None
        return Quality(self.maps, len(numbers), prototypes, table, mean)

    # ── images ──

    def _of_class(self, label: int) -> list[int]:
        own = [index for index, known in enumerate(self.data.labels) if known == label]
        return own[: self.images]

    @torch.no_grad()
    def _strongest(self, label: int, images: Sequence[int]) -> list[int]:
        """The prototypes of a class that say most for it in these images."""
        network = self.model.prototyped
        evidence = network.evidence(self.model.inputs([image_of(self.data, index) for index in images]))
        labels = torch.full((len(images),), label, device=evidence.scores.device)
        said = network.contributions(evidence, labels).mean(dim=0).cpu()
        mine = (network.prototype_class.cpu() == label).nonzero().flatten()
        strongest: list[int] = mine[said[mine].argsort(descending=True)[: self.top]].tolist()
        return strongest

    def _scenes(self, numbers: Sequence[int], strongest: dict[int, list[int]]) -> Iterator[Scene]:
        generator = torch.Generator().manual_seed(self.seed)
        for place, number in enumerate(numbers):
            sample = self.data[number]
            image = self.model.inputs([sample.image])
            drawn = (self.noise * torch.randn(image.shape, generator=generator)).to(image)
            limit = _CUT * self.noise
            noisy = None if "noise" in self.skip else image + drawn.clamp(-limit, limit)
            other = None if "far" in self.skip else self._other(numbers, place)
            yield Scene(sample, image, noisy, other, self._rows(image), strongest[sample.label])

    def _rows(self, image: Tensor) -> list[int]:
        """The prototypes that `explain` shows: those that decide most for the predicted class."""
        (answer,) = self.model.answers_to(image)
        return [item.prototype for item in answer.evidence(answer.label())[: self.top]]

    def _other(self, numbers: Sequence[int], place: int) -> Tensor:
        """The next image of another class, or the next one at all."""
        later = [*numbers[place + 1 :], *numbers[: place + 1]]
        label = self.data.labels[numbers[place]]
        number = next((other for other in later if self.data.labels[other] != label), later[0])
        return self.model.inputs([image_of(self.data, number)])

    # ── maps ──

    def _looked(self, scene: Scene, kinds: dict[str, RowMaps]) -> _Looked:
        looked = _Looked({}, {}, [])
        for name, maps in kinds.items():
            scores = self._scores if name == self.maps else None
            found = judged(scene, maps, scores=scores)
            looked.values[name] = found.values
            looked.points[name] = peaks(found.own)
            if scores is not None:
                looked.pairs.extend(prototype_pairs(scene, found))
        return looked

    @torch.no_grad()
    def _scores(self, images: Tensor) -> Tensor:
        return self.model.prototyped.evidence(images).scores

    def _table(self, seen: _Seen) -> Table:
        table = mean_rows(seen.values)
        if any(seen.keypoints):
            found = {name: seen.found(name) for name in seen.points}
            table |= consistency_rows(found, seen.keypoints, seen.labels, self._size)
        return table

    @property
    def _size(self) -> tuple[int, int]:
        return (self.model.config.data.image_size,) * 2

    def _pure_images(self, strongest: dict[int, list[int]], group: Group) -> dict[int, list[int]]:
        """Of every prototype looked for, its strongest images of the whole split: prototypes by image."""
        if "purity" in self.skip or not part_points(self.data[0]):
            return {}
        looked = split_evidence(self.model, self.data, share=group)
        scores = torch.cat(group.together([found.evidence.scores.cpu() for found in looked]))
        images: dict[int, list[int]] = {}
        for prototype in dict.fromkeys(number for own in strongest.values() for number in own):
            for image in scores[:, prototype].argsort(descending=True, stable=True)[: self.patches].tolist():
                images.setdefault(image, []).append(prototype)
        return images

    def _purity(
        self,
        images: dict[int, list[int]],
        own: RowMaps,
        controls: dict[str, RowMaps],
        group: Group,
        advance: Callable[[int], object],
    ) -> Table:
        keypoints: list[Keypoints] = []
        mine: list[Tensor] = []
        points: dict[str, list[Tensor]] = {name: [] for name in (self.maps, *controls)}
        for row, (image, numbers) in enumerate(images.items()):
            sample = self.data[image]
            inputs = self.model.inputs([sample.image])
            if row % group.processes == group.process:
                mine.append(peaks(own(inputs, numbers, sample)))
            for name, maps in controls.items():
                points[name].append(peaks(maps(inputs, numbers, sample)))
            keypoints.append(part_points(sample))
            advance(len(keypoints))
        points[self.maps] = group.together(mine)
        if not any(keypoints):
            return {}
        prototype = torch.tensor([number for numbers in images.values() for number in numbers])
        place = torch.tensor([row for row, numbers in enumerate(images.values()) for _ in numbers])
        found = {name: PeakPoints(torch.cat(some), prototype, place) for name, some in points.items()}
        return purity_row(found, keypoints, self._size)


def quality_summary(found: Quality) -> dict[str, Any]:
    """Means over prototypes, the table of measures, and every single prototype, fit for JSON."""
    columns = ("size", "steadiness", "stability", "consistency")
    values = {name: [getattr(item, name) for item in found.prototypes] for name in columns}
    known = {name: [value for value in column if value is not None] for name, column in values.items()}
    means = {name: sum(column) / len(column) if column else None for name, column in known.items()}
    measures = {
        measure: {name: _plain(interval._asdict()) for name, interval in found.measures[measure].items()}
        for measure in MEASURES
        if measure in found.measures
    }
    return {
        "maps": found.maps,
        "images": found.images,
        "visible parts": found.visible,
        "measures": measures,
        **means,
        "consistent prototypes": _share([value >= 0.8 for value in known["consistency"]]),
        "prototypes with a twin": sum(bool(item.twins) for item in found.prototypes),
        "prototypes": json.loads(json.dumps([asdict(item) for item in found.prototypes])),
    }


def _share(flags: Sequence[bool]) -> float | None:
    return sum(flags) / len(flags) if flags else None


def _plain(values: dict[str, float]) -> dict[str, float | None]:
    """NaN is nothing that JSON knows."""
    return {name: None if value != value else value for name, value in values.items()}
