"""`dprotonet report` as a user types it."""

import json
import shutil
from pathlib import Path

import pytest
from tests.conftest import rival_config

from dprotonet.cli.main import main
from dprotonet.experiment.runs.trainer import Trainer

QUICK = ["--iterations", "1", "--images", "1", "--top", "1"]


@pytest.fixture(scope="module")
def run(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reported") / "run"
    shutil.copytree(run_folder, folder)
    return folder


def test_a_report_for_programs_and_people(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run), *QUICK, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["report"] == str(run / "report.html")
    assert 0 <= content["accuracy"] <= 1
    assert content["prototypes"] == 8
    page = (run / "report.html").read_text(encoding="utf-8")
    assert content["bytes"] == len(page.encode())
    assert page.startswith("<!doctype html>")
    assert "looks like" in page
    assert not list(run.glob("*.tmp"))
    assert main(["report", str(run), *QUICK, "--heatmaps", "stored"]) == 0  # replaces the first
    shown = capsys.readouterr()
    assert "balanced accuracy" in shown.out
    assert "not in the report: Heatmaps of" in shown.err


def test_only_reports_are_replaced(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    letter = tmp_path / "letter.html"
    letter.write_text("<p>Dear reader</p>")
    without = ["report", str(run), "--data", "none", "--heatmaps", "stored"]
    assert main([*without, "-o", str(letter)]) == 2
    assert "is not a report; add --overwrite" in capsys.readouterr().err
    assert letter.read_text() == "<p>Dear reader</p>"
    assert main([*without, "-o", str(tmp_path)]) == 2
    assert "is a folder" in capsys.readouterr().err
    assert main([*without, "-o", str(letter), "--overwrite"]) == 0
    assert "What this page does not have" in letter.read_text()
    assert main([*without, "--out", str(letter)]) == 0  # now it is a report


def test_mistakes_are_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in (
        (["--top", "0"], "--top is 0"),
        (["--images", "-1"], "--images is -1"),
        (["--compare", str(tmp_path)], "no table.json"),
        (["--data", "folder:/no/such/place"], "/no/such/place"),
    ):
        out = tmp_path / "page.html"
        assert main(["report", str(run), "--heatmaps", "stored", "-o", str(out), *words]) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.strip().count("\n") == 0
        assert not out.exists()


def test_a_place_without_rights_is_refused_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dprotonet.report.write.os.access", lambda *_: False)
    assert main(["report", str(tmp_path / "run")]) == 2
    assert f"{tmp_path} may not be written to" in capsys.readouterr().err


def test_a_black_box_is_reported_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = {
        "species": 2,
        "train_per_species": 4,
        "val_per_species": 2,
        "test_per_species": 3,
        "image_size": 64,
    }
    training = {"epochs": 2, "warm_epochs": 1, "push_every": 2, "batch_size": 4}
    tables = {"data": data, "network": {"backbone": "timm:test_resnet:none"}, "training": training}
    for _ in Trainer(rival_config("blackbox", tables), tmp_path / "run").run():
        pass
    assert main(["report", str(tmp_path / "run"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["prototypes"] == 0
    assert 0 <= content["auroc"] <= 1  # two classes
    assert any("black box" in text for text in content["missing"])
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "AUROC" in page
    assert "looks like" not in page
