"""What commands, steps and heatmaps cost, counted without a clock, is no more than was accepted."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def costs() -> ModuleType:
    """benchmarks/counted_costs.py"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
        import counted_costs
    return counted_costs


def test_nothing_costs_more_than_was_accepted(costs: ModuleType, tmp_path: Path) -> None:
    worse = costs.worse(costs.counted(tmp_path), costs.read_accepted())
    advice = "if that is wanted: python benchmarks/counted_costs.py --accept, and say why in the commit"
    assert worse == [], advice


def test_growth_is_told_and_savings_are_not(costs: ModuleType) -> None:
    accepted = {"predict": {"images": 10, "operations": 10_000}, "gone": {"images": 1}}
    found = {"predict": {"images": 11, "operations": 10_050}, "new": {"images": 1}}
    assert costs.worse(found, accepted) == [
        "gone: only in the accepted ones",
        "new: only here",
        "predict: images 10 → 11",
    ]
    assert costs.worse(
        {"a": {"images": 9, "operations": 10_200}}, {"a": {"images": 10, "operations": 10_000}}
    )
    assert not costs.worse({"a": {"images": 9, "operations": 9}}, {"a": {"images": 10, "operations": 10_000}})


def test_the_counters_count(costs: ModuleType, tmp_path: Path) -> None:
    import torch

    def step() -> None:
        first = torch.ones(1000) + 1  # 4,000 bytes of ones, 4,000 of the sum
        del first
        torch.ones(500).view(10, 50)  # less, and a view is no tensor of its own

    assert costs.of_step(step) == {"operations": 0, "bytes of tensors at most": 8000}
    assert costs.of_step(lambda: torch.ones(2, 3) @ torch.ones(3, 5))["operations"] == 2 * 2 * 3 * 5
    with costs.counting() as found:
        (tmp_path / "a.txt").write_text("a", encoding="utf-8")
        (tmp_path / "a.txt").read_bytes()
    assert found.opened.count(str(tmp_path / "a.txt")) == 2
    (tmp_path / "a.txt").read_bytes()
    assert len(found.opened) == 2
