"""The loop of a comparison: every method on every image, measured, kept, and told as it goes.

Images are the outer loop, so that a run that is stopped has compared something. A method that fails on an
image, or an image that cannot be read, is reported and the rest goes on; asked again, it tries again.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData, Sample
from dprotonet.errors import UserError
from dprotonet.experiment.compare.judging import Judges, Question
from dprotonet.experiment.compare.method import Case, Method, MethodMaps
from dprotonet.experiment.compare.store import Record, Store
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.outputs import Outputs
from dprotonet.interpretation.task import SINGLE
from dprotonet.metrics.faithfulness import Score
from dprotonet.metrics.measures import PREDICTED, Explained, Protocol, Truth, measured
from dprotonet.training.checkpoint import weights_digest
from dprotonet.training.processes import Group
from dprotonet.version import __version__


class Failure(NamedTuple):
    """A method that could not explain an image."""

    method: str
    image: str
    reason: str


class ComparisonStep(NamedTuple):
    """So many of the pairs of image and method are done; `failure` tells of the last one."""

    done: int
    total: int
    what: str
    failure: Failure | None = None


@dataclass(frozen=True)
class Results:
    """Everything that was measured: records[method][image index]."""

    records: Mapping[str, Mapping[int, Record]]
    failures: tuple[Failure, ...]
    samples: Mapping[int, str]
    without_truth: int


@dataclass(frozen=True)
class Comparison:
    """Methods side by side on the images of one split."""

    classifier: Classifier
    data: ImageData
    methods: Sequence[Method]
    folder: Path
    protocol: Protocol = field(default_factory=Protocol)
    limit: int | None = None
    chosen: tuple[int, ...] = ()

    @property
    def indices(self) -> list[int]:
        """Those chosen, or else at most `limit` images, drawn; a larger limit has those of a smaller one."""
        if self.chosen:
            return sorted(self.chosen)
        drawn = torch.randperm(len(self.data), generator=torch.Generator().manual_seed(0))
        return sorted(drawn[: self.limit].tolist())

    @cached_property
    def _judges(self) -> Judges:
        return Judges(self.classifier, self.data, self.protocol, self.indices)

    def plan(self) -> dict[str, Any]:
        """What makes the numbers, but for the methods and the choice of images."""
        return {
            "network": self.classifier.name,
            "weights": weights_digest(self.classifier.module),
            "images": self.data.fingerprint,
            "size": self.classifier.size,
            "protocol": self.protocol.facts,
            **({} if self.classifier.task == SINGLE else {"task": asdict(self.classifier.task)}),
            "version": __version__,
        }

    def run(self, group: Group | None = None) -> Iterator[ComparisonStep]:
        """Measure what is missing, each process its images; `results` has it afterwards.

        Whoever calls this is alone at the folder (experiment/runs/claim.py).
        """
        if self.protocol.of_value != (self.classifier.task.kind == "regression"):
            raise UserError(
                "of a regression a value is measured, of other tasks a probability: of_value says so"
            )
        if not len(self.data):
            raise UserError("there is no image to compare on")
        store, total = Store(self.folder), len(self.indices) * len(self.methods)
        group = group or Group()
        group.of_main(lambda: store.open(self.plan(), list(self.methods)))
        for place, index in group.of(list(enumerate(self.indices))):
            lacking = [method for method in self.methods if store.read(method.name, index) is None]
            case = self._readable(index) if lacking else None
            for number, method in enumerate(self.methods, start=1):
                failure = case if isinstance(case, Failure) else None
                if isinstance(case, Case) and method in lacking:
                    failure = self._attempt(store, method, case)
                yield ComparisonStep(
                    place * len(self.methods) + number, total, f"{method.name} on {place + 1}", failure
                )
        group.meet()

    def results(self, failures: Sequence[Failure] = ()) -> Results:
        """All that is kept of these methods and images."""
        store = Store(self.folder)
        found = {method.name: self._kept(store, method) for method in self.methods}
        lacking = {index for kept in found.values() for index, record in kept.items() if not record.located}
        names = {index: self.data.name(index) for index in self.indices}
        return Results(found, tuple(failures), names, len(lacking))

    def _kept(self, store: Store, method: Method) -> dict[int, Record]:
        read = ((index, store.read(method.name, index)) for index in self.indices)
        return {index: record for index, record in read if record is not None}

    def case(self, index: int) -> Case:
        """An image as the network sees it, with the class that the protocol asks for."""
        sample = self.data[index]
        device = next(self.classifier.module.parameters()).device
        inputs = self.classifier.normalise(sample.image.unsqueeze(0)).to(device)
        if self.protocol.of_value:
            direction = self.classifier.label(self.protocol.asked)
            return Case(index, sample, inputs, torch.tensor([direction], device=device))
        if self.protocol.asked != PREDICTED:
            return Case(index, sample, inputs, torch.tensor([sample.label], device=device))
        with torch.no_grad():
            return Case(index, sample, inputs, _outputs(self.classifier).predicted(inputs))

    def _readable(self, index: int) -> Case | Failure:
        try:
            return self.case(index)
        except UserError as error:  # a file that is broken or gone
            return Failure("every method", self.data.name(index), str(error))

    def _attempt(self, store: Store, method: Method, case: Case) -> Failure | None:
        try:
            store.write(method.name, case.place, self._record(method, case))
        except Exception as error:  # whatever a foreign explainer raises, the others go on
            return Failure(method.name, case.sample.name, f"{type(error).__name__}: {error}")
        return None

    def _record(self, method: Method, case: Case) -> Record:
        start = time.perf_counter()
        found = method.explain(case)
        seconds = time.perf_counter() - start
        check_found(found, case)
        device = case.inputs.device
        maps = Explained(found.raw.to(device).unsqueeze(0), found.heatmap.to(device).unsqueeze(0))
        score, truth = _score(self.classifier, case), _truth(case.sample, device)
        black = self.classifier.normalise(torch.zeros_like(case.sample.image)[None, :, :1, :1]).to(device)
        result = measured(score, case.inputs, maps, truth, protocol=self.protocol, black=black)
        fill = black if self.protocol.rise.space == "pixels" else None
        judged = self._judges.values(Question(method, case, score, maps, truth, fill))
        return Record(
            values={name: float(values[0]) for name, values in result.values.items()} | judged,
            deletion=result.deletion[0].cpu(),
            insertion=result.insertion[0].cpu(),
            overlaps={name: values[0].cpu() for name, values in result.overlaps.items()},
            seconds=seconds,
            passes=(found.passes.forward, found.passes.backward),
            heatmap=found.heatmap.cpu(),
        )


def check_found(found: MethodMaps, case: Case) -> None:
    """A ValueError unless the maps have the size of the image, and numbers everywhere."""
    if found.raw.shape != case.inputs.shape[-2:] or found.heatmap.shape != found.raw.shape:
        raise ValueError(f"a map of {tuple(found.raw.shape)} for an image of {tuple(case.inputs.shape[-2:])}")
    if not found.raw.isfinite().all() or not found.heatmap.isfinite().all():
        raise ValueError("the map contains NaN or infinite values")


def _truth(sample: Sample, device: torch.device) -> Truth:
    part = sample.parts.get(sample.deciding_part) if sample.deciding_part else None
    known = [None if mask is None else mask.to(device).unsqueeze(0) for mask in (sample.truth, part)]
    return Truth(*known)


def _score(classifier: Classifier, case: Case) -> Score:
    """The probability of the class, not calibrated; or the value up or down."""

    @torch.no_grad()
    def watched(images: Tensor, rows: Tensor) -> Tensor:
        return _outputs(classifier).watched(images)[:, int(case.label)]

    return watched


def _outputs(classifier: Classifier) -> Outputs:
    return Outputs(classifier.module, classifier.task)
