"""Several labels per image as a user has them: a table, a run, its measures, its answers, its sheets."""

import csv
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.birds import BirdFindings
from dprotonet.errors import UserError
from dprotonet.inference.several_labels import LabelHead

TINY = {
    "--mode": "frozen",
    "--backbone": "timm:test_resnet:none",
    "--image-size": 64,
    "--dimension": 8,
    "--prototypes-per-class": 4,
    "--augmentations": 1,
    "--epochs": 2,
    "--push-every": 1,
    "--batch-size": 8,
}


def words(data: str, out: Path, cache: Path, **changes: object) -> list[str]:
    given = {**TINY, "--data": data, "--out": out, "--cache": cache}
    given |= {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return ["train", *(str(word) for pair in given.items() for word in pair)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with labels.csv, drawn from the birds with findings, and a run trained on it."""
    root = tmp_path_factory.mktemp("labels")
    (root / "data").mkdir()
    birds, rows = BirdFindings(species=4, per_species=20, size=64), ["file,labels,patient"]
    for index in range(len(birds)):
        sample = birds[index]
        Image.fromarray(sample.image.permute(1, 2, 0).numpy()).save(root / f"data/{index}.png")
        rows.append(f"{index}.png,{';'.join(sample.findings)},p{index // 2}")
    (root / "data/labels.csv").write_text("\n".join(rows))
    assert main(words(f"labels:{root / 'data'}", root / "run", root / "cache")) == 0
    return root


def told(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_data_check_counts_labels(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "check", f"labels:{place / 'data'}", "--out", str(tmp_path), "--json"]) == 0
    found = told(capsys)["splits"]
    birds = BirdFindings(species=4, per_species=20, size=64)
    counts = {name: sum(split["per_class"][name] for split in found.values()) for name in birds.classes}
    assert counts == dict(zip(birds.classes, birds.labels.sum(dim=0).int().tolist(), strict=True))
    assert (tmp_path / "sheet.png").is_file()


def test_evaluate(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(place / "run"), "--json", "--out", str(tmp_path)]) == 0
    found = told(capsys)
    assert found["task"] == "multilabel"
    assert found["per_label"].keys() == set(BirdFindings(species=2).classes)
    assert 0 < found["mean_average_precision"] <= 1
    assert found["chance"]["mean_auroc"] == 0.5
    assert json.loads((tmp_path / "test.json").read_text())["per_label"] == found["per_label"]
    assert main(["evaluate", str(place / "run"), "--out", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "AUROC" in said
    assert "crest" in said


def test_predict_adds_up(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = place / "data/0.png"
    assert main(["predict", str(place / "run"), str(image), "--json"]) == 0
    (found,) = told(capsys)["predictions"]
    model = dp.load(place / "run")
    assert isinstance(model.network.head, LabelHead)
    with torch.no_grad():
        logits = model.network(model.inputs([image]))[0]
    for one, logit in zip(found["labels"], logits.tolist(), strict=True):
        said = one["bias"] + one["rest"] + sum(row["contribution"] for row in one["evidence"])
        assert said == pytest.approx(logit, abs=1e-4)
        assert one["logit"] == pytest.approx(logit, abs=1e-4)
        assert one["probability"] == pytest.approx(torch.tensor(logit).sigmoid().item(), abs=1e-5)
        assert {row["class_name"] for row in one["evidence"]} == {one["name"]}
    assert main(["predict", str(place / "run"), str(image)]) == 0
    assert "marked breast" in capsys.readouterr().out


def test_a_table_has_a_column_for_each_label(place: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    images = [str(place / "data/0.png"), str(tmp_path / "broken.png")]
    assert main(["predict", str(place / "run"), *images, "--out", str(tmp_path / "t.csv")]) == 0
    good, broken = csv.DictReader((tmp_path / "t.csv").open())
    (expected,) = dp.load(place / "run").findings(place / "data/0.png")
    for one in expected.labels:
        assert float(good[f"probability_{one.name}"]) == pytest.approx(one.probability, abs=1e-5)
    assert good["error"] == ""
    assert broken["error"]
    assert broken["probability_crest"] == ""


def test_explain_makes_one_sheet(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = str(place / "data/0.png")
    asked = ["explain", str(place / "run"), image, "--out", str(tmp_path), "--top", "2", "--iterations", "2"]
    assert main([*asked, "--json"]) == 0
    (found,) = told(capsys)["explanations"]
    shown = {one["name"] for one in found["findings"]}
    present = {name for name, share in found["probabilities"].items() if share >= 0.5}
    assert shown == (present or {max(found["probabilities"], key=found["probabilities"].get)})
    folder = Path(found["folder"])
    assert Image.open(folder / "sheet.png").width > 500
    for one in found["findings"]:
        assert one["logit"] == pytest.approx(one["rest"] + sum(r["contribution"] for r in one["rows"]))
        assert all((folder / name).is_file() for row in one["rows"] for name in row["files"].values())
    assert main([*asked, "--label", "wing bar"]) == 0
    assert "wing bar" in capsys.readouterr().out


def test_the_python_of_the_page_runs(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "labels.md"
    shutil.copytree(place / "run", tmp_path / "runs" / "chest")
    shutil.copy(place / "data/0.png", tmp_path / "image.png")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    exec(code, {})
    assert Image.open("sheet.png").size > (100, 100)


def test_a_group_of_rows_for_each_label(place: Path) -> None:
    model = dp.load(place / "run")
    (found,) = model.explain_findings(place / "data/1.png", label="crest", top=1, preset="instant")
    (group,) = found.groups
    assert group.finding.name == "crest"
    assert len(group.rows) == 1
    assert group.rows[0].input.heatmap.shape == (64, 64)
    assert found._repr_png_()
    with pytest.raises(UserError, match="no label 'beak'"):
        model.explain_findings(place / "data/1.png", label="beak")


def test_what_is_for_one_class_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(place / "run")
    image = str(place / "data/0.png")
    for command in (
        ["report", run],
        ["prototypes", run],
        ["calibrate", run],
        ["reliability", run],
        ["quality", run],
        ["export", run, "--onnx", "x.onnx"],
        ["predict", run, image, "--coverage", "0.9"],
        ["explain", run, image, "--out", "x", "--versus", "runner-up"],
        ["compare", "--model", run],
        ["evaluate", run, "--positive", "crest"],
    ):
        assert main(command) == 2, command
        assert "\n" not in capsys.readouterr().err.strip(), command
    model = dp.load(place / "run")
    for ask in (lambda: model.predict(image), lambda: model.explain(image), model.prototype_facts):
        with pytest.raises(UserError, match="several labels per image"):
            ask()


def test_settings_that_are_not_there_are_refused(place: Path, tmp_path: Path) -> None:
    data = f"labels:{place / 'data'}"
    for changes in (
        {"network": "blackbox"},
        {"folds": 3},
        {"mode": "auto"},
        {"sampling": "balanced"},
        {"head_other": -0.5},
        {"calibration": "folds"},
    ):
        assert main(words(data, tmp_path / "no", tmp_path / "cache", **changes)) == 2, changes
    assert not (tmp_path / "no").exists()


def test_weights_by_frequency_and_masks(place: Path, tmp_path: Path) -> None:
    data = f"labels:{place / 'data'}"
    other = {"class_weights": "balanced", "recipe": "masks", "epochs": 1}
    assert main(words(data, tmp_path / "run", tmp_path / "cache", **other)) == 0
    assert dp.load(tmp_path / "run").several_labels


def test_the_backbone_can_learn_too(place: Path, tmp_path: Path) -> None:
    given = words(f"labels:{place / 'data'}", tmp_path / "run", tmp_path / "cache", mode="joint", epochs=1)
    at = given.index("--augmentations")
    assert main([*given[:at], *given[at + 2 :]]) == 0
    assert dp.load(tmp_path / "run").findings(place / "data/0.png")


def test_saliency_knows_the_task(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--model", str(place / "run"), str(place / "data/0.png"), "--out", str(tmp_path), "--json"]
    assert main(["saliency", *asked, "--method", "gradcam", "--target", "crest"]) == 0
    (item,) = told(capsys)["explanations"]
    assert (item["task"], item["class_name"]) == ("multilabel", "crest")
