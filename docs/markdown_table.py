"""Lines of Markdown tables, for the scripts that draw the tables of these pages."""

from collections.abc import Sequence


def head(words: Sequence[str]) -> list[str]:
    """The first two lines of a table."""
    return [line(words), "|---" * len(words) + "|"]


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
