"""The built-in birds: a fine-grained data set drawn on the fly, which knows what decides each species.

Everything random about picture `index` of a split comes from (seed, split, index), in streams of its own for
pose, backdrop, nearby things, occluders and lens; none of them sees the species. So the same scene can be
rendered with any species, with one part exchanged, or with no bird, and neither workers nor order change a
byte.
"""

import hashlib
import json

import numpy as np
import torch
from torch import Tensor

from dprotonet.data.base import Sample, Splits
from dprotonet.data.birds.anatomy import OWNER, Painter
from dprotonet.data.birds.backdrop import draw_backdrop
from dprotonet.data.birds.canvas import NOBODY, Canvas
from dprotonet.data.birds.lens import Lens, draw_lens
from dprotonet.data.birds.pose import Pose, draw_pose
from dprotonet.data.birds.scenery import draw_distractors, draw_occluders, draw_perch
from dprotonet.data.birds.species import COLOURS, FORMS, MOST, PARTS, Species, Variant, all_species
from dprotonet.errors import UserError

DRAWING = 1  # raise whenever the same arguments would give other pictures
SPLITS = ("train", "val", "test")
SMALLEST = 32


class Birds:
    """One split of the built-in birds: `species` classes with `per_species` pictures each."""

    def __init__(
        self,
        *,
        species: int = 12,
        per_species: int = 60,
        split: str = "train",
        seed: int = 0,
        size: int = 224,
    ) -> None:
        check(species=species, per_species=per_species, split=split, seed=seed, size=size)
        self.species: tuple[Species, ...] = all_species()[:species]
        self.per_species, self.split, self.seed, self.size = per_species, split, seed, size

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(s.name for s in self.species)

    @property
    def labels(self) -> tuple[int, ...]:
        return tuple(index % len(self.species) for index in range(len(self)))

    @property
    def fingerprint(self) -> str:
        facts = [DRAWING, len(self.species), self.per_species, self.split, self.seed, self.size]
        return hashlib.sha256(json.dumps(["birds", *facts]).encode()).hexdigest()

    def name(self, index: int) -> str:
        return f"birds/{self.split}/{self.position(index)}"

    def __len__(self) -> int:
        return len(self.species) * self.per_species

    def __getitem__(self, index: int) -> Sample:
        return self.render(index, species=self.position(index) % len(self.species))

    def position(self, index: int) -> int:
        """The index counted from the front, as for a list."""
        if not -len(self) <= index < len(self):
            raise IndexError(f"birds/{self.split} has {len(self)} pictures; there is no number {index}")
        return index % len(self)

    def render(self, index: int, *, species: int) -> Sample:
        """The scene of picture `index` with a bird of any species of the set in it."""
        return self._drawn(self.position(index), self.species[species], label=species)

    def drawn_as(self, index: int, kind: Species) -> Sample:
        """The scene of picture `index` with any bird in it; its label says nothing."""
        return self._drawn(self.position(index), kind, label=-1)

    def exchanged(self, index: int, part: str, variant: Variant) -> Sample:
        """Picture `index` with one part in another variant; the label stays that of the picture."""
        position, label = self._at(index, part)
        if variant.form not in FORMS[part] or variant.colour not in COLOURS:
            forms, colours = ", ".join(dict.fromkeys(FORMS[part])), ", ".join(COLOURS)
            raise UserError(f"birds: no {part} is a {variant}; forms: {forms}; colours: {colours}")
        return self._drawn(position, self.species[label].with_part(part, variant), label=label)

    def exchanges(self, index: int, part: str, *, count: int, seed: int = 0) -> list[Sample]:
        """Picture `index` with the part in `count` other variants, all clearly different, by the seed."""
        position, label = self._at(index, part)
        others = self.species[label].other_variants(part)
        if not 1 <= count <= len(others):
            raise UserError(f"birds: {count} exchanges of the {part}; there are 1 to {len(others)}")
        root = (seed, self.seed, SPLITS.index(self.split), position, PARTS.index(part))
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence(root)))
        drawn = rng.choice(len(others), count, replace=False)
        return [self.exchanged(position, part, others[number]) for number in drawn]

    def removed(self, index: int, part: str) -> Sample:
        """Picture `index` without one part: what lies behind it shows. A wing takes its bars with it."""
        position, label = self._at(index, part)
        return self._drawn(position, self.species[label].without_part(part), label=label)

    def sibling(self, index: int) -> Sample | None:
        """Picture `index` with the deciding part exchanged for the sibling's, if the set has the sibling."""
        position = self.position(index)
        other = self.labels[position] ^ 1  # species 2k and 2k + 1 are siblings
        return self.render(position, species=other) if other < len(self.species) else None

    def _at(self, index: int, part: str) -> tuple[int, int]:
        """Position and label of a picture, of which a part is asked for."""
        if part not in PARTS:
            raise UserError(f"birds: unknown part {part!r}; choose one of {', '.join(PARTS)}")
        position = self.position(index)
        return position, self.labels[position]

    def _drawn(self, position: int, kind: Species, *, label: int) -> Sample:
        pose, canvas, front, lens = self.scene(position)
        Painter(canvas, pose, kind).draw()
        draw_occluders(front, canvas)
        owner = torch.from_numpy(canvas.owner)
        return Sample(
            image=as_tensor(lens, canvas),
            label=label,
            name=self.name(position),
            truth=owner != NOBODY,
            parts={part: owner == number for part, number in OWNER.items()},  # a dict, which workers can send
            deciding_part=kind.deciding_part,
        )

    def background(self, index: int) -> Tensor:
        """The same picture (3, S, S) with no bird in it."""
        _, canvas, front, lens = self.scene(self.position(index))
        draw_occluders(front, canvas)
        return as_tensor(lens, canvas)

    def scene(self, position: int) -> tuple[Pose, Canvas, np.random.Generator, Lens]:
        """Pose, all that lies behind the bird, the stream for what lies before it, and the lens."""
        roots = np.random.SeedSequence((self.seed, SPLITS.index(self.split), position)).spawn(5)
        far, near, stance, front, glass = (np.random.Generator(np.random.Philox(root)) for root in roots)
        pose = draw_pose(stance)
        canvas = Canvas(draw_backdrop(far, self.size))
        draw_distractors(near, canvas)
        draw_perch(near, canvas, pose)
        return pose, canvas, front, draw_lens(glass)


def bird_splits(
    *,
    species: int = 12,
    train_per_species: int = 60,
    val_per_species: int = 15,
    test_per_species: int = 40,
    seed: int = 0,
    size: int = 224,
) -> Splits:
    """The three splits of the built-in birds, drawn apart from one another."""
    counts = (train_per_species, val_per_species, test_per_species)
    train, val, test = (
        Birds(species=species, per_species=count, split=split, seed=seed, size=size)
        for split, count in zip(SPLITS, counts, strict=True)
    )
    return Splits(train=train, val=val, test=test)


def as_tensor(lens: Lens, canvas: Canvas) -> Tensor:
    """The photograph of a canvas as (3, S, S) uint8."""
    return torch.from_numpy(lens.photograph(canvas.image))


def check(*, species: int, per_species: int, split: str, seed: int, size: int) -> None:
    """Refuse arguments no data set can be drawn from."""
    if not 2 <= species <= MOST:
        raise UserError(f"birds: species={species}, but there are 2 to {MOST}; choose a number in that range")
    if per_species < 1:
        raise UserError(f"birds: per_species={per_species}, but each species needs a picture; give 1 or more")
    if split not in SPLITS:
        raise UserError(f"birds: unknown split {split!r}; choose one of {', '.join(SPLITS)}")
    if seed < 0:
        raise UserError(f"birds: seed={seed} is negative; give 0 or more")
    if size < SMALLEST:
        raise UserError(f"birds: size={size} px is too small to tell the parts; give {SMALLEST} or more")
