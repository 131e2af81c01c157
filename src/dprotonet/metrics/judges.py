"""The one table of judges: families of measures beyond those of every comparison, and what each column asks.

`compare --judges`, its help and its tables read it. A family is asked for as a whole, because its columns
share their cost. `asks` is a column's question in words; `probe` what it does to images, which decides which
methods were made for it: they optimise the very thing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Measure(NamedTuple):
    """A column: what it is called, which way is better, and how it is written."""

    name: str
    higher: bool
    digits: int


REMOVES, KEEPS, BOTH = "what it removes", "what it keeps", "what it removes and keeps"
AMOUNTS = "whether amounts of heat are right"
NETWORK, STEADY = "whether it depends on the network", "whether it is steady"
PLACE, SIMPLE = "where it lies", "how simple it is"
GROUPS = (REMOVES, KEEPS, BOTH, AMOUNTS, NETWORK, STEADY, PLACE, SIMPLE)


@dataclass(frozen=True)
class Family:
    """Measures that are asked for together; `cost` in words, for each method and image."""

    measures: tuple[Measure, ...]
    cost: str
    what: str
    explains_again: bool = False  # asks the method for more maps


def _down(name: str, digits: int = 3) -> Measure:
    return Measure(name, False, digits)


def _up(name: str, digits: int = 3) -> Measure:
    return Measure(name, True, digits)


FAMILIES: dict[str, Family] = {
    "road": Family(
        (_down("ROAD hot"), _up("ROAD cold"), _up("ROAD")), "18 passes", "pixels become their neighbours"
    ),
    "references": Family(
        tuple(
            measure
            for name in ("mean", "noise", "image")
            for measure in (_down(f"del {name}"), _up(f"ins {name}"))
        ),
        "six times --steps passes",
        "deletion and insertion with the mean colour, noise, another image",
    ),
    "saco": Family((_up("SaCo"),), "11 passes", "hotter groups of pixels lose more"),
    "infidelity": Family((_down("infidelity", 4),), "26 passes", "heat on hidden squares is what they lose"),
    "randomised": Family(
        (_down("alike"), _up("eMPRT")),
        "1 explanation",
        "the map of a network with random weights: rank correlation, rise of entropy",
        explains_again=True,
    ),
    "sensitivity": Family(
        (_down("max-sensitivity"),), "3 explanations", "largest change under tiny noise", explains_again=True
    ),
    "complexity": Family((_down("entropy", 2), _up("sparseness")), "nothing", "entropy and Gini index"),
    "parts": Family((_up("part pointing"),), "nothing", "the hottest pixel lies on the part that decides"),
}

_ASKS = {
    REMOVES: ("deletion", "ROAD hot", "del mean", "del noise", "del image"),
    KEEPS: ("insertion", "AD", "AI", "AG", "ROAD cold", "ins mean", "ins noise", "ins image"),
    BOTH: ("ROAD",),
    AMOUNTS: ("SaCo", "infidelity"),
    NETWORK: ("alike", "eMPRT"),
    STEADY: ("max-sensitivity",),
    PLACE: ("DICE", "IOU", "PPV", "sensitivity", "energy", "pointing", "part", "part pointing"),
    SIMPLE: ("entropy", "sparseness"),
}
_TESTS = {
    "deletion": "hide black",
    "insertion": "keep blur",
    "infidelity": "hide black",
}
_KEPT = ("AD", "AI", "AG")  # with the share of pixels after it, such as AD50


def asks(measure: str) -> str:
    """What a column asks, one of `GROUPS`."""
    for group, names in _ASKS.items():
        if measure in names:
            return group
    return KEEPS if measure.rstrip("0123456789.") in _KEPT else PLACE


def probe(measure: str) -> str | None:
    """What a column does to images as an optimisation might, "hide black"; None if nobody optimises it."""
    return "keep black" if measure.rstrip("0123456789.") in _KEPT else _TESTS.get(measure)


def families(names: Sequence[str]) -> tuple[str, ...]:
    """Those asked for in the order of the table; "all" is all of them; a ValueError that names the known."""
    unknown = [name for name in names if name not in (*FAMILIES, "all")]
    if unknown:
        raise ValueError(f"unknown judge '{unknown[0]}'; known: {', '.join(FAMILIES)}, all")
    return tuple(name for name in FAMILIES if name in names or "all" in names)


def columns(names: Sequence[str]) -> tuple[Measure, ...]:
    """The measures of some families."""
    return tuple(measure for name in names for measure in FAMILIES[name].measures)


def described() -> str:
    """The table in a sentence, for help texts."""
    return "; ".join(f"{name} ({family.what}; {family.cost})" for name, family in FAMILIES.items())
