"""Predictions as the rows of a table, and the files that a table is written to: CSV and Parquet.

    file, class, probability, familiar, distance, class_2, probability_2, …, class_set, error

Where an image may have several labels:

    file, probability_LABEL, …, familiar, distance, error

A row either has a class or says in `error` why the image could not be read. Numbers have six decimals. A file
name that is no text in any encoding is written with the bytes in question as \\udcXX. `class_set`, where a
coverage is asked for, is a JSON list.
"""

import csv
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from dprotonet.errors import UserError
from dprotonet.experiment.trained.answered_files import AnsweredFile
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.extras import import_extra
from dprotonet.files import whole

Cell = str | float | bool | None
Row = Sequence[Cell]

_DECIMALS = 6


def table_columns(likely: int, coverage: float | None = None) -> list[str]:
    """Names of the columns, with the `likely` likeliest classes of an image and its prediction set."""
    others = [f"{name}_{rank}" for rank in range(2, likely + 1) for name in ("class", "probability")]
    sets = [] if coverage is None else ["class_set"]
    return ["file", "class", "probability", "familiar", "distance", *others, *sets, "error"]


def table_row(item: AnsweredFile, likely: int, coverage: float | None = None) -> list[Cell]:
    """The cells of one image, in the order of `table_columns`."""
    name = _text(str(item.path))
    if item.answer is None:
        empty: list[Cell] = [None] * (len(table_columns(likely, coverage)) - 2)
        return [name, *empty, _text(item.reason)]
    said = item.answer.prediction_without_evidence(name, coverage=coverage)
    (first, *others) = _likeliest(said, likely)
    rest = [cell for pair in others for cell in pair]
    distance = None if said.distance is None else round(said.distance, _DECIMALS)
    return [name, *first, said.familiar, distance, *rest, *_set_cell(said), None]


def label_columns(labels: Sequence[str]) -> list[str]:
    """Names of the columns where an image may have several labels: a probability for each."""
    return ["file", *(f"probability_{_text(name)}" for name in labels), "familiar", "distance", "error"]


def label_row(item: AnsweredFile, labels: Sequence[str]) -> list[Cell]:
    """The cells of one image, in the order of `label_columns`."""
    name = _text(str(item.path))
    if item.answer is None:
        return [name, *[None] * (len(labels) + 2), _text(item.reason)]
    shares: list[Cell] = [round(value, _DECIMALS) for value in item.answer.probabilities().tolist()]
    distance = None if item.answer.distance is None else round(item.answer.distance, _DECIMALS)
    return [name, *shares, item.answer.familiar, distance, None]


def _set_cell(said: Prediction) -> list[Cell]:
    """The prediction set as a JSON list; no cell where none was asked for."""
    if said.class_set is None:
        return []
    return [json.dumps([_text(name) for name in said.class_set], ensure_ascii=False)]


def _likeliest(said: Prediction, number: int) -> list[tuple[str, float]]:
    """Class and probability, the predicted one first also among equals."""
    ranked = sorted(said.probabilities.items(), key=lambda pair: (pair[0] != said.class_name, -pair[1]))
    return [(_text(name), round(value, _DECIMALS)) for name, value in ranked[:number]]


def _text(words: str) -> str:
    """Names of files may hold what no encoding can write."""
    return words.encode("utf-8", "backslashreplace").decode("utf-8")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """UTF-8; what is unknown is empty, yes and no are true and false."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in row] for row in rows)


def _cell(value: Cell) -> str | float | None:
    return str(value).lower() if isinstance(value, bool) else value


def write_parquet(path: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Typed: text, numbers, yes and no; what is unknown is null."""
    arrow, parquet = _arrow(), _arrow("pyarrow.parquet")
    kinds = {"probability": arrow.float64(), "distance": arrow.float64(), "familiar": arrow.bool_()}
    schema = arrow.schema([(name, kinds.get(name.partition("_")[0], arrow.string())) for name in columns])
    cells: dict[str, list[Cell]] = {name: [] for name in columns}
    for row in rows:
        for name, value in zip(columns, row, strict=True):
            cells[name].append(value)
    parquet.write_table(arrow.table(cells, schema=schema), str(path))


def _arrow(module: str = "pyarrow") -> Any:
    return import_extra(module, extra="parquet", needed_for="a table as .parquet")


TABLE_WRITERS: dict[str, Callable[[Path, Sequence[str], Iterable[Row]], None]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
}


def part_of(out: Path) -> Path:
    """Where the rows are kept until the table is whole."""
    return out.with_name(f"{out.name}.part")


def check_table(out: Path, *, overwrite: bool) -> None:
    """Better to know before the work than after it that the table cannot be written."""
    if out.suffix.lower() == ".parquet":
        _arrow()
    if out.is_dir():
        raise UserError(f"{out} is a folder; name a file that is not there yet")
    if out.exists() and not overwrite and not part_of(out).is_file():  # a kill came before it was removed
        raise UserError(f"{out} exists already; --overwrite replaces it, or name another file")


def write_table(out: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """The whole table or none, in the format that the ending says."""
    with whole(out) as temporary:
        TABLE_WRITERS[out.suffix.lower()](temporary, columns, rows)
