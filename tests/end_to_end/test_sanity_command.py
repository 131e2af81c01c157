"""`dprotonet sanity` as a user types it."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.figures import forgetting_curves


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


MISTAKES = [
    ("sanity RUN", "--out"),
    ("sanity RUN --out OUT --limit 0", "--limit is 0"),
    ("sanity RUN --out OUT --stages 0", "--stages is 0"),
    ("sanity RUN --out OUT --methods lime", "unknown method 'lime'"),
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
