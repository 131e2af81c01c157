"""The same run twice has the same bytes, in processes whose hashes differ; but for times, named here."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from dprotonet.training.checkpoint import load_tensors, read_metadata, save_tensors

_SCRIPT = Path(__file__).with_name("same_bytes.py")
_CLOCK = {
    "metrics.jsonl": re.compile(rb'"seconds": [0-9.e-]+'),
    "state.json": re.compile(rb'"metrics_size": \d+'),  # of a file that has times in it
    "report.html": re.compile(rb"\d\d \w+ \d{4}, \d\d:\d\d UTC"),
}
"""By file what tells the time."""


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two folders, made at once by two processes."""
    places = [tmp_path_factory.mktemp(name) / "work" for name in ("one", "two")]
    work = []
    for seed, place in enumerate(places, start=1):
        place.mkdir()
        surroundings = {**os.environ, "PYTHONHASHSEED": str(seed), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-W", "ignore", str(_SCRIPT)]
        work.append(subprocess.Popen(command, cwd=place, env=surroundings, stdout=subprocess.DEVNULL))
    assert [one.wait() for one in work] == [0, 0]
    return places


def test_the_same_run_has_the_same_bytes(twice: list[Path]) -> None:
    one, two = (_contents(place) for place in twice)
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []


def test_every_kind_of_file_was_compared(twice: list[Path]) -> None:
    assert all((twice[0] / mode / "checkpoint").is_dir() for mode in ("frozen", "joint"))
    names = {path.name for path in twice[0].rglob("*")}
    wanted = {"model.safetensors", "projection.safetensors", "prototypes.json"}
    wanted |= {
        "metrics.jsonl",
        "config.toml",
        "environment.json",
        "familiarity.safetensors",
        "calibration.json",
    }
    assert wanted | {"run.onnx", "table.csv", "report.html", "test.json", "prototype_facts.json"} <= names


def _contents(place: Path) -> dict[str, bytes]:
    found = {path.relative_to(place).as_posix(): path for path in place.rglob("*") if path.is_file()}
    return {name: _timeless(path) for name, path in sorted(found.items())}


def _timeless(path: Path) -> bytes:
    clock = _CLOCK.get(path.name)
    return path.read_bytes() if clock is None else clock.sub(b"", path.read_bytes())


def test_metadata_have_an_order(tmp_path: Path) -> None:
    """safetensors itself writes them in that of a hash table, which each process has otherwise."""
    names = [f"key {number}" for number in range(20)]
    save_tensors(tmp_path / "one", {"x": torch.ones(3)}, {name: "é" for name in reversed(names)})
    content = (tmp_path / "one").read_bytes()
    places = [content.index(name.encode()) for name in sorted(names)]
    assert places == sorted(places)
    assert read_metadata(tmp_path / "one") == {name: "é" for name in names}
    assert load_tensors(tmp_path / "one")["x"].tolist() == [1, 1, 1]
