"""Loading, predicting and handing on a trained model."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

import dprotonet as dp
from dprotonet.data.birds import Birds


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    return dp.load(run_folder)


@pytest.fixture(scope="module")
def bird(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("images") / "bird.png"
    pixels = Birds(species=4, per_species=2, split="test", size=64)[1].image
    Image.fromarray(pixels.permute(1, 2, 0).numpy()).save(path)
    return path


def test_contributions_sum_to_the_logit(model: dp.Model, bird: Path) -> None:
    prediction = model.predict(bird)
    with torch.no_grad():
        logits = model.network(model.inputs([bird]))[0]
    assert len(prediction.evidence) == len(model.prototypes)
    assert sum(item.contribution for item in prediction.evidence) == pytest.approx(prediction.logit, abs=1e-9)
    assert prediction.logit == pytest.approx(float(logits.max()), rel=1e-4)
    assert prediction.label == int(logits.argmax())
    for item in prediction.evidence:
        assert item.contribution == pytest.approx(item.similarity * item.weight)
    assert sum(prediction.probabilities.values()) == pytest.approx(1)
    assert prediction.class_name == max(prediction.probabilities, key=prediction.probabilities.__getitem__)


def test_paths_pictures_and_tensors_give_the_same(model: dp.Model, bird: Path) -> None:
    picture = Image.open(bird)
    pixels = model.pixels(bird)
    predictions = [model.predict(image) for image in (bird, str(bird), picture, pixels)]
    assert len({round(item.logit, 4) for item in predictions}) == 1


def test_a_batch_equals_one_by_one(model: dp.Model) -> None:
    birds = Birds(species=4, per_species=1, split="test", size=64)
    images = [birds[index].image for index in range(3)]
    for alone, together in zip(map(model.predict, images), model.predict_many(images), strict=True):
        assert alone.class_name == together.class_name
        assert alone.logit == pytest.approx(together.logit, rel=1e-4)
    assert model.predict_many([]) == []


def test_save_and_from_pretrained(model: dp.Model, bird: Path, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path / "copy")
    again = dp.Model.from_pretrained(tmp_path / "copy")
    assert again.predict(bird).logit == model.predict(bird).logit
    assert again.classes == model.classes
    assert all((tmp_path / "copy" / record.image).is_file() for record in again.prototypes)


def test_loading_needs_only_the_folder(run_folder: Path, bird: Path, tmp_path: Path) -> None:
    """Neither data, pretrained weights nor checkpoint: the folder alone suffices."""
    moved = tmp_path / "elsewhere"
    shutil.copytree(run_folder, moved, ignore=shutil.ignore_patterns("checkpoint", "metrics.jsonl"))
    assert dp.load(moved).predict(bird).logit == dp.load(run_folder).predict(bird).logit


@pytest.mark.parametrize(
    ("file", "harm", "message"),
    [
        ("model.safetensors", "cut", "truncated or foreign"),
        ("model.safetensors", "remove", "missing"),
        ("model.safetensors", "pickle", "truncated or foreign"),
        ("prototypes.json", "cut", "damaged"),
        ("prototypes.json", "remove", "first push"),
        ("config.toml", "remove", "not a run folder"),
        ("config.toml", "cut", "TOML|unknown key|must be"),
    ],
)
def test_a_harmed_folder_is_a_clear_error(
    run_folder: Path, tmp_path: Path, file: str, harm: str, message: str
) -> None:
    harmed = tmp_path / "run"
    shutil.copytree(run_folder, harmed)
    path = harmed / file
    if harm == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 - 3] + b"'")
    elif harm == "remove":
        path.unlink()
    else:
        torch.save({"weight": torch.zeros(3)}, path)
    with pytest.raises(dp.UserError, match=message):
        dp.load(harmed)


def test_weights_of_another_shape_are_refused(run_folder: Path, tmp_path: Path) -> None:
    harmed = tmp_path / "run"
    shutil.copytree(run_folder, harmed)
    text = (harmed / "config.toml").read_text()
    (harmed / "config.toml").write_text(text.replace("dimension = 16", "dimension = 20"))
    with pytest.raises(dp.UserError, match="has shape"):
        dp.load(harmed)


def test_a_tensor_that_is_no_image_is_refused(model: dp.Model) -> None:
    with pytest.raises(dp.UserError, match="uint8"):
        model.predict(torch.rand(3, 64, 64))


@pytest.mark.parametrize(
    "change",
    [
        {"image": "../../secret.png"},
        {"image": "/etc/hostname"},
        {"image": None},
        {"prototype": 99},
        {"class_name": "no such class"},
        {"region": 7777},
    ],
)
def test_a_strangers_prototypes_are_not_trusted(run_folder: Path, tmp_path: Path, change: dict) -> None:
    """Least of all a picture's path that leads out of the folder."""
    harmed = tmp_path / "run"
    shutil.copytree(run_folder, harmed)
    content = json.loads((harmed / "prototypes.json").read_text())
    content["prototypes"][1].update(change)
    (harmed / "prototypes.json").write_text(json.dumps(content))
    with pytest.raises(dp.UserError, match=r"prototypes.json is damaged"):
        dp.load(harmed)


def test_weights_and_prototypes_of_different_models_are_noticed(run_folder: Path, tmp_path: Path) -> None:
    harmed = tmp_path / "run"
    shutil.copytree(run_folder, harmed)
    tensors = load_file(harmed / "model.safetensors")
    save_file(tensors, harmed / "model.safetensors", metadata={"format": "pt", "prototypes": "other"})
    with pytest.raises(dp.UserError, match="different models"):
        dp.load(harmed)


def test_a_device_that_is_not_there(run_folder: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(dp.UserError, match="device cuda cannot be used"):
        dp.load(run_folder, device="cuda")


def test_things_that_are_no_image(model: dp.Model) -> None:
    for nothing in (5, None, torch.zeros(3, 0, 4, dtype=torch.uint8)):
        with pytest.raises(dp.UserError, match="image"):
            model.predict(nothing)  # type: ignore[arg-type]
