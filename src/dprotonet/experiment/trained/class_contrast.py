"""Why one class and not another: what each part, or prototype, adds to both logits, side by side.

The rows' differences add up to that of the logits exactly, since every logit is a sum. Where each class has a
prototype of the same part, a row is a part: what both share is much for each and nothing between them.
Elsewhere a row is a prototype. Whatever is not shown is less than what is.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.figures.words import LETTERED

AGREE = 0.25  # of the largest difference: a row with a smaller one is where the two agree


@dataclass(frozen=True)
class ContrastRow:
    """What some prototypes add to the logit of the class, and what they add to that of the other.

    `own` and `other` are the prototypes of either class that say most, as evidence for their own class; in a
    row of prototypes of third classes `own` is one of those.
    """

    prototypes: tuple[int, ...]
    points: float
    other_points: float
    own: EvidenceItem | None
    other: EvidenceItem | None
    part: int | None = None  # the number of the part, where classes have prototypes of the same one

    @property
    def difference(self) -> float:
        """Above zero for the class, below zero against it."""
        return self.points - self.other_points

    @property
    def pair(self) -> tuple[EvidenceItem, ...]:
        """`own` and `other`, as far as there are."""
        return tuple(item for item in (self.own, self.other) if item is not None)

    @property
    def shown(self) -> EvidenceItem:
        """The prototype whose place is the row's."""
        return self.pair[0]  # a row is made of prototypes

    @property
    def name(self) -> str:
        """ "beak", or "part C", or "prototype 12"; "place 3" for a part without a name.

        A detector may sit on the legs of one class and on the crest of another: "legs / crest".
        """
        called = [item.part for item in self.pair if item.part]
        if called:
            known = dict.fromkeys(name for name in called if not name.startswith(LETTERED))
            return " / ".join(known) or called[0]
        return f"prototype {self.prototypes[0]}" if self.part is None else f"place {self.part}"


@dataclass(frozen=True)
class Folded:
    """Rows that are not shown, together: so many, what they add for the class and against it."""

    count: int
    ahead: float
    behind: float


@dataclass(frozen=True)
class ClassContrast:
    """`class_name` against `versus`, in one image; `rows` are all there are, the largest difference first."""

    class_name: str
    versus: str
    logit: float
    versus_logit: float
    rows: tuple[ContrastRow, ...] = field(default=())

    @property
    def difference(self) -> float:
        """How far the logit of the class is above that of the other."""
        return self.logit - self.versus_logit

    def shown(self, top: int) -> tuple[ContrastRow, ...]:
        """The `top` largest differences: first what speaks against the class, then what speaks for it."""
        return tuple(sorted(self.rows[:top], key=_against_first))

    def folded(self, top: int) -> Folded:
        """What is left of them; none of it is larger than what is shown."""
        apart = [row.difference for row in self.rows[top:]]
        ahead, behind = (math.fsum(one for one in apart if (one > 0) == above) for above in (True, False))
        return Folded(len(apart), ahead, behind)

    @property
    def agreeing(self) -> tuple[ContrastRow, ...]:
        """Rows that say about as much for both classes, those that say most first."""
        largest = max((abs(row.difference) for row in self.rows), default=0.0)
        alike = [row for row in self.rows if abs(row.difference) <= AGREE * largest]
        return tuple(sorted(alike, key=lambda row: -(row.points + row.other_points)))

    @property
    def sentence(self) -> str:
        """What decided, from the numbers; empty where there is no evidence."""
        return _sentence(self) if self.rows else ""


def class_contrast(
    names: tuple[str, str],
    said: Sequence[tuple[float, float]],
    *,
    part: Sequence[int] | None,
    items: tuple[Mapping[int, EvidenceItem], Mapping[int, EvidenceItem]],
) -> ClassContrast:
    """From what every prototype adds to both logits, `said`; `items`, the evidence for either, by prototype.

    `part` says which part each prototype belongs to, where classes have prototypes of the same parts.
    """
    groups: dict[int, list[int]] = {}
    for number in range(len(said)):
        groups.setdefault(number if part is None else part[number], []).append(number)
    rows = []
    for key, numbers in groups.items():
        own, other = _shown(names, [[found[number] for number in numbers] for found in items])
        points, other_points = _sums([said[number] for number in numbers])
        place = None if part is None else key
        rows.append(ContrastRow(tuple(numbers), points, other_points, own, other, place))
    rows.sort(key=lambda row: (-abs(row.difference), row.prototypes))
    return ClassContrast(*names, *_sums(said), rows=tuple(rows))


def _sums(said: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """On both sides."""
    return math.fsum(own for own, _ in said), math.fsum(other for _, other in said)


def _shown(
    names: tuple[str, str], items: Sequence[Sequence[EvidenceItem]]
) -> tuple[EvidenceItem | None, EvidenceItem | None]:
    """The strongest prototype of either class; of third classes' where neither has one in the row."""
    own, other = (
        _strongest([item for item in found if item.class_name == name])
        for name, found in zip(names, items, strict=True)
    )
    return (own, other) if own or other else (_strongest(items[0]), None)


def _strongest(items: Sequence[EvidenceItem]) -> EvidenceItem | None:
    return max(items, key=lambda item: item.contribution, default=None)


def _against_first(row: ContrastRow) -> tuple[bool, float]:
    """What is against the class before what is for it, the larger first on both sides."""
    return row.difference >= 0, -abs(row.difference)


def _sentence(found: ClassContrast) -> str:
    """Rows of one name speak together: several parts may be called wing."""
    sign = 1 if found.difference >= 0 else -1
    names = [found.class_name, found.versus][::sign]
    points: dict[str, list[float]] = {}
    for row in found.rows:
        sides = points.setdefault(row.name, [0.0, 0.0])
        for side, one in enumerate((row.points, row.other_points)[::sign]):
            sides[side] += one
    most = max(points, key=lambda name: points[name][0] - points[name][1])
    own, other = points[most]
    rest = abs(found.difference) - (own - other)
    what = most if most.startswith((LETTERED, "prototype ", "place ")) else f"the {most}"
    told = f"{_told(own)} points for {names[0]} and {_told(other)} for {names[1]}"
    others = f"all else adds {abs(rest):.2f} for {names[rest < 0]}"
    if rest < 0:
        return f"{what[:1].upper()}{what[1:]} decided: {told}; {others}."
    return f"{names[0]} is ahead of {names[1]} most by {what}: {told}; {others}."


def _told(points: float) -> str:
    return f"{points:.2f}".replace("-", "−")
