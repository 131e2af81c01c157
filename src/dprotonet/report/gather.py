"""From a run to what its report shows. What cannot be had is said in `missing`, never an empty section."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from torch import Tensor

from dprotonet.config import DataConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.evaluation.evaluation import Evaluation, evaluate_images
from dprotonet.experiment.explaining.notable_images import notable_images
from dprotonet.experiment.explaining.pictures import source_images
from dprotonet.experiment.explaining.row_marks import measured_limit
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.facts import PrototypeFacts, kept_facts, stored_facts
from dprotonet.experiment.prototypes.nearest_images import CollectedScores, TrainingScores
from dprotonet.experiment.runs.row_places import PlaceLimit
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.progress import NamedProgress
from dprotonet.report.about import about, described_data
from dprotonet.report.cases import Places, Studied, case, marks_of, studied
from dprotonet.report.comparison import comparison
from dprotonet.report.content import CaseGroup, Mistakes, Performance, Report, ReportCase
from dprotonet.report.embed import colour_key
from dprotonet.report.heatmaps import Heatmaps
from dprotonet.report.history import history
from dprotonet.report.mistakes import mistakes
from dprotonet.report.options import NO_DATA, AtHand, ReportOptions
from dprotonet.report.performance import measured_performance, stored, stored_positive
from dprotonet.report.prototypes import class_cards
from dprotonet.report.side_by_side import Training
from dprotonet.report.words import counted

GROUPS = {
    "sure": (
        "Images it was most certain of",
        "The right answers with the highest probability, of different classes. This is what the model has "
        "learned best.",
    ),
    "unsure": (
        "Images it was least certain of",
        "The answers with the lowest probability, right or wrong. Such images are worth a second look by a "
        "person.",
    ),
    "mistakes": (
        "Mistakes, explained",
        "The wrong answers that the model was surest of: what the image looked like to it, beside what spoke "
        "for the truth.",
    ),
}


def gather(
    model: Model,
    wishes: ReportOptions,
    *,
    made: str,
    at_hand: AtHand | None = None,
    on_progress: NamedProgress | None = None,
) -> Report:
    """All that a report shows of a model from a run folder; `made` says when."""
    if model.folder is None:
        raise UserError("a report is of a run folder, and this model was not loaded from one")
    return _Gathering(model, model.folder, wishes, at_hand or AtHand(), on_progress or _in_silence).report(
        made
    )


def _in_silence(what: str, done: int, total: int) -> None: ...


@dataclass
class _Gathering:
    model: Model
    folder: Path
    wishes: ReportOptions
    at_hand: AtHand
    on_progress: NamedProgress
    missing: list[str] = field(default_factory=list)

    def report(self, made: str) -> Report:
        splits = self._splits()
        self._tell_of_leaks(splits)
        evaluation = None if splits is None else self._evaluation(splits.test)
        chosen = {} if splits is None or evaluation is None else self._studied(splits.test, evaluation)
        self._measure_limit(splits)
        sources, places = self._places([item for found in chosen.values() for item in found])
        looked = self._looked(splits, evaluation)
        facts = None if sources is None else self._facts(splits, looked)
        training = self._training(splits, looked)
        return Report(
            about=about(self.model, folder=self.folder, preset=self.wishes.preset),
            made=made,
            prototyped=sources is not None,
            key=colour_key(),
            performance=self._performance(evaluation),
            curve=history(RunFolder(self.folder)),
            classes=() if sources is None else class_cards(self.model, sources, places.sources, facts),
            groups=self._groups(chosen, places, sources, training),
            mistakes=self._mistakes(splits, evaluation, training),
            comparison=comparison(self.model, self.wishes.compare),
            missing=tuple(self.missing),
            clinical=self.wishes.audience == "clinical",
        )

    # ── data ──

    @property
    def _data(self) -> DataConfig:
        own = self.model.config.data
        leaks = own.allow_leaks or self.wishes.allow_leaks
        return replace(own, data=self.wishes.data or own.data, allow_leaks=leaks)

    def _splits(self) -> Splits | None:
        """The data; where the run's own is gone the report goes on, where another was named it does not."""
        if self.at_hand.splits is not None:
            return self.at_hand.splits
        if self.wishes.data == NO_DATA:
            return self._without("it was asked to leave the data alone")
        try:
            splits = build_splits(self._data, partial(self.on_progress, "scan"))
            if tuple(splits.test.classes) != self.model.classes:
                raise UserError(f"--data {self._data.data} has other classes than the run")
        except (UserError, OSError) as error:
            if self.wishes.data is not None:
                raise
            return self._without(str(error))
        return splits

    def _tell_of_leaks(self, splits: Splits | None) -> None:
        if splits is not None and splits.leaks:
            self.missing.append(
                f"A fair test: {counted(len(splits.leaks), 'image')} of one split found again in another, so "
                "the accuracy may be better than it would be on new images."
            )

    def _without(self, reason: str) -> Splits | None:
        self.missing.append(
            f"The images that the model was trained and tested on were not read: {reason}. So no test "
            "image is explained here; dprotonet report RUN --data SPEC reads them from elsewhere."
        )
        return None

    def _evaluation(self, test: ImageData) -> Evaluation:
        if self.at_hand.evaluation is not None:
            return self.at_hand.evaluation
        evaluation = evaluate_images(self.model, test, on_batch=partial(self.on_progress, "evaluating"))
        return replace(evaluation, positive=stored_positive(self.folder, self.model.classes))

    def _performance(self, evaluation: Evaluation | None) -> Performance | None:
        if evaluation is not None:
            return measured_performance(evaluation, data=described_data(self._data.data))
        found = stored(self.folder, self.model.network, self.model.classes)
        if found.performance is None:
            self.missing.append(
                f"How good the model is: there were no test images, and {found.lack} with dprotonet evaluate."
            )
        return found.performance

    # ── prototypes ──

    def _measure_limit(self, splits: Splits | None) -> None:
        """For doctors: from when on a row's two places do not look alike, if nobody measured it yet."""
        if self.wishes.audience != "clinical" or not self.model.has_sources:
            return
        if PlaceLimit.read(self.folder, self.model.network) is not None:
            return
        if splits is None:
            self.missing.append(
                "Warnings of rows whose two places do not look alike: their limit takes validation images; "
                "dprotonet reliability RUN --data SPEC measures it."
            )
            return
        looking = partial(self.on_progress, "looking at rows")
        found = measured_limit(self.model, splits.val, on_progress=looking)
        found.write(self.folder)
        if caution := found.caution():
            self.missing.append(
                f"A sure limit for the warning of rows whose two places do not look alike: {caution}."
            )

    def _facts(
        self, splits: Splits | None, looked: CollectedScores | None
    ) -> tuple[PrototypeFacts, ...] | None:
        looking = partial(self.on_progress, "looking at prototypes")
        found = (
            kept_facts(self.model)
            if splits is None
            else stored_facts(
                self.model, splits.train, on_progress=looking, on_batch=None if looked is None else looked.add
            )
        )
        if found is None:
            self.missing.append(
                "How often each prototype decides and how pure it is: that takes the training images."
            )
        return found

    def _places(self, images: Sequence[Studied]) -> tuple[Tensor | None, Places]:
        if not self.model.prototypes:
            self.missing.append(
                "Prototypes and evidence: this model is a black box, which has neither. dprotonet saliency "
                "shows where a black box looks."
            )
            return None, Places({}, {})
        if not self.model.has_sources:
            self.missing.append(
                "Prototypes and evidence: this run was imported, and the training images that its prototypes "
                "came from are unknown. dprotonet predict tells the evidence in numbers."
            )
            return None, Places({}, {})
        makers = Heatmaps(self.model, self.wishes, self.on_progress)
        places = makers.places(images, self.at_hand.places)
        places = replace(places, marks=marks_of(self.model, images, places.marks, top=self.wishes.top))
        self._tell_of_heatmaps(len(places.sources))
        return source_images(self.model), places

    def _tell_of_heatmaps(self, found: int) -> None:
        total = len(self.model.prototypes)
        if found < total:
            self.missing.append(
                f"Heatmaps of {total - found} of the {total} prototypes: each takes a few seconds to make; "
                "dprotonet report RUN --heatmaps all makes and keeps them."
            )

    # ── images ──

    def _studied(self, test: ImageData, evaluation: Evaluation) -> Mapping[str, list[Studied]]:
        found = notable_images(
            evaluation.predictions,
            evaluation.probabilities,
            sure=self.wishes.sure,
            unsure=self.wishes.unsure,
            mistakes=self.wishes.mistakes,
        )
        return {key: studied(self.model, test, getattr(found, key)) for key in GROUPS}

    def _groups(
        self,
        chosen: Mapping[str, list[Studied]],
        places: Places,
        sources: Tensor | None,
        training: Training | None,
    ) -> tuple[CaseGroup, ...]:
        def shown_case(item: Studied) -> ReportCase:
            return case(self.model, item, places, sources, top=self.wishes.top, training=training)

        shown = {key: tuple(map(shown_case, items)) for key, items in chosen.items()}
        return tuple(CaseGroup(key, *GROUPS[key], cases) for key, cases in shown.items() if cases)

    def _looked(self, splits: Splits | None, evaluation: Evaluation | None) -> CollectedScores | None:
        """Where scores of the training images go, if a mistake is to be compared with them."""
        if splits is None or evaluation is None or not self.model.prototypes:
            return None
        if bool((evaluation.probabilities.argmax(1) == evaluation.predictions.labels).all()):
            return None
        return CollectedScores(self.model, len(splits.train))

    def _training(self, splits: Splits | None, looked: CollectedScores | None) -> Training | None:
        """What every prototype says of the training images; they are gone over once if facts were made."""
        if splits is None or looked is None:
            return None
        looking = partial(self.on_progress, "looking for the nearest training images")
        known = looked.whole()
        scores = known or TrainingScores.of(self.model, splits.train, on_progress=looking)
        return Training(splits.train, scores)

    def _mistakes(
        self, splits: Splits | None, evaluation: Evaluation | None, training: Training | None
    ) -> Mistakes | None:
        if splits is None or evaluation is None:
            return None
        return mistakes(self.model, evaluation, splits.test, training=training)
