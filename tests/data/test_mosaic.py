"""Mosaics: four images in one, and which of their classes may be asked for."""

from collections import Counter

import pytest
import torch

from dprotonet.data.birds import Birds
from dprotonet.data.mosaic import Mosaics, Question, Tile, laid_out, quarter, questions


def stream(*labels: int) -> list[Tile]:
    return [Tile(index, label) for index, label in enumerate(labels)]


@pytest.mark.parametrize("size", [(8, 8), (7, 9), (2, 2)])
def test_every_image_has_its_quarter(size: tuple[int, int]) -> None:
    colours = (10, 60, 130, 255)
    mosaic = laid_out([torch.full((3, *size), colour, dtype=torch.uint8) for colour in colours])
    assert mosaic.shape == (3, *size)
    assert mosaic.dtype == torch.uint8
    for place, colour in enumerate(colours):
        assert (mosaic[:, quarter(size, place)] == colour).all()
    assert sum(quarter(size, place).int() for place in range(4)).eq(1).all()


def test_an_image_is_shrunk_not_cut() -> None:
    bright = torch.zeros(3, 16, 16, dtype=torch.uint8)
    bright[:, 12:, 12:] = 200  # its lower right corner
    tile = laid_out([bright] * 4)[0, :8, :8]
    assert tile[6:, 6:].min() > 150
    assert tile[:5, :5].max() < 20


def test_four_classes_make_four_questions() -> None:
    found = list(questions(stream(5, 5, 2, 5, 7, 1, 2, 7), classes=10))
    assert len(found) == 4
    assert [question.asked for question in found] == [0, 1, 2, 3]
    assert {tile.label for tile in found[0].tiles} == {1, 2, 5, 7}
    assert len(set(found[0].tiles)) == 4


def test_each_image_is_used_once_and_places_change() -> None:
    found = list(questions(stream(*range(4), *range(4), *range(4)), classes=4))
    used = Counter(tile.number for question in found if question.asked == 0 for tile in question.tiles)
    assert set(used.values()) == {1}
    assert len(used) == 12
    assert len({question.tiles[0].label for question in found}) == 3  # in three mosaics


def test_a_longer_stream_begins_alike() -> None:
    labels = torch.randint(0, 6, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    whole = list(questions(stream(*labels), classes=6))
    part = list(questions(stream(*labels[:120]), classes=6))
    assert 0 < len(part) < len(whole)
    assert whole[: len(part)] == part


@pytest.mark.parametrize(("classes", "asked"), [(2, 1), (3, 2)])
def test_few_classes_fill_up_with_one_of_them(classes: int, asked: int) -> None:
    found = list(questions(stream(*(list(range(classes)) * 4)), classes=classes))
    assert found
    for question in found:
        labels = [tile.label for tile in question.tiles]
        assert len(set(labels)) == classes
        assert labels.count(labels[question.asked]) == 1
    assert Counter(question.mosaic for question in found)[0] == asked


def test_one_class_makes_no_mosaic() -> None:
    assert list(questions(stream(*[3] * 20), classes=2)) == []


def test_a_sample_has_the_class_and_the_quarter_of_its_tile() -> None:
    birds = Birds(species=4, per_species=1, split="test", size=32)
    tiles = tuple(Tile(index, 10 + index) for index in range(4))
    mosaics = Mosaics(birds, ["x"] * 20, [Question(7, tiles, 2), Question(7, tiles, 3)])
    sample = mosaics[0]
    assert mosaics.labels == (12, 13)
    assert sample.label == 12
    assert sample.truth is not None
    assert sample.truth.equal(quarter((32, 32), 2))
    assert sample.image.equal(laid_out([birds[index].image for index in range(4)]))
    assert sample.name == mosaics.name(0) == f"mosaic-7/bottom-left/{birds.name(2)}"
    assert mosaics.fingerprint != birds.fingerprint
