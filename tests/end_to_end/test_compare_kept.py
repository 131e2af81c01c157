"""What `dprotonet compare` keeps is used again only for what it was measured on, and gaps are counted."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.cli.main import main
from dprotonet.data.birds import Birds


def hot_corner(folder: Path, corner: int) -> Path:
    """Maps that are hot in one corner of each image."""
    folder.mkdir(parents=True, exist_ok=True)
    values = np.zeros((8, 8), dtype=np.float32)
    values[4 * (corner // 2) :, 4 * (corner % 2) :] = 1
    for number in range(2):
        np.save(folder / f"{number}.npy", values)
        os.utime(folder / f"{number}.npy", ns=(corner * 10**9, corner * 10**9))
    return folder


def asked(images: Path, out: Path) -> list[str]:
    return ["compare", "timm:test_resnet:none", "--data", f"images:{images}", "--out", str(out)]


def compared(two_birds: Path, out: Path, methods: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = asked(two_birds, out)
    torch.manual_seed(0)  # the network has no weights but those it is drawn with
    assert main([*words, "--steps", "2", "--methods", methods, "--json"]) == 0
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {row["method"]: row for row in content["rows"]}


def test_maps_made_anew_are_measured_anew(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign = f"file:{hot_corner(tmp_path / 'maps', 1)}"
    before = compared(two_birds, tmp_path / "out", foreign, capsys)[foreign]
    hot_corner(tmp_path / "maps", 3)
    after = compared(two_birds, tmp_path / "out", foreign, capsys)[foreign]
    fresh = compared(two_birds, tmp_path / "fresh", foreign, capsys)[foreign]
    assert after["measures"] == fresh["measures"] != before["measures"]


def test_names_that_look_alike_as_folders_are_kept_apart(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = hot_corner(tmp_path / "a" / "b", 1), hot_corner(tmp_path / "a_b", 2)
    rows = compared(two_birds, tmp_path / "out", f"file:{one},file:{other}", capsys)
    assert rows[f"file:{one}"]["measures"] != rows[f"file:{other}"]["measures"]


def test_controls_alone_make_a_table(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = compared(two_birds, tmp_path / "out", "random", capsys)
    assert list(rows) == ["random", "centre", "fake"]
    assert (tmp_path / "out" / "grid.png").exists()


def test_a_share_that_differs_a_little_is_another_protocol(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    compared(two_birds, tmp_path / "out", "random", capsys)
    words = asked(two_birds, tmp_path / "out")
    torch.manual_seed(0)
    assert main([*words, "--steps", "2", "--methods", "random", "--top", "0.204"]) == 2
    assert "another protocol" in capsys.readouterr().err


def test_a_plan_that_is_no_plan_is_damaged(
    two_birds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "plan.json").write_text("[]")
    words = asked(two_birds, tmp_path / "out")
    assert main([*words, "--methods", "random"]) == 2
    assert "is damaged" in capsys.readouterr().err


def test_an_empty_truth_counts_as_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Four test images: two with a mask, one with an empty mask, one without."""
    birds = Birds(species=2, per_species=4, split="test", size=64)
    root = tmp_path / "photos"
    masks = {0: True, 1: True, 2: False}
    for label in range(2):
        own = [index for index in range(len(birds)) if birds.labels[index] == label]
        for number, index in enumerate(own):
            split, name = ("test", 2 * label + number) if number < 2 else ("train", index)
            sample = birds[index]
            assert sample.truth is not None
            save(root / split / str(label) / f"{name}.png", sample.image.permute(1, 2, 0).numpy())
            if split == "test" and name in masks:
                truth = sample.truth.numpy().astype(np.uint8) * 255 * masks[name]
                save(root / "masks" / split / str(label) / f"{name}.png", truth)
    words = ["compare", "timm:test_resnet:none", "--data", f"folder:{root}", "--out", str(tmp_path / "out")]
    assert main([*words, "--methods", "random", "--steps", "2", "--json"]) == 0
    protocol = json.loads(capsys.readouterr().out)["protocol"]
    assert (protocol["images"], protocol["without truth"]) == (4, 2)


def save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)
