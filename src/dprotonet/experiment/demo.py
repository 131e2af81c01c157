"""What the demo shows after training: accuracies and four pictures, the last of them explanations."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator

from dprotonet.data.base import ImageData, Splits
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.evaluation.baseline import BASELINES, baseline_data
from dprotonet.experiment.evaluation.evaluation import Evaluation, save_evaluation
from dprotonet.experiment.explaining.explain import ExplainedPrediction, ExplainProgress, OnStep
from dprotonet.experiment.explaining.notable_images import notable_images
from dprotonet.experiment.explaining.pictures import curve_picture, prototypes_picture, save_picture
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.missed import missed_sheet
from dprotonet.experiment.prototypes.parts import look_for_parts, parts_picture
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.figures import stack
from dprotonet.progress import NamedProgress
from dprotonet.training.evaluation import evaluate
from dprotonet.training.features import FeatureViews

_OF_A_PART = 12  # images that a part is shown in


@dataclass(frozen=True)
class DemoResults:
    """What was found, and what whoever goes on from here need not do again."""

    summary: dict[str, Any]  # accuracies, and where the pictures are
    model: Model
    splits: Splits
    evaluation: Evaluation
    explained: Mapping[int, ExplainedPrediction]  # by the number of the test image


@dataclass(frozen=True)
class Demo:
    """Looks at what a frozen-mode trainer has made."""

    trainer: Trainer

    def results(self, on_progress: NamedProgress | None = None) -> DemoResults:
        """Test accuracy of DProtoNet and of the baselines on the same images; where the pictures are."""
        accelerator = Accelerator()
        model = Model.load(self.trainer.out, device=accelerator.device)
        splits = build_splits(self.trainer.config.data)
        test = self.features(model, splits.test, accelerator=accelerator, on_progress=on_progress)
        predictions = evaluate(model.network.without_backbone(), test, accelerator=accelerator)
        evaluation = Evaluation("test", model.classes, predictions, calibration=model.calibration)
        parts = self._parts(model, splits.train, on_progress)
        explained = self._explained(model, evaluation, splits.test, on_progress)
        summary = {
            "run": str(self.trainer.out),
            "accuracy": predictions.accuracy,
            **{f"{name}_accuracy": found["accuracy"] for name, found in self.baselines().items()},
            "pictures": self._pictures(model, evaluation)
            | parts
            | self._sheets(explained, model, evaluation, splits, on_progress),
        }
        return DemoResults(summary, model, splits, evaluation, explained)

    def features(
        self,
        model: Model,
        data: ImageData,
        *,
        accelerator: Accelerator,
        on_progress: NamedProgress | None = None,
    ) -> FeatureViews:
        """Plain features of a split, cached like those of training."""
        views = self.trainer.views(model.network, data)

        def show(step: Preparing) -> None:
            if on_progress is not None:
                on_progress("evaluating", step.done, step.total)

        return finished(self.trainer.frozen(views, model.network.encoder.backbone, accelerator, 0), show)

    def baselines(self) -> dict[str, dict[str, Any]]:
        """What every simple classifier of the backbone's features comes to, by its name."""
        data = finished(baseline_data(self.trainer))
        return {name: data.result(name) for name in BASELINES}

    def _pictures(self, model: Model, evaluation: Evaluation) -> dict[str, str]:
        sheets = {
            "prototypes": prototypes_picture(model),
            "learning curve": curve_picture(RunFolder(self.trainer.out)),
        }
        paths = {name: self._path(name) for name in sheets}
        for name, sheet in sheets.items():
            save_picture(sheet, paths[name])
        paths["confusion matrix"] = save_evaluation(
            evaluation,
            self.trainer.out / "evaluation",
            data=self.trainer.config.data.data,
            network=model.network,
        )
        return {name: str(path) for name, path in paths.items()}

    def _parts(self, model: Model, train: ImageData, on_progress: NamedProgress | None) -> dict[str, str]:
        """Names of the parts, and those of a class on some images; nothing where prototypes have no place."""
        if not model.parts_follow:
            return {}
        advance = partial(on_progress, "naming parts") if on_progress is not None else None
        found = look_for_parts(model, train, images=_OF_A_PART, on_progress=advance)
        save_picture(parts_picture(model, train, found, class_name=model.classes[0]), self._path("parts"))
        return {"parts": str(self._path("parts"))}

    def _explained(
        self, model: Model, evaluation: Evaluation, test: ImageData, on_progress: NamedProgress | None
    ) -> dict[int, ExplainedPrediction]:
        """The surest right answer, if any, with the places of the prototypes that decided."""
        found = notable_images(evaluation.predictions, evaluation.probabilities, sure=1, unsure=0, mistakes=0)
        if not found.sure:
            return {}
        explained = model.explain([test[index].image for index in found.sure], on_step=_step(on_progress))
        return dict(zip(found.sure, explained, strict=True))

    def _sheets(
        self,
        explained: Mapping[int, ExplainedPrediction],
        model: Model,
        evaluation: Evaluation,
        splits: Splits,
        on_progress: NamedProgress | None,
    ) -> dict[str, str]:
        """A right answer, and a mistake, preferably of siblings, with both classes side by side."""
        test = splits.test
        right = [
            item.picture(f"{test.name(index)}: {item.prediction.class_name}, recognised")
            for index, item in explained.items()
        ]
        logits = evaluation.predictions.logits
        missed = missed_sheet(model, logits, test, splits.train, on_step=_step(on_progress))
        save_picture(stack([*right, missed]), self._path("explanations"))
        return {"explanations": str(self._path("explanations"))}

    def _path(self, name: str) -> Path:
        return self.trainer.out / "pictures" / f"{name.replace(' ', '-')}.png"


def _step(on_progress: NamedProgress | None) -> OnStep:
    def advance(now: ExplainProgress) -> None:
        if on_progress is not None:
            on_progress(f"explaining {now.what}", now.done, now.total)

    return advance
