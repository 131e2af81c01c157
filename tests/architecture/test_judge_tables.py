"""docs/judge_tables.py: ranks and agreement of judges are what their definitions say."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from dprotonet.metrics.judges import GROUPS, asks

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def tables() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(ROOT / "docs"), *sys.path])
        spec = importlib.util.spec_from_file_location("judge_tables", ROOT / "docs" / "judge_tables.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def part(**means: dict[str, float | None]) -> dict[str, Any]:
    """Two judges that want more, ROAD and SaCo, and one that wants less, deletion."""
    rows = [
        {"method": name, "measures": {m: {"mean": v} for m, v in own.items()}} for name, own in means.items()
    ]
    higher = {"ROAD": True, "SaCo": True, "deletion": False}
    asked: dict[str, list[str]] = {}
    for group in GROUPS:
        asked |= {group: names} if (names := [name for name in higher if asks(name) == group]) else {}
    return {"rows": rows, "higher is better": higher, "asks": asked, "optimises": {"a": ["deletion"]}}


FOUR = part(
    a={"ROAD": 3.0, "SaCo": 1.0, "deletion": 0.1},
    b={"ROAD": 2.0, "SaCo": 2.0, "deletion": 0.2},
    c={"ROAD": 1.0, "SaCo": 2.0, "deletion": 0.3},
    random={"ROAD": 0.0, "SaCo": None, "deletion": 0.4},
)


def test_the_best_is_first_whichever_way_is_up_and_equals_share_places(tables: ModuleType) -> None:
    assert tables.ranks_of(FOUR) == {
        "ROAD": {"a": 1, "b": 2, "c": 3, "random": 4},
        "SaCo": {"a": 3, "b": 1.5, "c": 1.5, "random": 4},
        "deletion": {"a": 1, "b": 2, "c": 3, "random": 4},
    }


def test_judges_agree_by_their_order_of_the_methods_without_controls(tables: ModuleType) -> None:
    found = tables.agreement(FOUR)
    assert found["ROAD", "deletion"] == pytest.approx(1)
    assert found["ROAD", "SaCo"] == found["SaCo", "ROAD"] == pytest.approx(-(0.75**0.5))


def test_what_a_method_optimises_does_not_count_for_it(tables: ModuleType) -> None:
    groups = {group: names for group, names in FOUR["asks"].items() if names}
    ranks = tables.ranks_of(FOUR)
    assert tables._fair(FOUR, ranks, groups, "a") == (1 + 3) / 2
    assert tables._fair(FOUR, ranks, groups, "b") == pytest.approx((2 + 1.5 + 2) / 3)


def test_the_tables_are_drawn_from_a_file_of_results(
    tables: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured, none = FOUR | {"protocol": {"images": 3}}, {"protocol": {"images": 0}}
    path = tmp_path / "found.json"
    path.write_text(json.dumps({"quick": measured, "all": none}), encoding="utf-8")
    tables.main([str(path)])
    said = capsys.readouterr().out
    assert said.count("*3 images:*") == 2
    assert "| `b` | 1.8 | 2.0 | 2.0 | 1.5 |" in said
    assert "| deletion ↓ | **0.1‡** | 0.2 | 0.3 | 0.4 |" in said
    assert "| what it removes | – | 1.00 | −0.87 |" in said
    with pytest.raises(SystemExit, match="which results"):
        tables.main([])
