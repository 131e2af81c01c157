"""Marks of rows on a small trained run: planted pairs, the limit from validation images, what noise moves."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import ImageColor

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.errors import UserError
from dprotonet.experiment.explaining import row_marks as module
from dprotonet.experiment.explaining.evidence_picture import evidence_picture
from dprotonet.experiment.explaining.row_marks import RowMark, row_marks
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.row_places import FILE, PlaceLimit, limit_of
from dprotonet.figures.style import CAUTION


@pytest.fixture
def run(run_folder: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run_folder, tmp_path / "run"))


def test_words_and_thresholds() -> None:
    words = {1.0: "steady", 0.99: "moves", 0.5: "moves", 0.49: "unsteady", 0.0: "unsteady"}
    assert {kept: RowMark(kept, 0.0).word for kept in words} == words
    assert RowMark(1, 0.2).differ is None
    assert not RowMark(1, 0.2).warning
    assert RowMark(1, 0.2, limit=0.1).warning
    assert not RowMark(1, 0.1, limit=0.1).warning


def test_the_limit_is_what_a_twentieth_exceeds() -> None:
    ranks = torch.arange(100) / 100
    found = limit_of(ranks[torch.randperm(100)], images=40, network=torch.nn.Linear(2, 2))
    assert found.limit == pytest.approx(0.95)
    assert found.share == pytest.approx(0.04)


def test_few_images_are_told_and_many_are_not() -> None:
    """By hand: none of 4 images, Wilson's upper end is z² / (n + z²)."""
    few = PlaceLimit(0.3, 0.0, rows=12, images=4, weights="")
    assert few.interval == (0.0, pytest.approx(3.841 / 7.841, abs=1e-3))
    assert "from 4 images only, so between 0.0 % and 49.0 %" in few.caution()
    assert "where 5.0 % were asked for" in few.caution()
    many = PlaceLimit(0.3, 0.05, rows=600, images=200, weights="")
    assert many.interval[0] < 0.05 < many.interval[1] < 0.1
    assert many.caution() == ""
    assert PlaceLimit(0.3, 0.01, rows=600, images=200, weights="").caution(0.01) != ""


def test_a_prototype_in_its_own_source_agrees_and_another_place_does_not(run: Path) -> None:
    """The pair of a source with itself is a right one by construction; a foreign place is planted."""
    model = Model.load(run)
    record = model.prototypes[0]
    image = module.source_image(model, 0)
    (answer,) = model.answers([image])
    item = next(e for e in answer.evidence(0) if e.prototype == record.prototype)
    ((mark,),) = row_marks(model, [image], [[item]])
    assert mark.rank == 0
    sources = module._Sources(model)
    seen = sources[0]
    seen.points = 1 - seen.points  # the opposite place
    inputs = model.inputs([image])
    (planted,) = module._ranks(model, inputs, [0], sources, module._points(model, inputs, [0])[0])
    middle = bool(((seen.points - 0.5).abs() < 0.08).all())
    assert middle or planted > 0


def test_what_does_not_move_is_steady_and_what_noise_moves_is_not(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model.load(run)
    image = module.source_image(model, 0)
    (answer,) = model.answers([image])
    rows = [list(answer.evidence(answer.label())[:3])]
    monkeypatch.setattr(module, "NOISE", 0.0)
    assert all(mark.kept == 1 for mark in row_marks(model, [image], rows)[0])
    monkeypatch.setattr(module, "NOISE", 20.0)  # nothing is left of the image
    drowned = row_marks(model, [image], rows)[0]
    assert min(mark.kept for mark in drowned) < 1
    assert drowned == row_marks(model, [image], rows)[0]  # the same noise every time


def test_the_command_keeps_a_limit_that_explain_uses(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reliability", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["share"] <= 0.05
    assert found["rows"] == 3 * found["images"]
    assert found["interval"][1] > 0.15
    assert "careful: the limit is from" in found["caution"]  # a dozen validation images
    assert main(["reliability", str(run)]) == 0
    assert found["caution"] in capsys.readouterr().out
    assert PlaceLimit.read(run, Model.load(run).network) is not None
    source = str(run / Model.load(run).prototypes[0].image)
    words = ["explain", str(run), source, "--out", str(tmp_path / "why"), "--json", "--iterations", "1"]
    assert main(words) == 0
    (item,) = json.loads(capsys.readouterr().out)["explanations"]
    for row in item["rows"]:
        assert row["reliability_word"] in ("steady", "moves", "unsteady")
        assert 0 <= row["reliability"] <= 1
        assert row["place_limit"] == found["limit"]
        assert row["places_differ"] == (row["place_rank"] > found["limit"])


def test_a_limit_of_other_weights_counts_as_none_and_a_damaged_one_is_named(run: Path) -> None:
    network = Model.load(run).network
    PlaceLimit(0.1, 0.05, 30, 10, "other").write(run)
    assert PlaceLimit.read(run, network) is None
    (run / FILE).write_text('{"limit": "far"}')
    with pytest.raises(UserError, match="dprotonet reliability"):
        PlaceLimit.read(run, network)


def test_bad_shares_are_refused(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reliability", str(run), "--share", "2"]) == 2
    assert "--share is 2.0" in capsys.readouterr().err


def test_sheets_say_what_rows_are_worth(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit that every row is beyond, both kinds of sheets have the amber of a warning, else none."""
    model = Model.load(run)
    image = module.source_image(model, 0)
    (prediction,) = model.predict_many([image])
    model.familiarity = None  # another amber warning
    prediction = replace(prediction, distance=None)

    def sheets() -> list[bool]:
        (found,) = model.explain_contrast(image, preset=dp.preset("fast", iterations=1, zoom=1.0))
        drawn = [evidence_picture(model, image, prediction, marks=True), found.picture()]
        return [ImageColor.getrgb(CAUTION) in dict(map(reversed, one.getcolors(10**7))) for one in drawn]

    assert sheets() == [False, False]
    monkeypatch.setattr(module, "_stored_limit", lambda _model: -1.0)
    assert sheets() == [True, True]
    plain = evidence_picture(model, image, prediction)
    assert plain.tobytes() != evidence_picture(model, image, prediction, marks=True).tobytes()


def test_marks_of_predict_are_for_its_pictures(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = str(run / Model.load(run).prototypes[0].image)
    assert main(["predict", str(run), source, "--marks"]) == 2
    assert "--marks is for the pictures of --out FOLDER" in capsys.readouterr().err
    assert main(["predict", str(run), source, "--marks", "--out", str(run / "x.csv")]) == 2
    assert "a table has none" in capsys.readouterr().err
    assert main(["predict", str(run), source, "--marks", "--out", str(run / "pictures")]) == 0
    assert len(list((run / "pictures").glob("*.png"))) > 0
