"""Places and names where regions are parts that are found in every image anew."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import tiny_config

import dprotonet as dp
from dprotonet.data.base import image_of
from dprotonet.encoder.regions import Parts
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.explaining import row_marks
from dprotonet.experiment.explaining.explain import explained_rows
from dprotonet.experiment.explaining.explainers import (
    contrast_explainer,
    explainer,
    row_node,
    strongest_prototype,
)
from dprotonet.experiment.explaining.source_maps import SourceMaps
from dprotonet.experiment.explaining.streaming import grow_evidence
from dprotonet.experiment.prototypes.parts import FoundPlace, name_parts, nearest_places, suggested
from dprotonet.experiment.prototypes.split_evidence import splits_of_run
from dprotonet.experiment.quality.intervention import subject as intervention
from dprotonet.experiment.quality.row_maps import DecoderMaps
from dprotonet.experiment.runs.place import Place, places_of
from dprotonet.experiment.runs.run_folder import prototype_records
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.part_names import PartName
from dprotonet.interpretation.base import Passes
from dprotonet.interpretation.contrast_node import ContrastNode
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.ops import unit_range, upsample
from dprotonet.training.push import Projection

PARTS, SIZE = 3, 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> dp.Model:
    """Random weights; four classes with a prototype for each of three parts, pushed on made-up sources."""
    torch.manual_seed(0)
    tiny = tiny_config()
    network = replace(
        tiny.network, regions="parts", parts=PARTS, similarity="cosine", prototypes_per_class=PARTS
    )
    config = replace(tiny, network=network, data=replace(tiny.data, image_size=SIZE))
    built: Any = build_network(config.network, classes=4, image_size=SIZE, pretrained=False)
    torch.nn.init.normal_(built.prototypes.vectors)
    made = dp.Model(built, config=config, classes=[*"abcd"], prototypes=[])
    train = splits_of_run(made).train
    made.classes = tuple(train.classes)
    index = torch.arange(12) % 5
    none = torch.zeros(12, dtype=torch.bool)
    projection = Projection(index, torch.arange(12) % PARTS, torch.zeros(12), 1, index[:, None], none)
    made.prototypes = tuple(prototype_records(built, projection, train, seed=0, normalise=made.normalise))
    made.folder = tmp_path_factory.mktemp("parts")
    return made


def by_loops(model: dp.Model, image: torch.Tensor) -> list[Place]:
    """Each part's heaviest place in an image."""
    with torch.no_grad():
        maps = model.prototyped.encoder.feature_map(model.inputs([image]))[0, -PARTS:]
    height, width = maps.shape[-2:]
    found = []
    for shares in maps:
        cells = [
            (float(shares[row, column]), row, column) for row in range(height) for column in range(width)
        ]
        _, row, column = max(cells, key=lambda cell: cell[0])
        found.append(Place(row / height, column / width, 1 / height, 1 / width))
    return found


def test_boxes_are_the_heaviest_places() -> None:
    maps = torch.rand(2, 5 + PARTS, 3, 4, generator=torch.Generator().manual_seed(1))
    boxes = Parts(5, 4, PARTS, (3, 4)).boxes(maps)
    for image in range(2):
        for part, place in enumerate(places_of(boxes[image])):
            left, top, right, bottom = place.box(3, 4)
            assert (bottom - top, right - left) == (1, 1)
            assert maps[image, 5 + part, top, left] == maps[image, 5 + part].max()


def test_evidence_tells_where_each_part_is_in_this_image(model: dp.Model) -> None:
    image = splits_of_run(model).test[1].image
    wanted = by_loops(model, image)
    assert model.places is None
    for evidence in (model.predict(image).evidence, model.answer(image).evidence(0)):
        assert [item.place for item in sorted(evidence, key=lambda item: item.prototype)] == wanted * 4
    with torch.no_grad():
        plain = model.prototyped.evidence(model.inputs([image]))
        looked, _ = model.looked(model.inputs([image]))
    assert all(torch.equal(one, other) for one, other in zip(plain, looked, strict=True))


def test_records_know_the_place_in_their_source(model: dp.Model) -> None:
    train = splits_of_run(model).train
    for record in model.prototypes[:5]:
        assert record.place == by_loops(model, image_of(train, record.index))[record.region]


def test_places_in_training_images(model: dp.Model) -> None:
    train = splits_of_run(model).train
    found = nearest_places(model, train, images=2)
    for number in (0, 7):
        assert len(found[number]) == 2
        for one in found[number]:
            assert train.labels[one.index] == int(model.prototyped.prototype_class[number])
            assert one.place == by_loops(model, image_of(train, one.index))[number % PARTS]


def test_prototypes_of_a_part_share_letters_and_the_names_that_people_give(model: dp.Model) -> None:
    train = splits_of_run(model).train
    names = suggested(model, train, [[] for _ in model.prototypes])
    assert [names[number].name for number in range(6)] == [*"ABCABC"]
    name_parts(model, {4: "beak"})
    assert set(model.part_names) == {1, 4, 7, 10}
    assert set(model.part_names.values()) == {PartName("beak", given=True)}
    assert isinstance(model.folder, Path)
    assert (model.folder / "part_names.json").is_file()


def test_the_same_part_may_be_called_otherwise_in_another_class(model: dp.Model) -> None:
    """Detectors of one part may sit on the crest of one species and on the legs of another."""
    train = splits_of_run(model).train
    whole, corner = Place(0.0, 0.0, 1.0, 1.0), Place(0.0, 0.0, 1 / 224, 1 / 224)
    found = [[FoundPlace(0, whole if number == 1 else corner)] for number in range(len(model.prototypes))]
    names = suggested(model, train, found)
    assert names[1] == PartName("whole image", 1.0)
    assert names[4] == PartName("background", 1.0)


def test_a_part_that_is_behind_comes_before_prototypes_that_say_nothing(model: dp.Model) -> None:
    """The heads of `--recipe parts` give other classes' prototypes no weight; shown rows would be empty."""
    weight, own = model.network.head.weight, model.prototyped.prototype_class
    before = weight.detach().clone()
    image = splits_of_run(model).test[1].image
    with torch.no_grad():
        weight.copy_(torch.nn.functional.one_hot(own, 4).T.to(weight))
    try:
        prediction = model.predict(image)
        told = [
            prediction.evidence,
            *(model.answer(image).evidence(label) for label in range(4)),
        ]
    finally:
        with torch.no_grad():
            weight.copy_(before)
    assert any(item.lead is not None and item.lead < 0 for items in told for item in items)
    for items in told:
        assert [item.lead is not None for item in items] == [True] * PARTS + [False] * 9
        assert [item.decides for item in items[:PARTS]] == sorted(
            (item.decides for item in items[:PARTS]), reverse=True
        )


def test_evidence_is_sorted_by_what_decides(model: dp.Model) -> None:
    """Leads of the class's prototypes add up to its margin; a rival's prototypes have none."""
    image = splits_of_run(model).test[1].image
    prediction = model.predict(image)
    said = model.answer(image)
    for label in range(len(model.classes)):
        told = said.evidence(label)
        assert [item.decides for item in told] == sorted((item.decides for item in told), reverse=True)
        leading = [item for item in told if item.lead is not None]
        assert {item.class_name for item in leading} == {model.classes[label]}
        assert len(leading) == PARTS
        (rival,) = {model.classes.index(item.rival) for item in leading}
        logits = said.logits()
        assert logits[rival] == max(logits[k] for k in range(len(logits)) if k != label)
        margin = float(logits[label] - logits[rival])
        assert sum(item.lead or 0.0 for item in leading) == pytest.approx(margin, abs=1e-6)
    assert prediction.evidence[0].ahead.endswith(f"ahead of {prediction.evidence[0].rival}")


SHORT: Any = preset("fast", iterations=1, own_guess=True)
FROM_ITS_MAP = Passes(5, 2)  # the image, a blank one, the part's map; kept and hidden, with their gradients


def test_rows_are_decoded_from_the_maps_of_their_parts(
    model: dp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both the places in the image and those in the sources, for a sheet as for a page that watches."""
    image = splits_of_run(model).test[1].image
    monkeypatch.setattr(SourceMaps, "image", lambda _maps, _number: image)
    monkeypatch.setattr(row_marks, "source_image", lambda *_: image)
    items = model.predict(image).evidence[:2]
    monkeypatch.setattr(SourceMaps, "_keep", lambda _maps, _found: None)
    (drawn,) = explained_rows(model, [image], [items], preset=SHORT)
    watched = grow_evidence(model, image, items, preset=SHORT, watch=lambda _growing: None)
    for row in (*drawn, *watched):
        assert row.input.passes == FROM_ITS_MAP
        assert row.source.passes == Passes(4, 2)  # there the prototype itself is to be kept


def test_rows_that_are_measured_are_those_that_are_shown(model: dp.Model) -> None:
    sample = splits_of_run(model).test[1]
    inputs = model.inputs([sample.image])
    subject = intervention.subject_of(model, splits_of_run(model).test, 1, rows=2)
    node = row_node(model.prototyped, subject.region[subject.rows])
    shown = MDM(preset=SHORT).explain(inputs.expand(2, -1, -1, -1), node)
    maps = torch.stack([one.heatmap for one in shown])
    assert shown[0].passes == FROM_ITS_MAP
    assert torch.equal(intervention.subject_maps(model, subject, subject.rows, SHORT), maps)
    assert torch.equal(DecoderMaps(model.prototyped, SHORT)(inputs, subject.rows.tolist(), sample), maps)
    strongest = strongest_prototype(model.prototyped, inputs, torch.tensor([0]))
    assert MDM(preset=SHORT).explain(inputs, strongest)[0].passes == FROM_ITS_MAP


def test_parts_need_no_image_for_each_prototype(tmp_path: Path) -> None:
    """Five parts of a class of three images; as many masks would each want an image of their own."""
    tiny = tiny_config()
    data = replace(tiny.data, train_per_species=3)
    asked = replace(tiny.network, prototypes_per_class=5)
    parts = replace(asked, regions="parts", parts=5, similarity="cosine")
    found = dp.train(replace(tiny, data=data, network=parts), tmp_path / "parts")
    assert {len(record.sources) for record in found.prototypes} <= {1, 2, 3}
    assert len(found.prototypes) == 5 * len(found.classes)
    with pytest.raises(dp.UserError, match="fewer than its 5 prototypes"):
        dp.train(replace(tiny, data=data, network=asked), tmp_path / "masks")


def test_where_two_classes_differ_is_where_the_part_is_that_tells_them_apart(model: dp.Model) -> None:
    """Prototypes made alike in all parts but one: the map of the pair is that part's, both ways."""
    network: Any = copy.deepcopy(model.prototyped)
    seen = image_of(splits_of_run(model).train, 1)
    image = model.inputs([seen])
    part, owner = network.prototypes.assignment.part, network.prototype_class
    one, other = ((owner == label).nonzero().flatten() for label in (0, 1))
    with torch.no_grad():
        network.prototypes.vectors[other] = network.prototypes.vectors[one]
        network.prototypes.vectors[other[2]] *= -1
        feature_map = network.encoder.feature_map(image)
    share = network.encoder.regions.maps(feature_map)[0, part[other[2]]]
    classifier = replace(Classifier.of_model(model), module=network)
    by = explainer("similarity", classifier)
    maps = [by.explain(image, ContrastNode(network, [a], b))[0] for a, b in ((0, 1), (1, 0))]
    assert torch.equal(maps[0].raw, maps[1].raw)
    wanted = (share / share.max()).pow(network.encoder.regions.sharpness)
    enlarged = upsample(wanted, (image.shape[-2], image.shape[-1]))
    assert torch.allclose(maps[0].heatmap, unit_range(enlarged), atol=1e-4)
    pair = torch.tensor([0]), torch.tensor([1])
    with torch.no_grad():
        added, logits = network.added_by_places(image, *pair)[0], network(image)[0]
    assert float(added.sum()) == pytest.approx(float(logits[0] - logits[1]), abs=1e-5)
    # The places of the other two parts add nothing: what they have of this one's, they add.
    assert float(added.abs()[wanted < 1e-3].sum()) <= 1e-2 * float(added.abs().sum())
    shown = contrast_explainer(classifier).explain(image, ContrastNode(network, [0], 1))[0]
    assert shown.side is not None
    assert torch.allclose(shown.side.cpu(), upsample(added, tuple(shown.side.shape)), atol=1e-5)
    rows = model.answer(seen).contrast(0, 1).rows
    assert sorted(row.part for row in rows if row.part is not None) == list(range(PARTS))
    for row in rows:
        assert row.own is not None
        assert row.other is not None
        assert [row.own.class_name, row.other.class_name] == list(model.classes[:2])
