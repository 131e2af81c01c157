"""What the model is, in words; a record that is damaged costs its own lines only."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.run_folder import unknown_source
from dprotonet.experiment.settings import recipe_tables
from dprotonet.report.about import NETWORKS, about, described_data


def test_every_network_has_a_name() -> None:
    assert list(NETWORKS) == list(recipe_tables.NETWORKS)


@pytest.fixture
def model(run_folder: Path, tmp_path: Path) -> Model:
    shutil.copytree(run_folder, tmp_path / "run")
    return Model.load(tmp_path / "run")


def test_the_model_in_words(model: Model) -> None:
    assert model.folder is not None
    environment = {"python": "3.11", "packages": {"torch": "2.6"}, "command": ["__main__.py", "train", "a b"]}
    (model.folder / "environment.json").write_text(json.dumps(environment))
    found = about(model, folder=model.folder)
    facts = {fact.name: fact.value for fact in found.facts}
    assert found.title == "run"
    assert "4 classes" in found.lead
    assert "8 prototypes" in found.lead
    assert facts["Network"] == "DProtoNet"
    assert facts["Backbone"].startswith("tf_efficientnet_lite0, first trained on ImageNet")
    assert facts["Prototypes"] == "8: 2 for every class"
    assert facts["Random seed"] == "0 (training), 0 (data)"
    assert {fact.name: fact.value for fact in found.settings}["network.masks"] == "12"
    assert [(fact.name, fact.value) for fact in found.versions] == [("python", "3.11"), ("torch", "2.6")]
    assert found.command == "dprotonet train 'a b'"


def test_the_decoder_is_named_and_that_the_run_has_another(model: Model) -> None:
    def said(preset: str) -> str:
        assert model.folder is not None
        facts = about(model, folder=model.folder, preset=preset).facts
        return next(fact.value for fact in facts if fact.name == "Heatmaps")

    assert said("fast") == "by the decoder fast"
    model.config = replace(model.config, explaining=replace(model.config.explaining, decoder="paper"))
    assert said("paper") == "by the decoder paper"
    assert said("fast") == (
        "by the decoder fast, not paper as this run's recipe says: for that add --preset paper"
    )


@pytest.mark.parametrize("text", ["", "[1]", '{"packages": 3, "command": "x"}'])
def test_a_damaged_record_is_left_out(model: Model, text: str) -> None:
    assert model.folder is not None
    (model.folder / "environment.json").write_text(text)
    found = about(model, folder=model.folder)
    assert (found.versions, found.command) == ((), "")


def test_what_was_left_out_is_told(model: Model) -> None:
    assert model.folder is not None
    for text, said in (('{"dropped": [1, 2], "prototypes_before": 8}', ["2 of 8"]), ("[]", []), ("{", [])):
        (model.folder / "cleaned.json").write_text(text)
        found = [fact.value for fact in about(model, folder=model.folder).facts if fact.name == "Left out"]
        assert [value[:6] for value in found] == said


def test_an_imported_run_makes_up_no_training(model: Model) -> None:
    assert model.folder is not None
    records = [unknown_source(item.prototype, item.class_name) for item in model.prototypes]
    imported = Model(model.network, config=model.config, classes=model.classes, prototypes=records)
    facts = {fact.name: fact.value for fact in about(imported, folder=model.folder).facts}
    assert "imported" in facts["Training"]
    assert facts["Random seed"] == "unknown"


def test_the_epochs_are_those_that_are_taken(model: Model) -> None:
    assert model.folder is not None
    for epochs, said in (
        (2, "at most 5 epochs (2 asked for; a push comes every 5)"),
        (5, "at most 5 epochs"),
    ):
        training = replace(model.config.training, epochs=epochs, warm_epochs=0, push_every=5)
        model.config = replace(model.config, training=training)
        facts = {fact.name: fact.value for fact in about(model, folder=model.folder).facts}
        assert facts["Training"].endswith(said)


def test_data_in_words() -> None:
    assert described_data("birds").startswith("built-in birds")
    assert described_data("folder:/a/b") == "folder, /a/b"
