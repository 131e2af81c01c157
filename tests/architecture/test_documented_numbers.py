"""Numbers in tables of README and docs stand in the committed results that their section links to.

A section with a table links to the JSON that the table came from, and every decimal number of the table is one of its
values, as it is or in percent, rounded as printed. Tables between marks are drawn from their JSON, and
test_network_tables.py checks them. Older tables whose results were never kept are listed here by section, so that
their number can only shrink.
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
WITHOUT_RESULTS = {
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
        text = re.sub(r"<!-- ([\w-]+): .*?<!-- end of \1 -->", "", path.read_text(encoding="utf-8"), flags=re.S)
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


@pytest.mark.parametrize("table", TABLES, ids=lambda table: f"{table.page}: {table.section}")
def test_numbers_of_a_table_stand_in_its_results(table: Table) -> None:
    if (table.page, table.section) in WITHOUT_RESULTS:
        assert not table.linked or True
        return
    assert table.linked, "a table needs a link to the JSON it came from"
    known = [values(path) for path in table.linked]
    missing = [number for number in numbers(table.text) if not any(stands_in(number, found) for found in known)]
    assert missing == []
