"""`dprotonet predict --out FILE.parquet`: the rows of the CSV table, with their types."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.end_to_end.prediction_tables import table, words

from dprotonet.cli.main import main


def test_parquet_has_the_same_rows(run_folder: Path, photos: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    assert main(words(run_folder, photos, tmp_path / "a.csv")) == 0
    assert main(words(run_folder, photos, tmp_path / "a.parquet")) == 0
    found = parquet.read_table(tmp_path / "a.parquet")
    types = {field.name: str(field.type) for field in found.schema}
    assert types["probability_2"] == types["distance"] == "double"
    assert (types["familiar"], types["file"], types["class_3"]) == ("bool", "string", "string")
    _same(found.to_pylist(), table(tmp_path / "a.csv"))


def test_parquet_is_given_the_same_rows_with_their_types(
    run_folder: Path, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for pyarrow, where that is not installed."""
    arrow, parquet, written = ModuleType("pyarrow"), ModuleType("pyarrow.parquet"), []
    for name in ("float64", "bool_", "string"):
        setattr(arrow, name, lambda name=name: name)
    arrow.schema = dict  # type: ignore[attr-defined]
    arrow.table = lambda cells, schema: SimpleNamespace(cells=cells, schema=schema)  # type: ignore[attr-defined]

    def write(made: Any, path: str) -> None:
        written.append(made)
        Path(path).write_bytes(b"PAR1")

    parquet.write_table = write  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", parquet)
    assert main(words(run_folder, photos, tmp_path / "a.csv")) == 0
    assert main(words(run_folder, photos, tmp_path / "a.parquet")) == 0
    (made,) = written
    assert list(made.schema) == list(table(tmp_path / "a.csv")[0])
    numbers = {name for name, kind in made.schema.items() if kind == "float64"}
    assert numbers == {"probability", "probability_2", "probability_3", "distance"}
    assert [name for name, kind in made.schema.items() if kind == "bool_"] == ["familiar"]
    rows = [dict(zip(made.cells, row, strict=True)) for row in zip(*made.cells.values(), strict=True)]
    _same(rows, table(tmp_path / "a.csv"))
    assert sorted(os.listdir(tmp_path)) == ["a.csv", "a.parquet"]


def _same(typed: list[dict[str, Any]], text: list[dict[str, str]]) -> None:
    """What CSV says in words, by value."""
    assert len(typed) == len(text)
    for mine, theirs in zip(typed, text, strict=True):
        for name, value in mine.items():
            if value is None:
                assert theirs[name] == ""
            elif isinstance(value, bool):
                assert theirs[name] == str(value).lower()
            else:
                assert type(value)(theirs[name]) == value
