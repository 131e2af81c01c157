"""What every renderer of parts promises: one part changes, and nothing else."""

from itertools import combinations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import max_pool2d

from dprotonet.data.base import ImageData, PartRenderer, Sample
from dprotonet.data.birds import Birds
from dprotonet.data.birds.species import PARTS, Variant, all_species
from dprotonet.data.subset import Subset
from dprotonet.errors import UserError

SIZE = 96
REACH = round(SIZE * 2.5 * (0.006 * 1.24 + 0.0045 + 0.008)) + 2  # as in tests/data/test_birds.py
INDICES = (0, 3, 8, 13)


@pytest.fixture(params=[Birds])
def data(request: pytest.FixtureRequest) -> Birds:
    made: Birds = request.param(species=18, per_species=1, split="test", size=SIZE)
    return made


def near(mask: Tensor) -> Tensor:
    return max_pool2d(mask[None].float(), 2 * REACH + 1, stride=1, padding=REACH)[0] > 0


def differing(one: Sample, other: Sample) -> Tensor:
    return (one.image != other.image).any(dim=0)


def touched(before: Sample, after: Sample, part: str) -> Tensor:
    """Where a change of that part may show: it, before and after, and what was drawn on it."""
    on_it = ("wing", "wing_bar") if part == "wing" else (part,)
    masks = [sample.parts[name] for sample in (before, after) for name in on_it]
    return near(torch.stack(masks).any(dim=0))


def test_it_is_one(data: ImageData) -> None:
    assert isinstance(data, PartRenderer)
    assert not isinstance(Subset(data, [0]), PartRenderer)


@pytest.mark.parametrize("part", PARTS)
def test_an_exchange_changes_its_part_and_nothing_else(data: Birds, part: str) -> None:
    seen = 0
    for index in INDICES:
        before = data[index]
        for after in data.exchanges(index, part, count=3):
            assert not (differing(before, after) & ~touched(before, after, part)).any()
            assert (after.name, after.label) == (before.name, before.label)
            seen += int(differing(before, after).sum())
    assert seen > 20 * len(INDICES)


@pytest.mark.parametrize("part", PARTS)
def test_a_removal_takes_its_part_and_nothing_else(data: Birds, part: str) -> None:
    shown = 0
    for index in INDICES:
        before, after = data[index], data.removed(index, part)
        assert not after.parts[part].any()
        assert not (differing(before, after) & ~touched(before, after, part)).any()
        shown += int(before.parts[part].sum())
        if before.parts[part].sum() > 5:
            assert differing(before, after).any()
    assert shown > 0


def test_three_exchanges_are_three_pictures_and_the_seed_decides(data: Birds) -> None:
    visible = [part for part in PARTS if data[3].parts[part].sum() > 20]
    assert len(visible) >= 5
    for part in visible:
        images = [sample.image for sample in (data[3], *data.exchanges(3, part, count=3))]
        assert not any(torch.equal(one, other) for one, other in combinations(images, 2))
        again = [sample.image for sample in data.exchanges(3, part, count=3)]
        assert all(torch.equal(one, other) for one, other in zip(images[1:], again, strict=True))
    drawn = [
        [
            sample.image.numpy().tobytes()
            for part in visible
            for sample in data.exchanges(3, part, count=3, seed=s)
        ]
        for s in (0, 1)
    ]
    assert drawn[0] != drawn[1]


def test_the_sibling_is_the_deciding_part_exchanged(data: Birds) -> None:
    for index in INDICES:
        before, after = data[index], data.sibling(index)
        assert after is not None
        assert before.deciding_part is not None
        assert (after.label ^ 1, after.name) == (before.label, before.name)
        variant = data.species[after.label].variants[before.deciding_part]
        same = data.exchanged(index, before.deciding_part, variant)
        assert torch.equal(same.image, after.image)
        assert same.label == before.label


def test_without_the_sibling_in_the_set_there_is_none() -> None:
    odd = Birds(species=3, per_species=1, size=32)
    assert odd.sibling(1) is not None
    assert odd.sibling(2) is None


def test_every_part_of_every_species_has_enough_other_looks() -> None:
    for kind in all_species():
        for part in PARTS:
            others = kind.other_variants(part)
            assert len(set(others)) == len(others) >= 3
            assert kind.variants[part] not in others
            assert all(variant.colour != kind.plumage for variant in others)


def test_what_cannot_be_drawn_is_refused(data: Birds) -> None:
    with pytest.raises(UserError, match="unknown part 'nose'; choose one of beak"):
        data.removed(0, "nose")
    with pytest.raises(UserError, match="unknown part 'nose'"):
        data.exchanged(0, "nose", Variant("cone", "ink"))
    for variant in (Variant("fork", "ink"), Variant("cone", "pink")):
        with pytest.raises(UserError, match=r"no beak is a .*forms: cone, .*colours: ink, "):
            data.exchanged(0, "beak", variant)
    for count in (0, 1000):
        with pytest.raises(UserError, match=f"{count} exchanges of the beak; there are 1 to"):
            data.exchanges(0, "beak", count=count)
    with pytest.raises(IndexError):
        data.removed(len(data), "beak")
