"""What `dprotonet.load` returns: a trained model that predicts, explains, and travels to and from the hub."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import torch
from huggingface_hub import ModelHubMixin

from dprotonet.data.base import ImageData, Splits
from dprotonet.experiment.explaining.dicom_answer import check_dicom, save_dicom
from dprotonet.experiment.explaining.explain import ExplainedPrediction, OnStep, explain
from dprotonet.experiment.explaining.explain_contrast import ExplainedContrast, explain_contrast
from dprotonet.experiment.explaining.explain_findings import ExplainedFindings, explain_findings
from dprotonet.experiment.prototypes.cleaning import Cleaning, clean
from dprotonet.experiment.prototypes.facts import PrototypeFacts, stored_facts
from dprotonet.experiment.prototypes.split_evidence import splits_of_run
from dprotonet.experiment.prototypes.what_if import WhatIf
from dprotonet.experiment.trained.image_like import ImageLike, several
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.trained.versus import RUNNER_UP, ClassName
from dprotonet.experiment.transfer.hub import model_folder
from dprotonet.interpretation.mdm import Preset


class Model(TrainedModel, ModelHubMixin):
    """Predicts with reasons. `save_pretrained` and `from_pretrained` follow huggingface_hub."""

    def explain_contrast(
        self,
        images: ImageLike | Sequence[ImageLike],
        versus: ClassName = RUNNER_UP,
        *,
        target: ClassName | None = None,
        top: int = 3,
        preset: str | Preset | None = None,
        on_step: OnStep | None = None,
    ) -> list[ExplainedContrast]:
        """Why each image is what it was taken for (or `target`) and not `versus`, with both sides shown.

        The `top` largest differences get a row, what speaks against the class first.
        """
        chosen = self.config.explaining.decoder if preset is None else preset
        asked = several(images)
        return explain_contrast(self, asked, versus, target=target, top=top, preset=chosen, on_step=on_step)

    def explain(
        self,
        images: ImageLike | Sequence[ImageLike],
        *,
        top: int = 3,
        preset: str | Preset | None = None,
        on_step: OnStep | None = None,
    ) -> list[ExplainedPrediction]:
        """Predictions with heatmaps: where each of the `top` prototypes is, in the image and in its source.

        `preset` is the run's own by default, `explaining.decoder` of its config: fast, or what its recipe
        says. Heatmaps of sources are kept in the run folder, so that each is made once a run.
        """
        chosen = self.config.explaining.decoder if preset is None else preset
        return explain(self, several(images), top=top, preset=chosen, on_step=on_step)

    def explain_findings(
        self,
        images: ImageLike | Sequence[ImageLike],
        *,
        label: str | None = None,
        top: int = 3,
        preset: str | Preset | None = None,
        on_step: OnStep | None = None,
    ) -> list[ExplainedFindings]:
        """Where an image may have several labels: each that is present with its own prototypes and heatmaps.

        Where none is present, the likeliest; or the one called `label`.
        """
        chosen = self.config.explaining.decoder if preset is None else preset
        asked = several(images)
        return explain_findings(self, asked, label=label, top=top, preset=chosen, on_step=on_step)

    def explain_dicom(
        self,
        image: str | PathLike[str],
        out: str | PathLike[str],
        *,
        top: int = 3,
        preset: str | Preset | None = None,
        on_step: OnStep | None = None,
    ) -> ExplainedPrediction:
        """Explain a DICOM image and write the answer as DICOM beside it: same patient, same study.

        The file shows the patient's own image with heatmaps, the answer and "not for diagnosis"
        (docs/clinical.md).
        """
        source, target = Path(image), Path(out)
        check_dicom(source, target)
        (found,) = self.explain(source, top=top, preset=preset, on_step=on_step)
        save_dicom(found, self.network, source, target)
        return found

    def splits(self, *, moved_to: str | None = None) -> Splits:
        """The data that the run was trained on; `moved_to`, as `--data` has it: where that is now."""
        return splits_of_run(self, moved_to=moved_to)

    def prototype_facts(self, train: ImageData | None = None) -> tuple[PrototypeFacts, ...]:
        """What every prototype is worth on the training images: purity, duplicates, nearest images.

        They are made once and kept in the run folder; `train` None opens the run's own data where need be.
        """
        return stored_facts(self, train)

    def what_if(self, data: ImageData) -> WhatIf:
        """How the model does on a split with prototypes switched off; it takes one pass over the images."""
        return WhatIf(self, data)

    def clean(
        self,
        reasons: Mapping[int, str],
        splits: Mapping[str, ImageData | WhatIf],
        *,
        epochs: int | None = None,
    ) -> Cleaning:
        """Drop the prototypes that `reasons` names; the last layer learns again on `splits["train"]`.

        Accuracy before and after is told on every split given; `Cleaning.save` writes a run folder.
        """
        return clean(self, reasons, splits, epochs=epochs)

    def _save_pretrained(self, save_directory: Path) -> None:
        self.save(Path(save_directory))

    @classmethod
    def from_pretrained(  # type: ignore[override]  # a misspelt setting is an error, not passed on
        cls,
        pretrained_model_name_or_path: str | Path,
        *,
        force_download: bool = False,
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        local_files_only: bool = False,
        revision: str | None = None,
        device: str | torch.device | None = None,
    ) -> "Model":
        """A model from a run folder, or from the hub by its name `user/model`."""
        folder = model_folder(
            pretrained_model_name_or_path,
            revision=revision,
            cache_dir=cache_dir,
            force_download=force_download,
            local_files_only=local_files_only,
            token=token,
        )
        return cls.load(folder, device=device, several_labels=True)
