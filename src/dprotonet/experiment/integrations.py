"""Explanations where people already look at images and runs: FiftyOne's app, MLflow's artefacts.

Neither package is needed: FiftyOne gets a folder in its LegacyFiftyOneDataset layout, which
`fiftyone.Dataset.from_dir` reads, and MLflow's client is given by the caller.
"""

import json
import tempfile
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

from PIL import Image

from dprotonet.errors import UserError
from dprotonet.experiment.explaining.explanation_files import folder_for
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.explaining.saliency import Saliency, saliency_picture
from dprotonet.experiment.image_explainer import ExplainedImage
from dprotonet.files import write_text

PREDICTION, EXPLANATION = "prediction", "explanation"


def save_fiftyone(found: Sequence[Saliency], folder: str | PathLike[str]) -> Path:
    """Images, predicted classes and heatmaps as a data set for FiftyOne; the folder must be new or empty.

    `fiftyone.Dataset.from_dir(FOLDER, dataset_type=fiftyone.types.LegacyFiftyOneDataset)` opens it. An image
    has a `prediction` (Classification) and an `explanation` (Heatmap); pictures are copied as they are shown,
    no edge longer than 640 pixels.
    """
    place = Path(folder).expanduser()
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place} is not an empty folder; name another")
    (place / "data").mkdir(parents=True, exist_ok=True)
    (place / "fields" / EXPLANATION).mkdir(parents=True, exist_ok=True)
    samples = [_sample(item, place, number) for number, item in enumerate(found)]
    write_text(place / "metadata.json", json.dumps({"media_type": "image"}))
    write_text(place / "samples.json", json.dumps({"samples": samples}, ensure_ascii=False, indent=1))
    return place


def _sample(item: Saliency, place: Path, number: int) -> dict[str, Any]:
    """One image of samples.json; paths in it are relative to the folder."""
    name = f"{number:06d}.png"
    shown, heat = f"data/{name}", f"fields/{EXPLANATION}/{name}"
    save_picture(Image.fromarray(item.picture.permute(1, 2, 0).numpy()), place / shown)
    grey = (item.heatmap * 255).round().byte().numpy()
    save_picture(Image.fromarray(grey), place / heat)
    return {
        "filepath": shown,
        "tags": [],
        "metadata": None,
        "_media_type": "image",
        "source": item.name,
        PREDICTION: {"_cls": "Classification", "label": item.class_name, "confidence": item.probability},
        EXPLANATION: {"_cls": "Heatmap", "map_path": heat, "range": [0, 255]},
    }


class ArtifactClient(Protocol):
    """What is asked of `mlflow.MlflowClient`."""

    def log_artifacts(self, run_id: str, local_dir: str, artifact_path: str | None = None) -> None: ...


def log_mlflow(
    found: Sequence[ExplainedImage], client: ArtifactClient, run_id: str, *, path: str = "explanations"
) -> list[str]:
    """Explanations as artefacts of an MLflow run: a folder each, and a sheet of all; their places.

    `client` is an `mlflow.MlflowClient()`, or anything with its `log_artifacts`.
    """
    if not found:
        raise UserError("there are no explanations to log; give at least one")
    with tempfile.TemporaryDirectory() as place:
        folders = [folder_for(Path(place), number, item.name) for number, item in enumerate(found)]
        for item, folder in zip(found, folders, strict=True):
            item.save(folder)
        save_picture(saliency_picture(found), Path(place) / "sheet.png")
        client.log_artifacts(run_id, place, path)
    return [f"{path}/{folder.name}" for folder in folders]
