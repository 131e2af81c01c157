"""Numbers that a page takes from another page stand there, in the section that the table row links to."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("how-long.md", "which-preset.md")


def rows() -> Iterator[tuple[str, str]]:
    """Rows of tables that link to a section of another page."""
    for page in PAGES:
        lines = (DOCS / page).read_text(encoding="utf-8").splitlines()
        yield from ((page, line) for line in lines if line.startswith("|") and ".md" in line)


def numbers(text: str) -> set[str]:
    """Decimal ones, and whole ones from ten on; not those of links and code."""
    plain = re.sub(r"\]\([^)]*\)|`[^`]*`", "", text)
    return set(re.findall(r"(?<![\w.,])(?:\d+\.\d+|\d{2,}|\d,\d{3})(?![\w.,]*\d)", plain))


def slug(title: str) -> str:
    """The anchor of a heading, as GitHub and the site have it."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def section(link: str) -> str:
    """A section with what is below it; a page where no section is named."""
    name, _, anchor = link.partition("#")
    text = (DOCS / name).read_text(encoding="utf-8")
    if not anchor:
        return text
    heads = list(re.finditer(r"^(#+) (.*)$", text, flags=re.MULTILINE))
    start = next(head for head in heads if slug(head[2]) == anchor)
    later = (head.start() for head in heads if head.start() > start.start() and len(head[1]) <= len(start[1]))
    return text[start.start() : next(later, len(text))]


@pytest.mark.parametrize(("page", "row"), rows(), ids=lambda value: value[:60])
def test_the_numbers_of_a_row_stand_where_it_links_to(page: str, row: str) -> None:
    linked = "".join(section(link) for link in re.findall(r"\]\(([^)]+\.md[^)]*)\)", row))
    linked += section("decoder.md#presets") * (page == "which-preset.md")  # linked below its table
    cells = row.strip("|").split("|")[1:]
    missing = [number for cell in cells for number in numbers(cell) if number.removeprefix("0") not in linked]
    assert missing == [], page


def test_a_wrong_number_would_be_seen() -> None:
    assert numbers("| 13.2 times, 1,000 and 7 | `0.5` [4.6](decoder.md#x12) |") == {"13.2", "1,000", "4.6"}
    assert "6.9 times" in section("results.md#speed-and-memory")
