"""Numbers as the page writes them."""

from dprotonet.figures.style import number

SPACE = "\u202f"  # narrow and unbroken, between a number and its sign


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent; one that only rounding makes whole or nothing is not called so."""
    if share is None:
        return "–"
    least = 10.0**-digits
    if 0 < 100 * share < least / 2:
        return f"<{SPACE}{least:.{digits}f}{SPACE}%"
    if 100 - least / 2 <= 100 * share < 100:
        return f">{SPACE}{100 - least:.{digits}f}{SPACE}%"
    return f"{100 * share:.{digits}f}{SPACE}%"


def points(value: float) -> str:
    """A signed contribution."""
    return number(value, signed=True)


def plain(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return number(value, decimals=digits)


def counted(count: int, noun: str) -> str:
    """`1 image`, `2 images`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
