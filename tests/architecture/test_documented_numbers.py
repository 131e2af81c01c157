"""Numbers in tables of README and docs stand in the committed results that their section links to.

A section with a table links to the JSON it came from, and every decimal number of the table is one
of its values, as it is or in percent, rounded as printed. Tables between marks are drawn from their JSON, and
test_network_tables.py checks them. Tables that are no measurements, or are checked elsewhere, are listed
here by section.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ("tables-quick.md", "fidelity.md")  # whole pages with tests of their own
SETTING = "values of settings or of protocols, not measurements"
ELSEWHERE = "test_numbers_of_other_pages.py looks for them on the page they come from"
SEEN = "accuracies that somebody had seen, of runs that were not kept"
WITHOUT_RESULTS = {
    ("how-long.md", "Training"): ELSEWHERE,
    ("how-long.md", "Predicting"): ELSEWHERE,
    ("how-long.md", "Explaining"): ELSEWHERE,
    ("metrics.md", "Prototypes"): SETTING,
    ("metrics.md", "Further judges"): SETTING,
    ("results.md", "Choices that saw test data"): SEEN,
    ("rivals.md", "The networks DProtoNet is compared with"): SETTING,
}


class Table(NamedTuple):
    page: str
    section: str
    text: str
    linked: tuple[Path, ...]


def tables() -> Iterator[Table]:
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if path.name in GENERATED:
            continue
        text = re.sub(
            r"<!-- ([\w-]+): .*?<!-- end of \1 -->", "", path.read_text(encoding="utf-8"), flags=re.S
        )
        text = re.sub(r"```.*?```", "", text, flags=re.S)
        for section in re.split(r"(?m)^(?=#+ )", text):
            links = re.findall(r"\]\((?:docs/)?((?:results/)?[\w.-]+\.json)\)", section)
            linked = tuple(dict.fromkeys(ROOT / "docs" / link for link in links))
            title = section.partition("\n")[0].strip("# ")
            for table in re.findall(r"(?m)(?:^\|.*\n)+", section):
                if numbers(table):
                    yield Table(path.name, title, table, linked)


def numbers(table: str) -> list[str]:
    """Decimal numbers of its body, the names of rows and code left out: `--whole 0.5` is a setting."""
    body = "\n".join(line.strip("|").partition("|")[2] for line in table.splitlines()[2:])
    return re.findall(r"(?<![\w.])[−-]?\d*\.\d+(?![\w.])", re.sub(r"`[^`]*`", "", body))


@cache
def values(path: Path) -> list[float]:
    return sorted(set(floats(json.loads(path.read_text(encoding="utf-8")))))


def floats(content: Any) -> Iterator[float]:
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for item in content:
            yield from floats(item)
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield float(content)


def stands_in(number: str, known: list[float]) -> bool:
    value = abs(float(number.replace("−", "-")))
    slack = 0.5001 * 10 ** -len(number.partition(".")[2])
    for scale in (1.0, 0.01, -1.0, -0.01):
        low, high = sorted(((value - slack) * scale, (value + slack) * scale))
        place = bisect_left(known, low)
        if place < len(known) and known[place] <= high:
            return True
    return False


TABLES = list(tables())


@pytest.mark.parametrize(
    "table",
    [table for table in TABLES if (table.page, table.section) not in WITHOUT_RESULTS],
    ids=lambda table: f"{table.page}: {table.section}",
)
def test_numbers_of_a_table_stand_in_its_results(table: Table) -> None:
    assert table.linked, "a table needs a link to the JSON it came from"
    known = [values(path) for path in table.linked]
    found = numbers(table.text)
    assert [number for number in found if not any(stands_in(number, one) for one in known)] == []


def test_what_is_excused_still_needs_it() -> None:
    """A section that is gone, or has its results by now, is struck from the list."""
    there = {(table.page, table.section) for table in TABLES if not table.linked or not _all_known(table)}
    assert set(WITHOUT_RESULTS) <= there


def _all_known(table: Table) -> bool:
    known = [values(path) for path in table.linked]
    return all(any(stands_in(number, one) for one in known) for number in numbers(table.text))
