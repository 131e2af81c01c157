"""What the steps of a ranking ask: which share of the image is kept or hidden, behind what, how softly.

`keep` shows the hottest places alone, which should be enough; `hide` shows all but them, which should not;
`both` asks both of the same share at the price of both. Hidden pixels are black or blurred. A soft choice
asks about many shares at once, coarsely; so the first steps ask softly and the last ones sharply.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from dprotonet.errors import UserError

TOGETHER = ("both black", "both blur")
_WHAT, _BEHIND = ("keep", "hide", "both"), ("black", "blur")
_GOLDEN = (math.sqrt(5) - 1) / 2  # its multiples fill an interval evenly, whenever one stops


class Asked(NamedTuple):
    """The question of a step: what happens to the hottest `share`, and what hidden pixels become."""

    what: str
    behind: str
    share: float
    softness: float  # of the border between hidden and kept, in units of the mask

    @property
    def images(self) -> int:
        """How many masked images it takes."""
        return 2 if self.what == "both" else 1


def asked_in_turn(
    asks: Sequence[str], steps: int, *, shares: tuple[float, float], softness: tuple[float, float]
) -> list[Asked]:
    """The questions of so many steps; every kind of them goes through the shares by itself.

    `shares` are the smallest and the largest, `softness` that of the first step and of the last.
    """
    seen: Counter[str] = Counter()
    found = []
    for number in range(steps):
        what, behind = asks[number % len(asks)].split()
        seen[what] += 1
        share = shares[0] + (shares[1] - shares[0]) * ((0.5 + seen[what] * _GOLDEN) % 1)
        found.append(Asked(what, behind, share, _falling(*softness, number / max(1, steps - 1))))
    return found


def _falling(first: float, last: float, way: float) -> float:
    """From the first to the last value by equal factors; `way` is 0 at the first."""
    return first if first == last else first * (last / first) ** way


def check_asks(asks: Sequence[str]) -> None:
    """A UserError unless each is two known words, such as "keep blur"."""
    known = [f"{what} {behind}" for what in _WHAT for behind in _BEHIND]
    wrong = [one for one in asks if one not in known]
    if wrong or not asks or isinstance(asks, str):
        given = repr(wrong[0] if wrong and not isinstance(asks, str) else asks)
        raise UserError(f"asks holds {given}; each step asks one of: {', '.join(known)}")
