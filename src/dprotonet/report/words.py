"""Numbers as the page writes them."""

from dprotonet.figures.style import number
from dprotonet.percent import percent as written

SPACE = "\u202f"  # narrow and unbroken, between a number and its sign


def percent(share: float | None, digits: int = 1) -> str:
    """A share as per cent, the sign set close to it."""
    return written(share, digits, space=SPACE)


def points(value: float) -> str:
    """A signed contribution."""
    return number(value, signed=True)


def plain(value: float, digits: int = 2) -> str:
    """A number with a true minus sign."""
    return number(value, decimals=digits)


def counted(count: int, noun: str) -> str:
    """`1 image`, `2 images`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"
