"""Birds with findings: the built-in birds as a multi-label task whose truth is planted.

A bird has none, some or all of five findings, each drawn on its own: a crest, a crown patch, an eye ring,
wing bars, a marked breast. Scene and species are those of `Birds` and know nothing of the findings; where a
finding is, its part's mask tells. The same picture can be drawn without one of its findings.
"""

import hashlib
import json
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from dprotonet.data.base import Sample, Splits
from dprotonet.data.birds.dataset import DRAWING, SPLITS, Birds
from dprotonet.data.birds.species import ABSENT, TINTS, Species, Variant
from dprotonet.errors import UserError

PART = {
    "crest": "crest",
    "crown patch": "crown",
    "eye ring": "eye_ring",
    "wing bar": "wing_bar",
    "marked breast": "breast",
}
"""The findings, and the part each of them is."""
FREQUENCY = {"crest": 0.35, "crown patch": 0.4, "eye ring": 0.3, "wing bar": 0.35, "marked breast": 0.25}
_FORMS = {
    "crest": ("spike", "plume", "fan", "tuft"),
    "crown": ("cap", "brow", "hood"),
    "eye_ring": ("ring", "goggle", "tear"),
    "wing_bar": ("single", "double", "panel"),
    "breast": ("bib", "spotted", "streaked"),
}
_STREAM = 11  # of random numbers, beside those of a scene


class BirdFindings:
    """One split; `classes` are the findings, `labels` 0 and 1 (N, 5)."""

    def __init__(
        self,
        *,
        species: int = 12,
        per_species: int = 60,
        split: str = "train",
        seed: int = 0,
        size: int = 224,
    ) -> None:
        self.birds = Birds(species=species, per_species=per_species, split=split, seed=seed, size=size)
        self.split, self.seed = split, seed

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(PART)

    @cached_property
    def labels(self) -> Any:
        """Rows, a tensor, where others have numbers."""
        rows = [[float(name in self.having(index)) for name in PART] for index in range(len(self))]
        return torch.tensor(rows)

    @property
    def fingerprint(self) -> str:
        facts = ["findings", DRAWING, _STREAM, PART, FREQUENCY, _FORMS, self.birds.fingerprint]
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def name(self, index: int) -> str:
        return f"findings/{self.split}/{self.birds.position(index)}"

    def __len__(self) -> int:
        return len(self.birds)

    def __getitem__(self, index: int) -> Sample:
        return self._drawn(index, self.having(index))

    def having(self, index: int) -> frozenset[str]:
        """The findings of a picture."""
        drawn = self._random(index, 0).random(len(PART))
        return frozenset(name for name, value in zip(PART, drawn, strict=True) if value < FREQUENCY[name])

    def removed(self, index: int, finding: str) -> Sample:
        """The picture without one of its findings and all else the same."""
        if finding not in PART:
            raise UserError(f"birds: unknown finding {finding!r}; choose one of {', '.join(PART)}")
        return self._drawn(index, self.having(index) - {finding})

    def _drawn(self, index: int, having: frozenset[str]) -> Sample:
        position = self.birds.position(index)
        sample = self.birds.drawn_as(position, self._bird(position, having))
        parts = {finding: sample.parts[part] for finding, part in PART.items()}
        names = tuple(name for name in PART if name in having)
        return replace(
            sample, label=-1, name=self.name(index), parts=parts, deciding_part=None, findings=names
        )

    def _bird(self, position: int, having: frozenset[str]) -> Species:
        """The species of the picture with these findings and no others; how they look is drawn once."""
        kind = self.birds.species[position % len(self.birds.species)]
        random = self._random(position, 1)
        for finding, part in PART.items():
            tints = [tint for tint in TINTS[part] if tint != kind.plumage]
            form, tint = random.integers(len(_FORMS[part])), random.integers(len(tints))
            look = Variant(_FORMS[part][form], tints[tint])
            kind = kind.with_part(part, look if finding in having else _absent(part, look))
        return kind

    def _random(self, index: int, what: int) -> np.random.Generator:
        position = self.birds.position(index)
        root = np.random.SeedSequence((self.seed, SPLITS.index(self.split), position, _STREAM, what))
        return np.random.Generator(np.random.Philox(root))


def _absent(part: str, look: Variant) -> Variant:
    """A bird has a breast in any case; without the finding it is plain."""
    return Variant("plain", look.colour) if part == "breast" else Variant(ABSENT, ABSENT)


def finding_splits(
    *,
    species: int = 12,
    train_per_species: int = 60,
    val_per_species: int = 15,
    test_per_species: int = 40,
    seed: int = 0,
    size: int = 224,
) -> Splits:
    """The three splits of the birds with findings."""
    counts = (train_per_species, val_per_species, test_per_species)
    train, val, test = (
        BirdFindings(species=species, per_species=count, split=split, seed=seed, size=size)
        for split, count in zip(SPLITS, counts, strict=True)
    )
    return Splits(train=train, val=val, test=test)
