"""What part a prototype stands for: suggested names by slow loops, names that people give, and mistakes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.experiment.export.conftest import untrained

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.data.base import ImageData, Sample
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.pictures import prototypes_picture
from dprotonet.experiment.prototypes.parts import (
    FoundPlace,
    keep_names,
    name_parts,
    nearest_places,
    part_under,
    parts_picture,
    suggested,
)
from dprotonet.experiment.prototypes.split_evidence import splits_of_run
from dprotonet.experiment.prototypes.what_if import without
from dprotonet.experiment.runs.place import Place
from dprotonet.experiment.trained.part_names import FILE, PartName, letters, read_part_names
from dprotonet.experiment.transfer.export.card import Card
from dprotonet.experiment.transfer.export.deployed import Deployed


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run whose regions are the 2 × 2 places of a map, with sources that are there."""
    model = untrained("protopnet")
    model.save_pretrained(tmp_path / "run")
    (tmp_path / "run" / "prototypes").mkdir()
    from dprotonet.experiment.explaining.pictures import save_picture
    from dprotonet.figures import picture

    save_picture(picture(splits_of_run(model).train[0].image), tmp_path / "run/prototypes/000000.png")
    return tmp_path / "run"


class Planted:
    """Six images of one class; under the upper left quarter lies a beak in four of them."""

    def __init__(self, model: dp.Model) -> None:
        self.classes, self.labels, self.fingerprint = model.classes, [0] * 6, "planted"

    def name(self, index: int) -> str:
        return f"{index}.png"

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Sample:
        beak, tail, thing = (torch.zeros(64, 64, dtype=torch.bool) for _ in range(3))
        (beak if index < 4 else tail)[:9, :9] = True
        tail[:3, 9:12] = True  # a smaller share of the same place
        thing[:20, :20] = True
        image = torch.zeros(3, 64, 64, dtype=torch.uint8)
        return Sample(image, 0, self.name(index), truth=thing, parts={"tail": tail, "beak": beak})


QUARTER = Place(0.0, 0.0, 0.25, 0.25)
ELSEWHERE = Place(0.75, 0.75, 0.25, 0.25)


def test_the_part_under_a_place(run: Path) -> None:
    sample = Planted(dp.load(run))[0]
    assert part_under(sample, QUARTER) == "beak"
    assert part_under(sample, Place(0.0, 0.14, 0.25, 0.25)) == "tail"
    assert part_under(sample, Place(0.25, 0.25, 0.05, 0.05)) is None  # on the thing, on no part
    assert part_under(sample, ELSEWHERE) == "background"
    bare = Sample(sample.image, 0, "bare", truth=sample.truth)
    assert part_under(bare, ELSEWHERE) is None  # nothing is known of parts


def test_names_are_suggested_where_most_images_agree_and_else_letters(run: Path) -> None:
    model = dp.load(run)
    data: Any = Planted(model)
    found = [[FoundPlace(index, QUARTER) for index in range(6)]] * len(model.prototypes)
    names = suggested(model, data, found)
    assert names[0].name == "beak"
    assert names[0].share == pytest.approx(4 / 6)
    strict = suggested(model, data, found, least=0.7)
    first, second, other = strict[0], strict[1], strict[2]  # two prototypes a class
    assert [item.words for item in (first, second, other)] == ["part A", "part B", "part A"]
    assert suggested(model, data, [[]] * len(found))[0] == PartName("A")


def test_nearest_places_by_loops_over_everything(run: Path) -> None:
    model = dp.load(run)
    train: ImageData = splits_of_run(model).train
    found = nearest_places(model, train, images=3)
    assert model.places is not None
    with torch.no_grad():
        vectors = model.prototyped.encoder(model.inputs([train[index].image for index in range(len(train))]))
    for number in (0, 5):
        gaps, vector = [], model.prototyped.prototypes.vectors[number].detach()
        owner = int(model.prototyped.prototype_class[number])
        for index in range(len(train)):
            if train.labels[index] == owner:
                each = (vectors[index] - vector).square().sum(dim=1)
                gaps.append((float(each.min()), index, int(each.argmin())))
        wanted = [FoundPlace(index, model.places[region]) for _, index, region in sorted(gaps)[:3]]
        assert found[number] == wanted
    assert parts_picture(model, train, found, class_name=model.classes[1]).height > 400


def test_letters_go_on_after_z() -> None:
    assert [letters(number) for number in (0, 25, 26, 27, 51, 52, 701, 702)] == [
        *("A", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA")
    ]
    assert max(Counter(letters(number) for number in range(1000)).values()) == 1


def test_names_are_kept_follow_their_prototypes_and_are_said(run: Path) -> None:
    model = dp.load(run)
    keep_names(model, {0: PartName("A"), 1: PartName("wing", 0.75), 3: PartName("tail", 1.0)})
    name_parts(model, {3: "  hooked \n beak "})
    keep_names(model, {0: PartName("B"), 3: PartName("tail", 1.0)})  # suggested anew: a person's name stays
    loaded = dp.load(run)
    assert loaded.part_names == {0: PartName("B"), 3: PartName("hooked beak", given=True)}
    image = splits_of_run(model).test[0].image
    for evidence in (loaded.predict(image).evidence, loaded.answer(image).evidence(2)):
        said = {item.prototype: item.words for item in evidence}
        assert (said[0], said[1]) == ("its part B, like part B of", "looks like")
        assert said[3] == "its hooked beak, like the hooked beak of"
        assert all(item.place in (loaded.places or ()) for item in evidence)
    smaller = without(loaded, [1])
    assert smaller.part_names == {0: PartName("B"), 2: PartName("hooked beak", given=True)}
    assert smaller.prototypes[2].place == loaded.prototypes[3].place
    smaller.save_pretrained(run.parent / "smaller")
    assert dp.load(run.parent / "smaller").part_names == smaller.part_names


def test_the_sheet_of_prototypes_shows_places_with_their_names(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "dprotonet.experiment.explaining.pictures.prototype_sheet", lambda *_, **given: drawn.append(given)
    )
    model = dp.load(run)
    name_parts(model, {3: "beak"})
    prototypes_picture(model)
    assert drawn[0]["captions"][2:4] == ["", "beak"]
    assert "the place with a margin" in drawn[0]["note"]


def test_the_card_of_an_export_has_places_sources_and_names(run: Path) -> None:
    model = dp.load(run)
    name_parts(model, {2: "beak"})
    card = Card.of(model, Deployed(model.network, model.normalise))
    assert card.places == model.places
    assert card.prototypes[2].part == "beak"
    assert card.prototypes[2].place == model.prototypes[2].place
    assert card.prototypes[2].sources == ("2.png",)
    assert Card.from_json(card.to_json(), where="here") == card
    old = json.loads(card.to_json())
    del old["places"]
    old["prototypes"] = [{key: item[key] for key in ("class_name", "source")} for item in old["prototypes"]]
    assert Card.from_json(json.dumps(old), where="here").prototypes[2].place is None
    old["prototypes"][0]["part"] = 7
    with pytest.raises(UserError, match="must be named"):
        Card.from_json(json.dumps(old), where="here")


@pytest.mark.parametrize(
    "wrong",
    [
        "{",
        "[]",
        '{"format": 2}',
        '{"format": 1, "prototypes": "DIGEST", "names": {"99": {"name": "a"}}}',
        '{"format": 1, "prototypes": "DIGEST", "names": {"0": {"name": ""}}}',
        '{"format": 1, "prototypes": "DIGEST", "names": {"0": {"name": "a", "share": 2.0}}}',
        '{"format": 1, "prototypes": "DIGEST", "names": {"0": {"title": "a"}}}',
        '{"format": 1, "prototypes": "DIGEST", "names": ["a"]}',
    ],
)
def test_a_damaged_file_is_told(run: Path, wrong: str) -> None:
    name_parts(dp.load(run), {0: "beak"})
    digest = json.loads((run / FILE).read_text())["prototypes"]
    (run / FILE).write_text(wrong.replace("DIGEST", digest))
    with pytest.raises(UserError, match=r"part_names.json is damaged .*; delete it"):
        dp.load(run)


def test_names_of_other_prototypes_are_set_aside(run: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = dp.load(run)
    name_parts(model, {0: "beak"})
    assert read_part_names(run, model.prototypes[1:]) == {}
    assert "is of other prototypes" in caplog.text


def test_the_command_lists_draws_and_names(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parts", str(run), "--json", "--images", "3", "--class", dp.load(run).classes[1]]) == 0
    told = json.loads(capsys.readouterr().out)
    assert Path(told["sheet"]) == run / "parts.png"
    assert (run / "parts.png").is_file()
    assert len(told["parts"]) == 8
    assert all(
        item["name"] and set(item["place"]) == {"top", "left", "height", "width"} for item in told["parts"]
    )
    assert main(["parts", str(run), "--name", "3=beak", "--name", "4=a long tail"]) == 0
    assert "a long tail" in capsys.readouterr().out
    assert dp.load(run).part_names[3] == PartName("beak", given=True)
    assert main(["prototypes", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "place" in shown
    assert "beak" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "8=beak"], "there is no prototype 8; the run has 0 to 7"),
        (["--name", "2="], "prototype 2 has an empty name"),
        (["--name", "2= "], "prototype 2 has an empty name"),
        (["--name", f"2={'a' * 41}"], "has 41 letters; at most 40"),
        (["--name", "2=a\x07b"], "cannot be printed"),
        (["--name", "beak"], "is not NUMBER=NAME"),
        (["--name", "-1=beak"], "is not NUMBER=NAME"),
        (["--name", "1=beak", "--name", "1=tail"], "two names"),
        (["--class", "dodo"], "'dodo' is no class of the run"),
        (["--images", "0"], "at least one image"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["parts", str(run), *words]) == 2
    assert message in capsys.readouterr().err
    assert not (run / FILE).exists()


@pytest.mark.parametrize(
    ("kind", "message"),
    [("spatial", "prototypes of masks have no place"), ("blackbox", "a black box has no prototypes")],
)
def test_what_has_no_place_has_no_parts(
    kind: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    untrained(kind).save_pretrained(tmp_path / "run")
    assert main(["parts", str(tmp_path / "run"), "--name", "0=beak"]) == 2
    assert message in capsys.readouterr().err
