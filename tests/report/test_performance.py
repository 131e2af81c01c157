"""Numbers that an earlier evaluation left: only those of these weights, of the class it called positive."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import tiny_config

from dprotonet.experiment.evaluation.evaluation import evaluate_model, save_evaluation
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.report.content import Report
from dprotonet.report.gather import gather
from dprotonet.report.options import ReportOptions
from dprotonet.report.performance import _performance, stored, stored_positive


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two classes."""
    config = tiny_config(mode="frozen", epochs=1, warm_epochs=0, push_every=1, last_layer_epochs=0)
    config = replace(config, data=replace(config.data, species=2))
    out = tmp_path_factory.mktemp("two") / "run"
    for _ in Trainer(config, out, cache=out.parent / "cache").run():
        pass
    return out


@pytest.fixture
def model(trained: Path) -> Model:
    """Evaluated, the first class being positive."""
    found = Model.load(trained)
    evaluation = evaluate_model(found, found.config.data, positive=found.classes[0])
    save_evaluation(evaluation, trained / "evaluation", data="birds", network=found.network)
    return found


def report(model: Model, data: str | None) -> Report:
    wishes = ReportOptions(data=data, sure=0, unsure=0, mistakes=0, heatmaps="stored")
    return gather(model, wishes, made="today")


@pytest.mark.parametrize("data", [None, "none"])
def test_sensitivity_is_of_the_class_that_evaluate_called_positive(model: Model, data: str | None) -> None:
    found = report(model, data).performance
    assert found is not None
    assert found.origin == ("measured" if data is None else "evaluation/test.json")
    meanings = {figure.name: figure.meaning for figure in found.figures}
    first, second = model.classes
    assert f"images of {first} that" in meanings["Sensitivity"]
    assert f"{first} is the positive class (asked for)" in meanings["Sensitivity"]
    assert f"images of {second} that" in meanings["Specificity"]
    assert f"an image of {first} gets a higher probability of {first}" in meanings["AUROC"]


def test_numbers_of_other_weights_are_not_shown(model: Model) -> None:
    with torch.no_grad():
        model.network.head.weight.mul_(2)
    found = report(model, "none")
    assert found.performance is None
    assert any("not known to be of these weights: evaluate again" in text for text in found.missing)


HARMS = {
    "without a digest": ({"weights": None}, "not known to be of these weights: evaluate again"),
    "of other classes": ({"per_class": {"a": 1.0, "b": 1.0}}, "of other classes: evaluate again"),
    "with a foreign positive": ({"positive": "a"}, "is damaged: evaluate again"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_file_that_does_not_fit_says_why(model: Model, harm: str) -> None:
    assert model.folder is not None
    path = model.folder / "evaluation" / "test.json"
    changes, lack = HARMS[harm]
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}))
    found = stored(model.folder, model.network, model.classes)
    assert found.performance is None
    assert lack in found.lack


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"positive": "somebody"}', '{"positive": ["a"]}'])
def test_a_damaged_file_makes_no_class_positive(model: Model, text: str) -> None:
    assert model.folder is not None
    (model.folder / "evaluation" / "test.json").write_text(text)
    assert stored_positive(model.folder, model.classes) is None


def test_an_interval_stands_beside_every_figure_of_two_classes() -> None:
    """Planted: 90 of 100 and 40 of 50 recognised; Wilson by hand from its formula."""
    summary = {
        "split": "test",
        "images": 150,
        "accuracy": 130 / 150,
        "balanced_accuracy": 0.85,
        "auroc": 0.9,
        "positive": "ill",
        "sensitivity": 0.9,
        "specificity": 0.8,
        "confusion": [[90, 10], [10, 40]],
    }
    found = _performance(summary, classes=["ill", "well"], data="x", origin="measured")
    said = {figure.name: figure.meaning.replace("\u202f", " ") for figure in found.figures}
    assert "likely 82.6 % to 94.5 % (95 % interval)" in said["Sensitivity"]
    assert "likely 67.0 % to 88.8 % (95 % interval)" in said["Specificity"]
    assert "likely 0.8" in said["AUROC"]
    assert "% to" not in said["AUROC"]
