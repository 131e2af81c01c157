"""`dprotonet sanity` as a user types it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.data.folder import loose_images
from dprotonet.experiment.compare.method import Case, Method, MethodMaps
from dprotonet.experiment.quality import sanity
from dprotonet.experiment.quality.sanity import SanityCheck
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.figures import forgetting_curves
from dprotonet.interpretation.base import Passes


def test_maps_of_a_network_fade_as_it_forgets_and_a_drawn_map_stays(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = "mdm:fast,iterations=2,zoom=1,gradcam,centre"
    words = ["sanity", str(run_folder), "--out", str(tmp_path), "--methods", methods, "--limit", "3"]
    assert main([*words, "--stages", "3", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    last = content["stages"][-1]["rank correlation"]
    assert last["centre"] == pytest.approx(1.0)  # it never looked at the network
    assert abs(last["gradcam"]) < 0.9
    assert abs(last["mdm:fast,iterations=2,zoom=1"]) < 0.9
    layers = [stage["layer"] for stage in content["stages"]]
    assert layers[0] == "head"
    assert layers[-1].startswith("encoder.backbone")
    assert content == json.loads((tmp_path / "sanity.json").read_text())
    assert Image.open(content["picture"]).width > 800
    assert main([*words, "--stages", "1", "--methods", "gradcam"]) == 0
    assert "should fall towards 0" in capsys.readouterr().out


def test_only_images_that_were_looked_at_are_counted(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sanity",
        "timm:test_resnet:none",
        "--data",
        f"images:{two_birds}",
        "--out",
        str(tmp_path / "out"),
    ]
    words += ["--methods", "centre,random", "--stages", "1", "--limit", "50"]
    assert main(words) == 0
    assert "2 images" in capsys.readouterr().out
    content = json.loads((tmp_path / "out" / "sanity.json").read_text())
    assert content["images"] == 2
    assert content["explained"] == {"centre": 2, "random": 2}
    assert content["failures"] == []
    assert content["stages"][0]["rank correlation"]["random"] == pytest.approx(1.0)  # drawn by image


def test_a_method_that_fails_on_one_image_does_not_stop_the_others(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    maps, out = tmp_path / "maps", tmp_path / "out"
    maps.mkdir()
    np.save(maps / "0.npy", np.arange(49).reshape(7, 7))
    np.save(maps / "1.npy", np.full((7, 7), np.nan))
    words = ["sanity", "timm:test_resnet:none", "--data", f"images:{two_birds}", "--out", str(out)]
    assert main([*words, "--methods", f"file:{maps},gradcam", "--stages", "2"]) == 0
    captured, content = capsys.readouterr(), json.loads((out / "sanity.json").read_text())
    assert captured.err.count("failed on") == 1  # it is not asked again at every stage
    assert "1 of 2 images" in " ".join(captured.out.split())
    assert content["explained"] == {f"file:{maps}": 1, "gradcam": 2}
    (failure,) = content["failures"]
    assert failure["image"] == "1.png"
    assert "NaN" in failure["reason"]
    assert content["stages"][1]["rank correlation"][f"file:{maps}"] == pytest.approx(1.0)


def test_a_method_that_always_fails_is_a_failed_computation(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, nowhere = tmp_path / "out", f"file:{tmp_path / 'nowhere'}"
    words = ["sanity", "timm:test_resnet:none", "--data", f"images:{two_birds}", "--out", str(out)]
    assert main([*words, "--methods", f"{nowhere},centre", "--stages", "1", "--json"]) == 1
    assert f"{nowhere} explained no image" in capsys.readouterr().err
    content = json.loads((out / "sanity.json").read_text())
    assert content["explained"] == {nowhere: 0, "centre": 2}
    assert content["stages"][0]["rank correlation"] == {nowhere: None, "centre": pytest.approx(1.0)}
    assert Image.open(content["picture"]).width > 800


def test_an_image_lost_at_a_late_stage_counts_at_none(
    two_birds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From stage to stage a mean is over the same images."""
    classifier = Classifier.open("timm:test_resnet:none")
    asked: list[int] = []

    def fading(case: Case) -> MethodMaps:
        asked.append(case.place)
        raw = torch.rand(case.inputs.shape[-2:], generator=torch.Generator().manual_seed(len(asked)))
        broken = len(asked) > 4 and case.place == 1  # at the second stage
        return MethodMaps(raw / (0 if broken else 1), raw, Passes(0, 0))

    monkeypatch.setattr(sanity, "method", lambda name, _classifier: Method(name, fading))
    data = loose_images(two_birds, size=classifier.size)
    check = SanityCheck(classifier, data, ["fading"], stages=3)
    failures = [progress.failure for progress in check.run() if progress.failure is not None]
    assert asked == [0, 1, 0, 1, 0, 1, 0]
    assert check.failures == failures
    assert "random down to" in failures[0].reason
    assert check.curves()["fading"].shape == (1, 3)
    assert not check.curves()["fading"].isnan().any()
    assert check.idle == []


MISTAKES = [
    ("sanity RUN", "--out"),
    ("sanity RUN --out OUT --limit 0", "--limit is 0"),
    ("sanity RUN --out OUT --stages 0", "--stages is 0"),
    ("sanity RUN --out OUT --methods lemon", "unknown method 'lemon'"),
    ("sanity timm:test_resnet:none --out OUT", "on which images?"),
]


@pytest.mark.parametrize(("words", "message"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_mistakes_are_one_line_and_exit_2(
    words: str, message: str, run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {"RUN": str(run_folder), "OUT": str(tmp_path / "out")}
    assert main([places.get(word, word) for word in words.split()]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "out").exists()


def test_curves_leave_out_flat_maps_and_refuse_other_shapes() -> None:
    curves = {"mdm": torch.tensor([[0.9, torch.nan], [0.5, 0.1]]), "gradcam": torch.rand(2, 2)}
    assert forgetting_curves(curves, layers=["head", "backbone.blocks.6"]).width > 800
    with pytest.raises(ValueError, match=r"must be \(N, 3\)"):
        forgetting_curves(curves, layers=["a", "b", "c"])
    with pytest.raises(ValueError, match="at least one"):
        forgetting_curves({}, layers=["a"])
