"""Decision regions of a run: which images are drawn, which boxes are found, what is counted and kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dprotonet as dp
from dprotonet.data.base import ImageData, Sample
from dprotonet.data.box import Box as FileBox
from dprotonet.data.box import filled
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from dprotonet.experiment.explaining.decision_regions import DecisionRegions, decision_regions, drawn_images
from dprotonet.experiment.model import Model
from original_layouts import make_rsna

QUICK = dp.preset("fast", iterations=2, zoom=1.0)
SIZE = 64


class Planted:
    """Twelve samples of the run's classes; every truth is given by its number."""

    fingerprint = "planted"

    def __init__(self, classes: tuple[str, ...], truths: dict[int, Tensor], *, boxes: bool = False) -> None:
        self.classes, self.truths, self.boxes = classes, truths, boxes
        self.labels = [number % len(classes) for number in range(12)]

    def name(self, index: int) -> str:
        return f"test/{index}.png"

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Sample:
        torch.manual_seed(index)
        image = torch.randint(0, 255, (3, SIZE, SIZE), dtype=torch.uint8)
        plain = Sample(image, self.labels[index], self.name(index), self.truths.get(index))
        if not self.boxes:
            return plain
        return replace(plain, boxes=(FileBox(8, 8, 24, 40),), truth_is_boxes=True)


def square(left: int, top: int, right: int, bottom: int) -> Tensor:
    return filled([FileBox(left, top, right, bottom)], SIZE)


@pytest.fixture(scope="module")
def model(run_folder: Path) -> Model:
    loaded = dp.load(run_folder)
    assert loaded.config.data.image_size == SIZE
    return loaded


def test_images_with_a_truth_come_first_and_classes_take_turns(model: Model) -> None:
    nothing = torch.zeros(SIZE, SIZE, dtype=torch.bool)
    truths = {3: square(0, 0, 9, 9), 7: square(0, 0, 9, 9), 5: nothing}
    data = Planted(model.classes, truths)
    found = drawn_images(data, 5, seed=3)
    assert set(found[:2]) == {3, 7}
    assert len(set(found)) == 5
    full = drawn_images(Planted(model.classes, dict.fromkeys(range(12), square(0, 0, 9, 9))), 4, seed=1)
    labels = [data.labels[index] for index in full]
    assert sorted(labels) == list(range(4))
    assert drawn_images(data, 12) != drawn_images(data, 12, seed=1)
    assert sorted(drawn_images(data, 99)) == list(range(12))
    bare = Planted(model.classes, {})
    assert {data.labels[drawn_images(bare, 1, seed=seed)[0]] for seed in range(20)} == {0, 1, 2, 3}


def explained(model: Model, data: ImageData | None = None, **settings: object) -> DecisionRegions:
    given = {"images": 3, "preset": QUICK, **settings}
    return decision_regions(model, data, **given)  # type: ignore[arg-type]


def test_numbers_against_literal_ones(model: Model) -> None:
    """IoU of rectangles and heat inside by loops over pixels."""
    data = Planted(model.classes, dict.fromkeys(range(12), square(8, 8, 24, 40)), boxes=True)
    for item in explained(model, data).images:
        true, found, heat = item.true_boxes[0], item.box, item.explanation.heatmap
        assert true == (8, 8, 24, 40)
        assert found is not None
        pixels = [(row, column) for row in range(SIZE) for column in range(SIZE)]
        inside = [8 <= row < 40 and 8 <= column < 24 for row, column in pixels]
        hit = [
            found.top <= row < found.bottom and found.left <= column < found.right for row, column in pixels
        ]
        both = sum(one and other for one, other in zip(inside, hit, strict=True))
        either = sum(one or other for one, other in zip(inside, hit, strict=True))
        assert item.iou == pytest.approx(both / either)
        warm = sum(float(heat[place]) for place, here in zip(pixels, inside, strict=True) if here)
        assert item.heat_inside == pytest.approx(warm / float(heat.sum()), rel=1e-4)


def test_boxes_are_drawn_as_boxes_and_masks_as_masks(model: Model) -> None:
    truths = dict.fromkeys(range(12), square(8, 8, 24, 40))
    (boxed, *_) = explained(model, Planted(model.classes, truths, boxes=True)).images
    (masked, *_) = explained(model, Planted(model.classes, truths)).images
    assert boxed.drawn(truth=True).truth == [(8, 8, 24, 40)]
    assert boxed.drawn(truth=True).box == boxed.box
    assert isinstance(masked.drawn(truth=True).truth, Tensor)
    assert masked.drawn(truth=True).box is None
    assert masked.true_boxes == ((8, 8, 24, 40),)  # round the mask, for the numbers
    assert boxed.drawn(truth=False).truth is None


def test_the_found_box_goes_round_the_binary_mask(model: Model) -> None:
    data = Planted(model.classes, dict.fromkeys(range(12), square(8, 8, 24, 40)), boxes=True)
    (item, *_) = explained(model, data).images
    planted = replace(item, explanation=replace(item.explanation, above=square(20, 3, 31, 9)))
    assert planted.box == (20, 3, 31, 9)
    speck = replace(
        item, explanation=replace(item.explanation, above=square(20, 3, 31, 9) | square(60, 60, 62, 62))
    )
    assert speck.box == (20, 3, 31, 9)  # a speck in the corner does not stretch it
    empty = replace(item, explanation=replace(item.explanation, above=square(0, 0, 0, 0)))
    assert empty.box is None
    assert empty.iou == 0
    assert empty.summary()["found box"] is None
    assert empty.drawn(truth=True).box is None


def test_a_missing_truth_is_counted_and_the_rest_goes_on(model: Model, tmp_path: Path) -> None:
    data = Planted(model.classes, {4: square(8, 8, 24, 40)})
    found = explained(model, data, truth="drawn")
    path = found.save(tmp_path / "regions", title="a title")
    content = json.loads(path.with_suffix(".json").read_text())
    assert path.is_file()
    assert (content["images"], content["without truth"]) == (3, 2)
    with_truth, *without = content["regions"]
    assert with_truth["image"] == "test/4.png"
    assert with_truth["iou"] == content["iou"]
    assert with_truth["truth"] == "mask"
    for item in without:
        assert (item["truth"], item["iou"], item["heat inside truth"]) == (None, None, None)


def test_of_birds_the_heatmap_alone_is_drawn(model: Model, run_folder: Path) -> None:
    """By the word of the run's data; numbers are there all the same."""
    done: list[tuple[int, int]] = []
    found = decision_regions(
        run_folder, images=2, preset=QUICK, on_progress=lambda *now: done.append(now), seed=2
    )
    assert not found.truth_drawn
    assert found.images[0].iou is not None
    assert done[-1][0] == done[-1][1] > 1
    assert explained(model, truth="drawn", images=1).truth_drawn


def test_the_strongest_prototype_can_be_watched(model: Model) -> None:
    (item,) = explained(model, images=1, node="prototype").images
    number = item.prediction.evidence[0].prototype
    assert item.explanation.node == f"prototype {number} in the image"


def test_other_classes_have_no_right_answer(model: Model) -> None:
    data = Planted(("one", "two", "three"), {})
    found = explained(model, data, images=1)
    assert found.images[0].right is None
    assert found.summary()["right"] is None


def test_rsna_says_that_its_truth_is_boxes(tmp_path: Path) -> None:
    splits = rsna_splits(make_rsna(tmp_path / "rsna", png=True), Reading(size=SIZE))
    samples = [splits.train[index] for index in range(len(splits.train))]
    assert all(sample.truth_is_boxes for sample in samples)
    assert any(sample.boxes for sample in samples)
    assert any(sample.truth is not None and not sample.boxes for sample in samples)  # normal: an empty truth


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"images": 0}, "images is 0; at least one"),
        ({"node": "pixel"}, "unknown node 'pixel'; known: class, prototype"),
        ({"truth": "red"}, "unknown truth 'red'; known: auto, drawn, none"),
    ],
)
def test_bad_wishes_are_named(model: Model, wrong: dict[str, object], message: str) -> None:
    with pytest.raises(dp.UserError, match=message):
        explained(model, **wrong)
