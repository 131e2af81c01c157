"""`folds = K` in a plan: every training image judged once, test images left alone, going on after a stop."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.end_to_end.test_benchmark_command import PLAN as TABLE

from dprotonet.cli.main import main
from dprotonet.data.base import Splits
from dprotonet.experiment.benchmark import run as running
from dprotonet.experiment.benchmark.folds import pooled
from dprotonet.experiment.benchmark.plan import Plan
from dprotonet.experiment.build.data import RememberedSplits
from dprotonet.experiment.evaluation.evaluation import Evaluation, evaluate_model
from dprotonet.experiment.model import Model
from dprotonet.training.evaluation import Predictions

PLAN = TABLE.replace("seeds = [0, 1]", "seeds = [0]\nfolds = 3").replace(
    'measures = ["accuracy", "balanced_accuracy"]', 'measures = ["accuracy", "sensitivity", "auroc"]'
)
PLAN = PLAN.replace('[[row]]\nname = "too many"\nnetwork.prototypes_per_class = 9\n\n', "")
FOLDER = "two_prototypes--birds--seed0"


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("folds")
    (folder / "plan.toml").write_text(PLAN)
    assert main(words(folder)) == 0
    return folder


def words(folder: Path) -> list[str]:
    paths = [str(folder / "plan.toml"), "--out", str(folder / "out"), "--cache", str(folder / "cache")]
    return ["benchmark", *paths]


def test_every_image_counts_once_by_the_network_that_has_not_seen_it(done: Path) -> None:
    content = json.loads((done / "out" / "results.json").read_text())
    assert (content["finished"], content["runs"]) == (1, 1)
    (result,) = content["results"]
    right, total = 0, 0
    names: list[str] = []
    for fold in (1, 2, 3):
        model = Model.load(done / "out" / "runs" / FOLDER / f"fold-{fold}")
        data = model.config.data
        assert (data.folds, data.fold) == (3, fold)
        confusion = evaluate_model(model, data, split="val").confusion
        right, total = right + int(confusion.trace()), total + int(confusion.sum())
        val = RememberedSplits()(data).val
        names += [val.name(index) for index in range(len(val))]
    assert (result["images"], total) == (12, 12)  # 2 species, 4 for training and 2 for validation each
    assert len(set(names)) == 12
    assert result["accuracy"] == pytest.approx(right / total)
    assert result["split"] == "3 folds"
    assert [fold["images"] for fold in result["folds"]] == [4, 4, 4]


def test_the_table_says_what_it_is_of_and_whose_sensitivity_it_has(done: Path) -> None:
    text = (done / "out" / "table.md").read_text()
    assert "3-fold cross-validation" in text
    assert "Test images took no part" in text
    assert "| birds, accuracy | birds, sensitivity of the classifier | birds, auroc |" in text
    assert (done / "out" / "curves-1.png").is_file()


def test_a_fold_that_is_missing_is_trained_alone_and_test_images_are_never_opened(
    done: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (done / "out" / "runs" / FOLDER / "fold-2" / "result.json").unlink()
    plan = Plan.read(done / "plan.toml")
    benchmark = running.Benchmark(plan, done / "out", cache=done / "cache", splits=WithoutTest())
    assert benchmark.results() == {}  # not finished
    trained = []
    real = running.Trainer

    def counted(config: Any, place: Path, **settings: Any) -> Any:
        trained.append(place.name)
        return real(config, place, **settings)

    monkeypatch.setattr(running, "Trainer", counted)
    assert [step.failure for step in benchmark.run() if step.failure] == []
    assert trained == ["fold-2"]
    assert len(benchmark.results()) == 1


class WithoutTest(RememberedSplits):
    """Splits whose test part is nothing that could be opened."""

    def __call__(self, config: Any, on_progress: Any = None) -> Splits:
        found = super().__call__(config)
        return Splits(found.train, found.val, None)  # type: ignore[arg-type]


def test_pooling_adds_counts_and_averages_auroc() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = [torch.randn(count, 2, generator=generator) for count in (7, 4, 5)]
    labels = [torch.arange(len(rows)) % 2 for rows in logits]
    folds = [
        Evaluation("val", ("n", "p"), Predictions(*pair)).summary()
        | {"config": {"data": {"fold": 1}}, "seconds": 1.0, "push changes": [], "accuracy_at_the_end": 0.5}
        for pair in zip(logits, labels, strict=True)
    ]
    found = pooled(folds)
    whole = Evaluation("val", ("n", "p"), Predictions(torch.cat(logits), torch.cat(labels))).summary()
    for name in ("images", "accuracy", "balanced_accuracy", "sensitivity", "specificity"):
        assert found[name] == pytest.approx(whole[name])
    assert found["confusion"] == whole["confusion"]
    assert found["auroc"] == pytest.approx(sum(f["images"] * f["auroc"] for f in folds) / 16)
    assert found["seconds"] == 3


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("folds = 3", "folds = 1", "folds is 1; it is a number from 2 on"),
        ("folds = 3", 'folds = "five"', "folds is 'five'"),
        ("species = 2", "species = 2\nfolds = 3", "write folds = 5 at the top of the plan"),
        ("folds = 3", "folds = 0\n", "measures are some of"),
    ],
)
def test_mistakes(
    before: str, after: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = PLAN.replace(before, after, 1).replace('"auroc"]', '"accuracy_at_the_end"]')
    (tmp_path / "plan.toml").write_text(text)
    assert tomllib.loads(text)
    assert main(words(tmp_path)) == 2
    assert message in capsys.readouterr().err
