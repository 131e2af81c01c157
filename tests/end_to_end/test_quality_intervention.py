"""`dprotonet quality --intervention` as a user types it, at its smallest."""

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.cli.quality_intervention import intervention_of, show_intervention
from dprotonet.data.birds import Birds
from dprotonet.data.birds.species import PARTS
from dprotonet.experiment.quality.quality import QualityCheck

SMALL = ["--images", "1", "--top", "1", "--iterations", "1", "--explainers", "mdm,gradcam"]


def test_quality_with_interventions(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quality", str(run_folder), "--out", str(tmp_path), *SMALL, "--intervention", "2"]
    assert main([*words, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)["intervention"]
    assert content == json.loads((tmp_path / "intervention.json").read_text())
    assert "intervention" not in json.loads((tmp_path / "quality.json").read_text())
    assert (len(content["images"]), content["exchanges"]) == (2, 3)
    assert content["decoder"] == "fast,iterations=1"
    assert list(content["importance"]["exchange"]) == list(PARTS)
    for form in ("exchange", "exchange, lead", "removal"):
        found = content["agreement"][form]
        assert {"mdm", "gradcam", "rows", "single rows", "area", "centre", "random"} <= set(found)
        assert all(-1 <= cells["correlation_sum"]["mean"] <= 1 for cells in found.values())
        assert all(0 <= cells["top_sum"]["mean"] <= 1 for cells in found.values())
    assert set(content["contrast"]) == {"the sibling's part", "another part"}
    show_intervention(content, tmp_path / "intervention.json")
    shown = " ".join(capsys.readouterr().out.split())
    assert "against the fall of the logit, one part exchanged, 2 images" in shown
    assert "against the fall of the logit, one part removed, 2 images" in shown
    assert "the fall of the lead over the likeliest other class, one part exchanged, 2 images" in shown
    assert shown.count("truth again") == 2  # removal is not drawn by lot
    assert "deciding part" in shown


def test_no_intervention_unless_asked(run_folder: Path) -> None:
    model = dp.load(run_folder)
    quality = QualityCheck(model, Birds(species=4, per_species=1, size=64))
    assert intervention_of(quality, 0, explainers="mdm", decoder="fast") is None
    assert intervention_of(quality, 1, explainers="mdm", decoder="fast") is not None


def photographs(folder: Path, run: Path) -> str:
    """Finished images with the classes of the run."""
    names = json.loads((run / "prototypes.json").read_text())["classes"]
    for split in ("train", "test"):
        for number, name in enumerate(names):
            for copy in range(3):
                path = folder / split / name / f"{copy}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                colour = (40 * number, 60 * copy, 100 * (split == "test"))
                Image.new("RGB", (64, 64), colour).save(path)
    return f"folder:{folder}"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--intervention -1", "--intervention is -1"),
        ("--intervention 2 --explainers tarot", "unknown method 'tarot'"),
        ("--intervention 2 --data PHOTOS", "one part changed"),
    ],
)
def test_mistakes_are_found_before_the_work(
    words: str, message: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = photographs(tmp_path / "photos", run_folder)
    run = shutil.copytree(run_folder, tmp_path / "run")
    given = [photos if word == "PHOTOS" else word for word in words.split()]
    assert main(["quality", str(run), "--out", str(tmp_path / "out"), *given]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
