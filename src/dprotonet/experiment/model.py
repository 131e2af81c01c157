"""What `dprotonet.load` returns: a trained model that predicts, explains, and travels to and from the hub."""

from collections.abc import Sequence
from pathlib import Path

import torch
from huggingface_hub import ModelHubMixin

from dprotonet.experiment.explaining.explain import ExplainedPrediction, OnStep, explain
from dprotonet.experiment.trained.image_like import ImageLike, several
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.experiment.transfer.hub import model_folder
from dprotonet.interpretation.mdm import Preset


class Model(TrainedModel, ModelHubMixin):
    """Predicts with reasons. `save_pretrained` and `from_pretrained` follow huggingface_hub."""

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
        return cls.load(folder, device=device)
