"""`dprotonet quality` as a user types it, and what it says of planted prototypes."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.birds import Birds
from dprotonet.experiment.quality.quality import QualityCheck, quality_summary
from dprotonet.experiment.quality.row_maps import CONTROLS
from dprotonet.experiment.quality.row_quality import MEASURES

QUICK = dp.preset("fast", iterations=1, zoom=1.0)


def test_quality(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["quality", str(run_folder), "--out", str(tmp_path), "--iterations", "1", "--images", "2"]
    assert main([*words, "--top", "1", "--skip", "far,purity", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content == json.loads((tmp_path / "quality.json").read_text())
    model = dp.load(run_folder)
    names = [item["class_name"] for item in content["prototypes"]]
    assert names == list(model.classes)  # one prototype of each class
    for item in content["prototypes"]:
        assert model.prototypes[item["prototype"]].class_name == item["class_name"]
        assert item["images"] == 2
        assert 0 < item["size"] <= 1
        assert -1 <= item["steadiness"] <= 1
    sizes = [item["size"] for item in content["prototypes"]]
    assert content["size"] == pytest.approx(sum(sizes) / len(sizes))
    assert content["skip"] == ["far", "purity"]
    assert not {"location", "moved", "activation", "purity"} & set(content["measures"])


def test_the_table_of_measures_by_the_networks_own_maps(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["quality", str(run_folder), "--out", str(tmp_path), "--maps", "similarity"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "steadiness" in shown
    assert "similarity maps, 12 images" in shown
    content = json.loads((tmp_path / "quality.json").read_text())
    measures = content["measures"]
    assert list(measures) == list(MEASURES)
    for measure, row in measures.items():
        own = ("activation", "size", "steadiness")  # of the network's maps only
        assert list(row) == ["similarity", *(CONTROLS if measure not in own else ())]
        for name, found in row.items():
            assert found["low"] - 1e-9 <= found["mean"] or measure in ("consistency", "consistent", "purity")
            assert found["low"] <= found["high"], (measure, name)
    assert measures["overlap"]["centre"]["mean"] == 1  # all its rows are the same
    assert measures["stability"]["centre"]["mean"] == 1
    assert measures["moved"]["centre"]["mean"] == measures["location"]["centre"]["mean"] == 0
    assert measures["named"]["object"]["mean"] > measures["named"]["centre"]["mean"]
    assert measures["overlap"]["random"]["mean"] < 0.5
    assert content["visible parts"] > 3


def test_twins_are_named_and_without_noise_all_is_steady(run_folder: Path) -> None:
    model = dp.load(run_folder)
    data = Birds(species=4, per_species=1, split="test", size=64)
    vectors = model.network.prototypes.vectors
    with torch.no_grad():
        vectors[1] = vectors[0]
    check = QualityCheck(model, data, images=1, top=2, noise=0.0, preset=QUICK, skip=("far", "purity"))
    quality = check.run()
    found = quality.prototypes
    label_of = {name: label for label, name in enumerate(model.classes)}
    twins = {item.prototype: item.twins for item in found}
    assert (twins[0], twins[1]) == ((1,), (0,))
    assert quality_summary(quality)["prototypes with a twin"] >= 2
    assert quality.measures["stability"]["decoder"].mean == 1
    for item in found:
        assert item.steadiness == pytest.approx(1.0)
        assert item.stability in (None, 1.0)
        (only,) = [one for one in map(data.__getitem__, range(4)) if one.label == label_of[item.class_name]]
        assert item.part is not None
        assert only.parts[item.part].any()  # a part that the one image shows
        assert item.consistency in (0.0, 1.0)


MISTAKES = [
    ("quality OUT", "does not exist"),
    ("quality RUN --out OUT --images 0", "--images is 0"),
    ("quality RUN --out OUT --top 0", "--top is 0"),
    ("quality RUN --out OUT --skip sound", "--skip sound is unknown; it takes noise, far, purity"),
    ("quality RUN --out OUT --data stamps", "unknown data set"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    places = {"RUN": str(run_folder), "OUT": str(out)}
    assert main([places.get(word, word) for word in words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not out.exists()


def test_data_of_other_classes_is_refused(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(run_folder, tmp_path / "run")
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("species = 4", "species = 6"))
    assert main(["quality", str(run), "--out", str(tmp_path / "out")]) == 2
    assert "other classes" in capsys.readouterr().err
