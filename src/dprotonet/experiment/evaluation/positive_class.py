"""Which of two classes sensitivity is about: the one that is looked for, never the healthy one by default.

A name means healthy if one of its words is in HEALTHY, if it begins with a word of ABSENT ("no finding",
"Non-pathological"), or if it ends with one of LAST ("tumour-free", but not "free fluid"). Case and separators
do not matter; words are whole: "abnormal" is not "normal". A negated one ("not normal") does not count.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from dprotonet.errors import UserError

HEALTHY = (
    "normal",
    "normals",
    "healthy",
    "negative",
    "negatives",
    "neg",
    "control",
    "controls",
    "ctrl",
    "benign",
    "unremarkable",
    "uninfected",
    "unaffected",
    "undiseased",
    "none",
    "nofinding",
    "nofindings",
    "notumor",
    "notumour",
    "nodisease",
    "nonpathological",
    "nonmalignant",
    "noncancerous",
    "nondiseased",
    "noninfected",
    "nontumor",
    "nontumour",
    "noncovid",
    "nevus",
    "naevus",
    "intact",
    "undamaged",
    "clean",
)
ABSENT = ("no", "non", "not", "without")
LAST = ("free", "absent", "clear", "good", "ok")
_NEGATED = (*ABSENT, "ab", "un")  # before a healthy word: "not normal", "ab-normal"
_ASKED = "asked for"


class PositiveClass(NamedTuple):
    """The class that sensitivity is of, and why it was chosen."""

    name: str
    reason: str


def positive_class(classes: Sequence[str], asked: str | None = None) -> PositiveClass | None:
    """Of two classes the one asked for, else the one that does not mean healthy; None for more than two."""
    if asked is None:
        return _by_default(*classes) if len(classes) == 2 else None
    if len(classes) != 2:
        raise UserError(f"--positive {asked} is for two classes, the run has {len(classes)}; leave it out")
    if asked not in classes:
        raise UserError(f"--positive {asked}: the classes are {classes[0]} and {classes[1]}")
    return PositiveClass(asked, _ASKED)


def asked_positive(reason: object) -> bool:
    """Whether a stored reason says that the class was asked for."""
    return reason == _ASKED


def means_healthy(name: str) -> bool:
    """Whether a class name is one for what is healthy, or for the absence of something."""
    words = _words(name)
    healthy = [place for place, word in enumerate(words) if word in HEALTHY]
    if healthy:
        return any(place == 0 or words[place - 1] not in _NEGATED for place in healthy)
    return bool(words) and (words[0] in ABSENT or (words[-1] in LAST and words[-2:-1] != ["not"]))


def _by_default(first: str, second: str) -> PositiveClass:
    healthy = [means_healthy(first), means_healthy(second)]
    if healthy == [True, False]:
        return PositiveClass(second, f"{first} means healthy")
    if healthy == [False, True]:
        return PositiveClass(first, f"{second} means healthy")
    both = "both names mean" if all(healthy) else "neither name means"
    return PositiveClass(second, f"the second of the two, as {both} healthy")


def _words(name: str) -> list[str]:
    """In lower case, cut at separators and where capitals begin: "NoFinding" and "no_finding" alike."""
    cut = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return re.findall(r"[^\W\d_]+", cut.lower())
