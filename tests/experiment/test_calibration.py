"""What a run's logits mean in per cent: who fits it, who keeps it, where it is applied."""

import json
import shutil
from pathlib import Path

import pytest
import torch

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.experiment.explaining.saliency import _seen
from dprotonet.experiment.prototypes.cleaning import clean
from dprotonet.experiment.runs.calibration import FILE, Calibration, calibration_of
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.transfer.export.card import Card
from dprotonet.experiment.transfer.export.deployed import Deployed
from dprotonet.percent import percent
from dprotonet.training.evaluation import Predictions


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    return dp.load(run_folder)


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    shutil.copytree(run_folder, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoint"))
    return tmp_path / "run"


def image() -> torch.Tensor:
    return torch.randint(0, 256, (3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_training_leaves_what_its_validation_images_say(model: dp.Model) -> None:
    validation = build_splits(model.config.data).val
    assert model.calibration is not None
    assert model.calibration.images == len(validation)
    answers = model.answers([validation[index].image for index in range(len(validation))])
    logits = torch.stack([answer.plain for answer in answers])
    again = calibration_of(logits, torch.tensor(validation.labels), model.network)
    assert again.temperature == pytest.approx(model.calibration.temperature, rel=0.05)  # half-precision cache
    assert again.floor == model.calibration.floor


@pytest.mark.parametrize("count", [1, 3, 12, 19])
def test_few_images_all_right_give_a_bounded_temperature(model: dp.Model, count: int) -> None:
    """However sure the logits: a temperature by Laplace's rule, and never more than 99.5 %."""
    logits = torch.zeros(count, 3)
    logits[:, 1] = 30.0
    found = calibration_of(logits, torch.ones(count, dtype=torch.long), model.network)
    assert 1 < found.temperature < 30
    assert found.probabilities(logits.double())[:, 1].max() <= 1 - 0.25 / (count + 2)
    assert found.probabilities(1e6 * logits.double()).max().item() == pytest.approx(0.995)
    many = calibration_of(logits.repeat(1000, 1), torch.ones(1000 * count, dtype=torch.long), model.network)
    least = 1 / (1000 * count + 2)
    assert many.probabilities(1e6 * logits.double()).max().item() == pytest.approx(1 - least)


def test_it_is_applied_wherever_a_probability_is_stated(copied: Path) -> None:
    """A planted temperature of 4: the same logits, evidence and class, other probabilities, everywhere."""
    plain_model, model = dp.load(copied), dp.load(copied)
    plain_model.calibration = None
    assert model.calibration is not None
    model.calibration = known = Calibration(4.0, 0.001, 50, model.calibration.weights)
    plain, found = plain_model.predict(image()), model.predict(image())
    logits = model.answer(image()).plain
    wanted = 0.001 + (1 - 0.001 * len(logits)) * (logits / 4).softmax(0)
    assert list(found.probabilities.values()) == pytest.approx(wanted.tolist())
    assert list(plain.probabilities.values()) == pytest.approx(logits.softmax(0).tolist())
    assert (found.class_name, found.logit, found.evidence) == (plain.class_name, plain.logit, plain.evidence)
    assert (found.calibrated, plain.calibrated) == (True, False)
    assert model.answer(image()).probabilities().tolist() == pytest.approx(wanted.tolist())
    seen = _seen(Classifier.of_model(model), model.inputs([image()]))
    assert seen.watched[0].tolist() == pytest.approx(wanted.tolist(), abs=1e-5)
    deployed = Deployed(model.network, model.normalise, known)
    with torch.no_grad():
        exported = deployed(model.pixels(image())[None].float() / 255)[1][0]
    assert exported.tolist() == pytest.approx(wanted.tolist(), abs=1e-5)
    card = Card.from_json(Card.of(model, deployed).to_json(), where="card")
    assert card.calibration == known


def test_a_run_without_it_states_the_softmax_and_says_so(
    copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / FILE).unlink()
    from PIL import Image

    Image.fromarray(image().permute(1, 2, 0).numpy()).save(tmp_path / "image.png")
    assert main(["predict", str(copied), str(tmp_path / "image.png"), "--json"]) == 0
    (told,) = json.loads(capsys.readouterr().out)["predictions"]
    assert told["calibrated"] is False
    answer = dp.load(copied).answer(tmp_path / "image.png")
    assert told["probability"] == pytest.approx(answer.plain.softmax(0).max().item())


def test_one_of_other_weights_counts_as_none(copied: Path, caplog: pytest.LogCaptureFixture) -> None:
    content = json.loads((copied / FILE).read_text())
    (copied / FILE).write_text(json.dumps({**content, "weights": "of another"}))
    assert dp.load(copied).calibration is None
    assert "other weights" in caplog.text


@pytest.mark.parametrize("wrong", [{"temperature": 0}, {"temperature": None}, {"floor": 0.5}, {"x": 1}])
def test_a_damaged_file_is_a_plain_error(
    copied: Path, wrong: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads((copied / FILE).read_text())
    (copied / FILE).write_text(json.dumps({**content, **wrong}))
    assert main(["evaluate", str(copied)]) == 2
    assert "calibration.json is damaged" in capsys.readouterr().err


def test_the_command_fits_an_older_run(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = dp.load(copied).calibration
    (copied / FILE).unlink()
    assert main(["calibrate", str(copied), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert before is not None
    assert told["temperature"] == pytest.approx(before.temperature, rel=0.05)
    assert dp.load(copied).calibration is not None


def test_a_cleaned_run_is_fitted_anew(model: dp.Model, tmp_path: Path) -> None:
    splits = build_splits(model.config.data)
    done = clean(model, {0: "background"}, {"train": splits.train, "val": splits.val})
    done.save(tmp_path / "cleaned")
    again = dp.load(tmp_path / "cleaned")
    assert again.calibration is not None
    assert again.calibration.fits(again.network)
    assert model.calibration is not None
    assert again.calibration.weights != model.calibration.weights


def test_evaluation_tells_both_errors() -> None:
    """Labels drawn at T = 1 and logits three times as large: calibrated they are true, as they are not."""
    random = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(5000, 3, generator=random)
    labels = torch.multinomial(logits.softmax(1), 1, generator=random).flatten()
    known = Calibration(3.0, 1e-6, 5000, "")
    told = Evaluation("test", "abc", Predictions(3 * logits, labels), calibration=known).summary()
    assert told["ece"] < 0.02 < 0.1 < told["softmax"]["ece"]
    assert told["brier"] < told["softmax"]["brier"]
    assert told["above_99_5"]["wrong"] < told["softmax"]["above_99_5"]["wrong"]
    assert told["accuracy_at_coverage"]["0.5"] > told["accuracy_at_coverage"]["0.9"] > told["accuracy"]
    assert json.loads(json.dumps(told, allow_nan=False))["calibrated"] is True


def test_no_share_below_one_is_written_as_all() -> None:
    written = [percent(share) for share in (1.0, 0.99999999, 0.9995, 0.9994, 0.5, 0.0004, 1e-12, 0.0)]
    assert written == ["100.0 %", "> 99.9 %", "> 99.9 %", "99.9 %", "50.0 %", "< 0.1 %", "< 0.1 %", "0.0 %"]
