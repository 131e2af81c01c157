"""Explanations for FiftyOne and MLflow: the files that they read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dprotonet as dp
from dprotonet.errors import UserError


@pytest.fixture(scope="module")
def found(run_folder: Path) -> list[dp.ExplainedImage]:
    images = dp.Birds(per_species=1, split="test", size=64)
    return dp.explainer(run_folder, method="gradcam")([images[0].image, images[1].image])


def test_fiftyone_has_images_classes_and_heatmaps(found: list[dp.ExplainedImage], tmp_path: Path) -> None:
    place = dp.save_fiftyone(found, tmp_path / "fiftyone")
    samples = json.loads((place / "samples.json").read_text())["samples"]
    assert len(samples) == len(found)
    for sample, item in zip(samples, found, strict=True):
        assert sample["prediction"] == {
            "_cls": "Classification",
            "label": item.class_name,
            "confidence": pytest.approx(item.probability),
        }
        heat = sample["explanation"]
        assert heat["_cls"] == "Heatmap"
        low, high = heat["range"]
        drawn = np.asarray(Image.open(place / heat["map_path"])).astype(np.float32)
        assert (low, high, drawn.ndim) == (0, 255, 2)
        torch.testing.assert_close(torch.from_numpy(drawn / high), item.heatmap, atol=0.003, rtol=0)
        shown = np.asarray(Image.open(place / sample["filepath"]))
        np.testing.assert_array_equal(shown, item.picture.permute(1, 2, 0).numpy())
        assert not Path(sample["filepath"]).is_absolute()
        assert not Path(heat["map_path"]).is_absolute()


def test_fiftyone_overwrites_nothing(found: list[dp.ExplainedImage], tmp_path: Path) -> None:
    (tmp_path / "kept.txt").write_text("mine")
    with pytest.raises(UserError, match="not an empty folder"):
        dp.save_fiftyone(found, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept.txt"]


class Client:
    """What `mlflow.MlflowClient` is asked for."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def log_artifacts(self, run_id: str, local_dir: str, artifact_path: str | None = None) -> None:
        root = Path(local_dir)
        for path in (path for path in root.rglob("*") if path.is_file()):
            self.files[f"{run_id}/{artifact_path}/{path.relative_to(root).as_posix()}"] = path.read_bytes()


def test_mlflow_has_every_explanation_as_artefacts(found: list[dp.ExplainedImage]) -> None:
    client = Client()
    places = dp.log_mlflow(found, client, "run-7")
    assert places == ["explanations/0000-image", "explanations/0001-image"]
    assert "run-7/explanations/sheet.png" in client.files
    for place, item in zip(places, found, strict=True):
        said = json.loads(client.files[f"run-7/{place}/explanation.json"])
        assert said["class_name"] == item.class_name
        assert client.files[f"run-7/{place}/{said['files']['heatmap']}"].startswith(b"\x93NUMPY")
    with pytest.raises(UserError, match="at least one"):
        dp.log_mlflow([], client, "run-7")


def test_the_real_mlflow_takes_them(
    found: list[dp.ExplainedImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # which mlflow-skinny has without a data base
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "runs").as_uri())
    place = client.create_experiment("birds", artifact_location=(tmp_path / "artefacts").as_uri())
    run = client.create_run(place).info.run_id
    (first, _) = dp.log_mlflow(found, client, run)
    assert f"{first}/explanation.json" in {item.path for item in client.list_artifacts(run, first)}


def test_the_real_fiftyone_reads_them(
    found: list[dp.ExplainedImage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FIFTYONE_DISABLE_SERVICES", "true")
    fiftyone = pytest.importorskip("fiftyone")
    from fiftyone.utils.data.importers import LegacyFiftyOneDatasetImporter

    place = dp.save_fiftyone(found, tmp_path / "fiftyone")
    importer = LegacyFiftyOneDatasetImporter(dataset_dir=str(place))  # a Dataset would need MongoDB
    with importer:
        samples = list(importer)
    assert [sample.prediction.label for sample in samples] == [item.class_name for item in found]
    assert samples[0].explanation.map_path == str(place / "fields/explanation/000000.png")
    assert samples[0].filepath == str(place / "data/000000.png")
    assert isinstance(samples[0].explanation, fiftyone.Heatmap)
