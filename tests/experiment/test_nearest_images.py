"""The nearest training image of a class: of its class, nearest by all prototypes, itself if it is there."""

from pathlib import Path

import torch

from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.prototypes.nearest_images import TrainingScores
from dprotonet.training.score_rows import ScoreRows


def test_the_nearest_is_of_the_class_that_was_asked_for() -> None:
    scores = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.9, 0.1]], dtype=torch.float64)
    known = TrainingScores(ScoreRows.of(scores), torch.tensor([0, 0, 1, 1]))
    asked = torch.tensor([1.0, 0.05])
    assert known.nearest(asked, 0) == 1
    assert known.nearest(asked, 1) == 3
    assert known.nearest(asked, 2) is None


def test_a_training_image_is_its_own_nearest(run_folder: Path) -> None:
    model = Model.load(run_folder)
    train = build_splits(model.config.data).train
    known = TrainingScores.of(model, train)
    assert known.labels.tolist() == list(train.labels)
    for index in (0, 5, len(train) - 1):
        found = known.nearest(model.answer(train[index].image).scores, train.labels[index])
        assert found == index
