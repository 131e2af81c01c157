"""From a run to the content of its report: numbers that agree with the model's own, and what is missing."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dprotonet.data.base import ImageData
from dprotonet.encoder.regions import Parts
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.evaluation.evaluation import evaluate_model, save_evaluation
from dprotonet.experiment.explaining import explain
from dprotonet.experiment.explaining.row_marks import row_marks
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes import facts
from dprotonet.experiment.prototypes import split_evidence as split_evidence_of
from dprotonet.experiment.prototypes.split_evidence import split_evidence
from dprotonet.experiment.runs.run_folder import unknown_source
from dprotonet.interpretation.mdm import preset
from dprotonet.report import cases as report_cases
from dprotonet.report.comparison import comparison
from dprotonet.report.content import Report
from dprotonet.report.gather import gather
from dprotonet.report.options import AtHand, ReportOptions
from dprotonet.report.page import render
from dprotonet.training.checkpoint import weights_digest

QUICK = preset("fast", iterations=1)


@pytest.fixture(scope="module")
def model(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    folder = tmp_path_factory.mktemp("report") / "run"
    shutil.copytree(run_folder, folder)
    return Model.load(folder)


@pytest.fixture(scope="module")
def report(model: Model) -> Report:
    wishes = ReportOptions(sure=1, unsure=1, mistakes=1, top=2, preset=QUICK)
    return gather(model, wishes, made="today")


def test_the_numbers_are_those_of_evaluate(model: Model, report: Report) -> None:
    summary = evaluate_model(model, model.config.data).summary()
    found = report.performance
    assert found is not None
    assert found.accuracy == summary["accuracy"]
    assert [list(row) for row in found.confusion] == summary["confusion"]
    assert {item.name: item.share for item in found.classes} == summary["per_class"]
    for place, item in enumerate(found.classes):
        wrong = [count for column, count in enumerate(found.confusion[place]) if column != place]
        assert item.times == max(wrong)
    assert report.mistakes is not None
    assert report.mistakes.total == sum(item.images - item.right for item in found.classes)
    for mistake in report.mistakes.shown:
        sides = mistake.compared
        assert sides is not None
        assert (sides.said, sides.truth) == (mistake.said, mistake.truth)
        assert [near.class_name for near in sides.nearest] == [mistake.said, mistake.truth]
        rows = sum(row.points - row.other_points for row in sides.differing)
        ahead = rows + sides.others_for + sides.others_against
        assert ahead == pytest.approx(sides.logits[0] - sides.logits[1])
        parts = isinstance(model.prototyped.encoder.regions, Parts)
        assert (sides.told_apart is not None) == parts  # else a decoder would have to look
        assert mistake.said in sides.sentence
        assert mistake.truth in sides.sentence


def test_every_prototype_is_there_once(model: Model, report: Report) -> None:
    assert [group.name for group in report.classes] == list(model.classes)
    numbers = sorted(card.number for group in report.classes for card in group.cards)
    assert numbers == [record.prototype for record in model.prototypes]
    for group in report.classes:
        weights = [card.weight for card in group.cards]
        assert weights == sorted(weights, reverse=True)
        for card in group.cards:
            assert model.prototypes[card.number].class_name == group.name
            assert model.prototypes[card.number].source == card.source
    fires = [card.fires for group in report.classes for card in group.cards]
    assert 0 < sum(count or 0 for count in fires) <= len(build_splits(model.config.data).train)


def test_evidence_adds_up_to_the_logits(model: Model, report: Report) -> None:
    test = build_splits(model.config.data).test
    index = {test.name(number): number for number in range(len(test))}
    cases = [case for group in report.groups for case in group.cases]
    assert cases
    for case in cases:
        with torch.no_grad():
            logits = model.network(model.inputs([test[index[case.name]].image]))[0]
        assert case.said == model.classes[int(logits.argmax())]
        assert [item.class_name for item in case.arguments] == list(dict.fromkeys((case.said, case.truth)))
        for argument in case.arguments:
            label = model.classes.index(argument.class_name)
            assert argument.score == pytest.approx(float(logits[label]), rel=1e-4)
            assert sum(round(row.points, 2) for row in argument.rows) + argument.rest == pytest.approx(
                argument.score, abs=0.006
            )
            assert len(argument.rows) + argument.others == len(model.prototypes)
            for row in argument.rows:
                assert row.similarity * row.weight == pytest.approx(row.points)
                assert row.place is not None
                assert row.source_placed


def test_no_image_is_looked_at_twice(model: Model, report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    """Facts and nearest images share a pass over the training images, heatmaps and marks their rows."""
    passes, rows = list[int](), list[int]()

    def counted_pass(model: Model, data: ImageData, *rest: object) -> object:
        passes.append(len(data))
        return split_evidence(model, data, *rest)  # type: ignore[arg-type]

    def counted_rows(model: Model, images: object, chosen: list[list[object]]) -> object:
        rows.append(sum(map(len, chosen)))
        return row_marks(model, images, chosen)  # type: ignore[arg-type]

    for module in (facts, split_evidence_of):
        monkeypatch.setattr(module, "split_evidence", counted_pass)
    for module in (report_cases, explain):
        monkeypatch.setattr(module, "row_marks", counted_rows)
    (model.folder / facts.FILE).unlink()  # type: ignore[operator]
    wishes = ReportOptions(sure=1, unsure=1, mistakes=1, top=2, preset=QUICK)
    assert gather(model, wishes, made="today") == report
    assert report.mistakes is not None
    assert report.mistakes.total  # so that nearest images are asked for
    assert passes == [len(build_splits(model.config.data).train)]
    assert sorted(rows) == [
        0,
        sum(len(one.rows) for group in report.groups for case in group.cases for one in case.arguments),
    ]


def test_groups_are_what_they_say(report: Report) -> None:
    groups = {group.key: group.cases for group in report.groups}
    assert all(case.right for case in groups.get("sure", ()))
    assert not any(case.right for case in groups.get("mistakes", ()))
    if "sure" in groups and "unsure" in groups:
        assert groups["sure"][0].probability >= groups["unsure"][0].probability


def test_shown_prototypes_have_heatmaps_and_the_rest_is_told(report: Report) -> None:
    shown = {
        row.prototype
        for group in report.groups
        for case in group.cases
        for argument in case.arguments
        for row in argument.rows
    }
    placed = {card.number for group in report.classes for card in group.cards if card.heatmap is not None}
    assert shown == placed
    total = sum(len(group.cards) for group in report.classes)
    told = [text for text in report.missing if text.startswith("Heatmaps of")]
    assert bool(told) == (len(placed) < total)


def test_all_heatmaps_can_be_asked_for(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.folder or "", tmp_path / "run")
    seen: list[tuple[str, int, int]] = []
    found = gather(
        Model.load(tmp_path / "run"),
        ReportOptions(data="none", preset=QUICK, heatmaps="all"),
        made="today",
        on_progress=lambda *step: seen.append(step),
    )
    assert all(card.heatmap is not None for group in found.classes for card in group.cards)
    assert not any("Heatmaps of" in text for text in found.missing)
    assert all(0 < done <= total for _, done, total in seen)


def test_known_places_are_not_made_again(model: Model) -> None:
    splits = build_splits(model.config.data)
    evaluation = evaluate_model(model, model.config.data)
    size = model.config.data.image_size
    everywhere = {
        (index, number): torch.full((size, size), 0.5)
        for index in range(len(splits.test))
        for number in range(len(model.prototypes))
    }
    found = gather(
        model,
        ReportOptions(sure=1, unsure=0, mistakes=0, top=1, preset=QUICK, heatmaps="stored"),
        made="today",
        at_hand=AtHand(splits, evaluation, everywhere),
    )
    rows = [row for group in found.groups for case in group.cases for a in case.arguments for row in a.rows]
    assert rows
    assert all(row.place is not None for row in rows)


def test_without_data_only_what_the_folder_has(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.folder or "", tmp_path / "run")
    (tmp_path / "run" / "prototype_facts.json").unlink(missing_ok=True)
    bare = Model.load(tmp_path / "run")
    found = gather(bare, ReportOptions(data="none", heatmaps="stored"), made="today")
    assert found.performance is None
    assert found.groups == ()
    assert found.mistakes is None
    assert len(found.classes) == len(model.classes)
    assert all(card.purity is None for group in found.classes for card in group.cards)
    said = " ".join(found.missing)
    for words in ("were not read", "has no evaluation", "takes the training images"):
        assert words in said
    text = render(found)
    assert "Nothing can be said here" in text
    for data, said in (("birds", "built-in birds"), ("folder:/other", "folder, /other")):
        evaluation = evaluate_model(bare, bare.config.data)
        save_evaluation(evaluation, tmp_path / "run" / "evaluation", data=data, network=bare.network)
        again = gather(bare, ReportOptions(data="none", heatmaps="stored"), made="today")
        assert again.performance is not None
        assert again.performance.origin == "evaluation/test.json"
        assert again.performance.data.startswith(said)


def test_an_imported_run_has_a_page_without_pictures_of_prototypes(model: Model) -> None:
    records = [unknown_source(item.prototype, item.class_name) for item in model.prototypes]
    imported = Model(model.network, config=model.config, classes=model.classes, prototypes=records)
    imported.folder = model.folder
    found = gather(imported, ReportOptions(sure=1, unsure=0, mistakes=0, preset=QUICK), made="today")
    assert found.performance is not None
    assert found.classes == ()
    assert len(found.groups) == 1
    assert any("was imported" in text for text in found.missing)
    assert "was imported" in render(found)


def test_data_that_is_gone_is_told_and_other_data_that_is_not_there_is_an_error(model: Model) -> None:
    gone = Model(model.network, config=model.config, classes=model.classes, prototypes=model.prototypes)
    gone.folder = model.folder
    gone.config = replace(gone.config, data=replace(gone.config.data, data="folder:/no/such/place"))
    found = gather(gone, ReportOptions(heatmaps="stored"), made="today")
    assert "/no/such/place" in found.missing[0]
    with pytest.raises(UserError, match="/no/such/place"):
        gather(model, ReportOptions(data="folder:/no/such/place"), made="today")


def test_images_in_two_splits_are_told(model: Model) -> None:
    leaky = replace(build_splits(model.config.data), leaks=("train/a.png = test/b.png",))
    evaluation = evaluate_model(model, model.config.data)
    wishes = ReportOptions(sure=0, unsure=0, mistakes=0, heatmaps="stored")
    found = gather(model, wishes, made="today", at_hand=AtHand(leaky, evaluation))
    assert found.missing[0].startswith("A fair test: 1 image ")


def test_a_model_without_a_folder_and_odd_wishes_are_refused(model: Model) -> None:
    bare = Model(model.network, config=model.config, classes=model.classes, prototypes=model.prototypes)
    with pytest.raises(UserError, match="run folder"):
        gather(bare, ReportOptions(), made="today")
    with pytest.raises(UserError, match="top is 0"):
        ReportOptions(top=0)
    with pytest.raises(UserError, match="sure is -1"):
        ReportOptions(sure=-1)


def table(model: Model, folder: Path, weights: str | None = None) -> Path:
    """What `dprotonet compare` leaves, as far as a report reads it."""
    folder.mkdir(parents=True)
    cell = {"mean": 0.25, "low": 0.2, "high": 0.3}
    rows = [
        {
            "method": method,
            "images": 5,
            "seconds": 0.5,
            "measures": {"deletion": cell, "AD50": cell, "IOU": cell},
        }
        for method in ("mdm", "random")
    ]
    content = {"network": "x", "protocol": {"images": 5}, "surely best": {"deletion": "mdm"}, "rows": rows}
    (folder / "table.json").write_text(json.dumps(content))
    (folder / "plan.json").write_text(json.dumps({"weights": weights or weights_digest(model.network)}))
    return folder


def test_a_comparison_is_found_in_the_run_folder(model: Model, tmp_path: Path) -> None:
    shutil.copytree(model.folder or "", tmp_path / "run")
    own = Model.load(tmp_path / "run")
    assert comparison(own, None) is None
    table(own, tmp_path / "run" / "another", weights="of another network")
    assert comparison(own, None) is None
    table(own, tmp_path / "run" / "compared")
    found = comparison(own, None)
    assert found is not None
    assert found.folder == "compared"
    faithful, placed = found.tables
    assert [column.name for column in faithful.columns] == ["deletion", "AD50"]
    assert [column.better for column in faithful.columns] == ["lower", "lower"]
    assert "50 %" in faithful.columns[1].meaning
    assert [column.name for column in placed.columns] == ["IOU"]
    assert faithful.rows[0].cells[0].text == "0.250 ± 0.050"
    assert (faithful.rows[0].cells[0].best, faithful.rows[1].cells[0].best) == (True, False)
    assert (faithful.rows[0].control, faithful.rows[1].control) == (False, True)


def test_a_comparison_that_does_not_fit_is_refused(model: Model, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no table\.json"):
        comparison(model, tmp_path)
    with pytest.raises(UserError, match="another network"):
        comparison(model, table(model, tmp_path / "other", weights="abc"))
    damaged = table(model, tmp_path / "damaged")
    (damaged / "table.json").write_text("{}")
    with pytest.raises(UserError, match="damaged"):
        comparison(model, damaged)
