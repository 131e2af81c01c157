"""`make bench` finds the ratios in what benchmarks print, and goes on where one fails."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    """benchmarks/bench.py"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        import bench
    return bench


def test_what_is_listed_is_there(bench: ModuleType) -> None:
    assert set(bench.BENCHMARKS) <= {path.stem for path in FOLDER.glob("*.py")}


def test_numbers_are_found_by_their_path(bench: ModuleType) -> None:
    content = {
        "time_ratio": 0.5,
        "networks": {"a": {"x_ratio": 1, "x": 7}, "b": {"x_ratio": None, "all_ratio": [1, 2]}},
        "of_full": {"cache": 2.0, "more": {"deep": 3}},
        "ratio to masks": {"parts": {"step": 0.1}},
    }
    assert dict(bench.numbers(content, "time_ratio")) == {"time_ratio": 0.5}
    assert dict(bench.numbers(content, "networks.*.*_ratio")) == {
        "networks.a.x_ratio": 1,
        "networks.b.x_ratio": None,
    }
    assert dict(bench.numbers(content, "of_full")) == {"of_full.cache": 2.0, "of_full.more.deep": 3}
    assert dict(bench.numbers(content, "ratio to *")) == {"ratio to masks.parts.step": 0.1}
    assert dict(bench.numbers(content, "nothing")) == {}


SCRIPTS = {
    "fine": 'print("some words"); print(\'{"ratio": 0.25, "other": 3}\')',
    "grown": 'print(\'{"costs": {"predict": 2}, "worse": ["predict: images 1 → 2"]}\')',
    "broken": "raise SystemExit(3)",
    "slow": "import time; time.sleep(60)",
    "mute": "print('{\"seconds\": 1}')",
}


def test_one_object_with_all_ratios(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that fails, lasts or says nothing is named, and the others go on."""
    for name, code in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(bench, "HERE", tmp_path)
    monkeypatch.setattr(
        bench, "BENCHMARKS", {name: bench.Benchmark("", ("ratio", "costs")) for name in SCRIPTS}
    )
    monkeypatch.setattr(sys, "argv", ["bench.py", "--seconds", "5", "--out", str(tmp_path / "all.json")])
    with pytest.raises(SystemExit) as stop:
        bench.main()
    assert stop.value.code == 1
    found = json.loads(capsys.readouterr().out)
    assert found["ratios"] == {"fine": {"ratio": 0.25}, "grown": {"costs.predict": 2}}
    assert found["worse"] == ["predict: images 1 → 2"]
    assert set(found["failed"]) == {"broken", "slow", "mute"}
    assert "timed out" in found["failed"]["slow"]
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8")) == found
    assert subprocess.run(
        [sys.executable, FOLDER / "bench.py", "--help"], check=True, capture_output=True
    ).stdout
