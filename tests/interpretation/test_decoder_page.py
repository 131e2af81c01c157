"""The pieces of Python in docs/decoder.md run, one after the other, and do what is said about them."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor

PAGE = Path(__file__).resolve().parents[2] / "docs" / "decoder.md"


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = Net(classes=1000).eval()
    images = torch.randn(2, 3, 32, 40, generator=torch.Generator().manual_seed(1))

    def regions(given: Tensor) -> Tensor:
        return model.features(given).flatten(2).transpose(1, 2)

    def run(_outputs: None, given: dict[str, np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            return [model(torch.from_numpy(given["images"])).numpy()]

    known: dict[str, Any] = {
        "model": model,
        "one_logit": Net(classes=1).eval(),
        "several_labels": Net(classes=3).eval(),
        "age_of_bones": Net(classes=1).eval(),
        "two_heads": lambda given: {"right": model(given), "left": -model(given)},
        "list_of_heads": lambda given: [model(given), -model(given)],
        "images": images,
        "torch": torch,
        "volume_network": torch.nn.Sequential(
            torch.nn.Conv3d(1, 4, 3, stride=2),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool3d(1),
            torch.nn.Flatten(),
        ),
        "regions": regions,
        "prototype": torch.ones(12),
        "session": SimpleNamespace(run=run),
    }
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), known)
    assert known["maps"].shape == (2, 32, 40)
    assert known["attributions"].shape == images.shape
    assert (tmp_path / "cat").exists()
    assert known["edges"].heatmap.max() == pytest.approx(1)
    assert known["found"].node == "tabby"
    assert known["found"].passes.backward == 0
    assert [item.node for item in known["healthy"]] == ["probability of class 0"] * 2
    assert [item.facts["task"] for item in known["labels"]] == ["multilabel"] * 2
    assert [item.facts["task"] for item in known["left"]] == ["single"] * 2
    for inside, source in zip(known["in_images"], known["in_sources"], strict=True):
        assert inside.heatmap.max() == pytest.approx(1)
        assert (inside.raw - source.raw).abs().max() > 1e-3
