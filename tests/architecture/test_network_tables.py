"""The tables of networks in the docs are what the committed results say, and these are of the plans."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from dprotonet.experiment.benchmark.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
TABLES = {  # the page and the plan of each
    "frozen-general": ("results.md", "frozen/general.toml"),
    "frozen-medical": ("results.md", "frozen/medical.toml"),
    "joint-general": ("training.md", "joint/general.toml"),
    "joint-rivals": ("results.md", "joint/rivals.toml"),
    "joint-backbone": ("training.md", "joint/backbone.toml"),
    "parts": ("parts.md", "frozen/parts.toml"),
}


@pytest.fixture(scope="module")
def tables() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "docs")  # where the scripts beside it are found when it runs as one
        yield loaded()


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("network_tables", ROOT / "docs" / "network_tables.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def results(name: str) -> dict:
    found: dict = json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))
    return found


def test_the_pages_are_drawn_from_the_results(tables: ModuleType) -> None:
    for page, text in tables.drawn().items():
        assert text == (ROOT / "docs" / page).read_text(encoding="utf-8"), "run python docs/network_tables.py"


@pytest.mark.parametrize("word", ["runs/general", "frozen-genral=runs/general", "frozen-general="])
def test_results_are_never_taken_for_a_table_by_their_place(tables: ModuleType, word: str) -> None:
    with pytest.raises(SystemExit, match="write NAME=FOLDER, NAME being one of frozen-general, "):
        tables.main([word])


@pytest.mark.parametrize("name", TABLES)
def test_every_accuracy_of_a_table_is_the_mean_of_its_runs(name: str) -> None:
    """Literally, from the text of the page: no code of the script takes part."""
    text = (ROOT / "docs" / TABLES[name][0]).read_text(encoding="utf-8")
    block = text.split(f"<!-- {name}:")[1].split("<!-- end")[0]
    head, _, *lines = [line.strip("|").split("|") for line in block.splitlines() if line.startswith("|")]
    column = next(item["column"] for item in results(name)["results"])
    place = next(place for place, title in enumerate(head) if title.strip().split(",")[0] == column)
    checked = 0
    for cells in lines:
        found = [
            item["accuracy"]
            for item in results(name)["results"]
            if (item["row"], item["column"]) == (cells[0].strip(), column)
        ]
        if found:
            written = re.match(r"\s*\**([\d.]+)", cells[place])
            assert written is not None
            assert float(written.group(1)) == pytest.approx(100 * sum(found) / len(found), abs=0.051)
            checked += 1
    assert checked >= 4


def test_readme_has_the_mean_of_the_runs() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("| DProtoNet, parts |")]
    written = [cell.strip(" *") for cell in line.strip("|").split("|")][2]
    found = [
        item["accuracy"]
        for item in results("frozen-general")["results"]
        if (item["row"], item["column"]) == ("DProtoNet, parts", "CUB")
    ]
    assert float(written) == pytest.approx(100 * sum(found) / len(found), abs=0.051)


@pytest.mark.parametrize("name", TABLES)
def test_results_are_of_the_plan(name: str) -> None:
    plan = Plan.read(ROOT / "configs" / TABLES[name][1])
    cells = {(cell.row, cell.column, cell.seed) for cell in plan.cells}
    found = [(item["row"], item["column"], item["seed"]) for item in results(name)["results"]]
    assert len(set(found)) == len(found) == results(name)["finished"]
    assert set(found) <= cells


def test_quality_is_the_mean_over_seeds() -> None:
    """Literally, from the text of the page and the JSON of each seed."""
    text = (ROOT / "docs" / "parts.md").read_text(encoding="utf-8")
    text = text.split("<!-- parts-rows:")[1].split("## On photographs")[0]
    (line,) = [line for line in text.splitlines() if line.startswith("| overlap of rows (IoU")]
    found = [results(f"parts-quality-{seed}")["measures"]["overlap"]["decoder"]["mean"] for seed in (0, 1, 2)]
    assert float(line.split("|")[2].split("±")[0]) == pytest.approx(sum(found) / 3, abs=0.0051)
    (line,) = [line for line in text.splitlines() if line.startswith("| class heatmap (`mdm`)")]
    names = [f"parts-intervention-{seed}" for seed in (0, 1, 2)]
    agreed = [results(name)["agreement"]["exchange"]["mdm"]["correlation_sum"]["mean"] for name in names]
    assert float(line.split("|")[2].split("±")[0]) == pytest.approx(sum(agreed) / 3, abs=0.0051)
