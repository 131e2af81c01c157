"""`--task` as a user types it: a network with one output, or with several labels, from a file of weights."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.compat import import_guarded

QUICK = ["--method", "gradcam", "--json"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("task")
    torch.manual_seed(0)
    for count in (1, 3):
        model = import_guarded("timm").create_model("test_resnet", num_classes=count)
        torch.save(model.state_dict(), folder / f"{count}.pth")
    (folder / "images").mkdir()
    for number in range(2):
        Image.effect_noise((64, 64), 40 + 40 * number).convert("RGB").save(folder / f"images/{number}.png")
    return folder


def words(place: Path, outputs: int) -> list[str]:
    model = f"timm:test_resnet:{place / f'{outputs}.pth'}"
    return ["saliency", "--model", model, str(place / "images/0.png"), "--out", str(place / "out"), *QUICK]


def told(capsys: pytest.CaptureFixture[str]) -> tuple[list[dict[str, Any]], str]:
    captured = capsys.readouterr()
    return json.loads(captured.out)["explanations"], captured.err


def test_one_output_is_read_as_a_logit_and_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = []
    for target in ("0", "class 1"):
        assert main([*words(place, 1), "--target", target]) == 0
        (item,), warned = told(capsys)
        assert (item["task"], item["node"]) == ("binary", f"logit of class {target[-1]}")
        assert "task 'binary' found" in warned
        assert "give task='regression'" in warned
        shares.append(item["probability"])
    assert sum(shares) == pytest.approx(1)
    assert all(0 < share < 1 for share in shares)


def test_a_value_up_and_down(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values = []
    for target in ("up", "down"):
        assert main([*words(place, 1), "--task", "regression", "--target", target]) == 0
        (item,), warned = told(capsys)
        assert (item["task"], item["class_name"], item["probability"]) == ("regression", target, None)
        assert "found" not in warned
        values.append(item["value"])
    assert values[0] == values[1] != 0  # the value itself has no direction


def test_several_labels_each_with_a_map(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words(place, 3), "--task", "multilabel", "--target", "0,2"]) == 0
    items, _ = told(capsys)
    assert [item["label"] for item in items] == [0, 2]
    assert len({item["folder"] for item in items}) == 2
    assert all((Path(item["folder"]) / "overlay.png").is_file() for item in items)


REFUSED = [
    (1, ["--task", "single"], "its task is not 'single'"),
    (3, ["--task", "binary"], "task 'binary' is for one output per image, and the model gives 3"),
    (1, ["--target", "2"], "its classes are 0 to 1"),
    (1, ["--task", "regression", "--target", "1"], "explained up or down, not '1'"),
]


@pytest.mark.parametrize(("outputs", "more", "message"), REFUSED)
def test_mistakes(
    place: Path, outputs: int, more: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words(place, outputs), *more]) == 2
    assert message in capsys.readouterr().err


def test_compare_of_a_value(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, data = f"timm:test_resnet:{place / '1.pth'}", f"images:{place / 'images'}"
    given = ["compare", model, "--data", data, "--methods", "gradcam", "--steps", "3", "--json"]
    assert main([*given, "--task", "regression", "--target", "down", "--out", str(place / "down")]) == 0
    content = json.loads(capsys.readouterr().out)
    assert content["task"] == "regression"
    assert content["protocol"]["class"] == "down"
    assert set(content["rows"][0]["measures"]) == {"deletion", "insertion"}
    assert main([*given, "--target", "down", "--out", str(place / "other")]) == 2
    assert "--target down is for a regression" in capsys.readouterr().err
