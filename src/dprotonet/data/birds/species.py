"""The species: fixed combinations of part variants, in sibling pairs that differ in exactly one part.

Species 2k and 2k+1 are siblings: the same plumage, the same variants but for the deciding part, which both
possess. The table is always made whole, from a constant of its own, so that a species never depends on how
many are asked for, nor on any seed. The colours are those of feathers and bare parts; `anatomy` knows how a
variant looks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

import numpy as np

MOST = 200
ROOT = 1172  # the table grows from this number; another would give other species
CLEAR = 0.35  # how far apart in RGB the colours of siblings are at least
PARTS = ("beak", "eye_ring", "crest", "crown", "wing", "wing_bar", "breast", "tail", "legs")
ABSENT = "none"

COLOURS: Mapping[str, tuple[float, float, float]] = MappingProxyType(
    {
        "ink": (0.13, 0.13, 0.16),
        "slate": (0.36, 0.42, 0.49),
        "ash": (0.61, 0.62, 0.62),
        "umber": (0.37, 0.27, 0.20),
        "chestnut": (0.52, 0.27, 0.16),
        "rust": (0.78, 0.42, 0.20),
        "ember": (0.93, 0.53, 0.16),
        "gold": (0.95, 0.76, 0.24),
        "lemon": (0.94, 0.84, 0.42),
        "cream": (0.95, 0.90, 0.79),
        "white": (0.97, 0.97, 0.95),
        "crimson": (0.72, 0.15, 0.17),
        "coral": (0.91, 0.47, 0.41),
        "rose": (0.85, 0.60, 0.58),
        "azure": (0.22, 0.46, 0.74),
        "sky": (0.55, 0.75, 0.89),
        "teal": (0.14, 0.44, 0.46),
        "olive": (0.47, 0.49, 0.27),
        "moss": (0.31, 0.38, 0.22),
        "plum": (0.42, 0.27, 0.42),
    }
)
PLUMAGES = ("slate", "umber", "olive", "ash", "chestnut", "azure", "moss", "teal")

# Every variant is a form and a colour; a form repeated is a form met more often.
FORMS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "beak": ("cone", "needle", "hook", "dagger", "sickle"),
        "eye_ring": (ABSENT, "ring", "goggle", "tear"),
        "crest": (ABSENT, "spike", "plume", "fan", "tuft"),
        "crown": (ABSENT, "cap", "cap", "brow", "hood"),
        "wing": ("plain", "scaled", "tipped"),
        "wing_bar": (ABSENT, "single", "double", "panel"),
        "breast": ("plain", "plain", "bib", "spotted", "streaked"),
        "tail": ("fork", "fan", "spear", "square"),
        "legs": ("slim", "sturdy"),
    }
)
TINTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "beak": ("ink", "ember", "gold", "coral", "slate"),
        "eye_ring": ("white", "gold", "coral", "sky"),
        "crest": ("ink", "crimson", "gold", "azure", "rust", "cream"),
        "crown": ("ink", "crimson", "gold", "azure", "chestnut", "cream", "teal"),
        "wing": ("slate", "umber", "ink", "azure", "olive", "chestnut", "teal", "ash"),
        "wing_bar": ("white", "gold", "rust", "sky"),
        "breast": ("rust", "lemon", "rose", "crimson", "sky", "cream", "ember"),
        "tail": ("ink", "slate", "umber", "azure", "chestnut", "olive", "plum"),
        "legs": ("ink", "ember", "coral", "gold", "slate"),
    }
)
# The part that decides pair k is entry k, round and round: the first pairs have the parts best seen.
DECIDING = ("breast", "wing_bar", "crown", "tail", "beak", "crest", "wing", "eye_ring", "legs")


@dataclass(frozen=True)
class Variant:
    """How one part looks; the form `none` is a part that is not there, and its colour says nothing."""

    form: str
    colour: str


@dataclass(frozen=True)
class Species:
    """One kind of bird."""

    name: str
    plumage: str  # the colour of all that is no part; shared by siblings
    variants: Mapping[str, Variant]
    deciding_part: str

    def with_part(self, part: str, variant: Variant) -> "Species":
        """The same bird with another variant of one part."""
        return replace(self, variants={**self.variants, part: variant})

    def without_part(self, part: str) -> "Species":
        """The same bird without one part."""
        return self.with_part(part, Variant(ABSENT, ABSENT))

    def other_variants(self, part: str) -> tuple[Variant, ...]:
        """Every variant of a part that can be seen and differs clearly: in form, or far in colour."""
        own = self.variants[part]
        forms = sorted(set(FORMS[part]) - {ABSENT})
        tints = [tint for tint in TINTS[part] if tint != self.plumage]
        every = [Variant(form, tint) for form in forms for tint in tints]
        return tuple(v for v in every if own.form != v.form or distance(own.colour, v.colour) > CLEAR)

    def differs_in(self, other: "Species") -> tuple[str, ...]:
        """The parts in which two species differ."""
        return tuple(part for part in PARTS if self.variants[part] != other.variants[part])


@lru_cache(maxsize=1)
def all_species() -> tuple[Species, ...]:
    """All species there are; the first n of them make a data set of n species."""
    rng = np.random.Generator(np.random.Philox(ROOT))
    names = pair_names(rng)
    table: list[Species] = []
    for k in range(MOST // 2):
        table.extend(pair(rng, k, names[k], table))
    return tuple(table)


def pair(rng: np.random.Generator, k: int, name: str, known: list[Species]) -> tuple[Species, Species]:
    """Siblings number k, drawn again until both differ from every known species in three parts or more."""
    deciding = DECIDING[k % len(DECIDING)]
    epithets = EPITHETS[k % len(EPITHETS)]
    while True:
        plumage = PLUMAGES[(k * 3) % len(PLUMAGES)]
        first = {part: draw(rng, part, plumage, present=part == deciding) for part in PARTS}
        second = first | {deciding: alternative(rng, deciding, first[deciding], plumage)}
        one, two = (
            Species(f"{epithet} {name}", plumage, variants, deciding)
            for epithet, variants in zip(epithets, (first, second), strict=True)
        )
        if all(len(s.differs_in(old)) >= 3 for old in known for s in (one, two)):
            return one, two


def draw(rng: np.random.Generator, part: str, plumage: str, *, present: bool) -> Variant:
    """A variant of a part that stands out from the plumage it lies on."""
    forms = [form for form in FORMS[part] if not (present and form == ABSENT)]
    tints = [tint for tint in TINTS[part] if tint != plumage]
    form = forms[rng.integers(len(forms))]
    tint = tints[rng.integers(len(tints))]
    return Variant(form, ABSENT if form == ABSENT else tint)


def alternative(rng: np.random.Generator, part: str, first: Variant, plumage: str) -> Variant:
    """The sibling's variant: another form or another colour, the other trait the same."""
    forms = sorted({f for f in FORMS[part] if f not in (ABSENT, first.form)})
    tints = [t for t in TINTS[part] if t != plumage and distance(t, first.colour) > CLEAR]
    if tints and rng.random() < 0.5:
        return Variant(first.form, tints[rng.integers(len(tints))])
    return Variant(forms[rng.integers(len(forms))], first.colour)


def distance(one: str, two: str) -> float:
    return math.dist(COLOURS[one], COLOURS[two])


EPITHETS = (
    ("Dawn", "Dusk"),
    ("Hill", "Vale"),
    ("Sun", "Moon"),
    ("Lake", "River"),
    ("Meadow", "Forest"),
    ("Spring", "Autumn"),
    ("Harbour", "Island"),
    ("Morning", "Evening"),
    ("Northern", "Southern"),
    ("Garden", "Orchard"),
)
ONSETS = ("li", "ve", "mo", "sa", "ti", "fe", "no", "ka", "ru", "be", "wi", "da", "zi", "pe", "lo", "ha")
MIDDLES = ("ra", "li", "mi", "so", "ne", "va", "lu", "ri", "do", "si")
CODAS = ("vel", "lin", "ret", "wen", "lark", "finch", "nel", "ril", "thrush", "mar", "quin", "let")


def pair_names(rng: np.random.Generator) -> list[str]:
    """A hundred different names such as Liravel, one for each sibling pair."""
    every = [(a + b + c).capitalize() for a in ONSETS for b in MIDDLES for c in CODAS]
    return [every[i] for i in rng.choice(len(every), MOST // 2, replace=False)]
