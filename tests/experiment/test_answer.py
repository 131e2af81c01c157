"""Evidence for any class: the same similarities, the class's own weights, and the class's own logit."""

import math
from pathlib import Path

import pytest
import torch

from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model


def test_contributions_sum_to_every_logit(run_folder: Path) -> None:
    model = Model.load(run_folder)
    image = build_splits(model.config.data).test[0].image
    prediction, answer = model.predict(image), model.answer(image)
    with torch.no_grad():
        evidence = model.prototyped.evidence(model.inputs([image]))
    for label in range(len(model.classes)):
        found = answer.evidence(label)
        said = math.fsum(item.contribution for item in found)
        assert said == pytest.approx(float(evidence.logits[0, label]), rel=1e-4)
        assert said == pytest.approx(float(answer.logits()[label]))
        assert sorted(item.prototype for item in found) == list(range(len(model.prototypes)))
        for item in found:
            weight = model.network.head.weight[label, item.prototype].item()
            assert item.contribution == pytest.approx(float(evidence.scores[0, item.prototype]) * weight)
        points = [item.contribution for item in found]
        assert points == sorted(points, reverse=True)
    assert answer.evidence(prediction.label) == prediction.evidence
    assert answer.prediction(prediction.name) == prediction


def test_a_batch_is_answered_as_each_image_alone(run_folder: Path) -> None:
    model = Model.load(run_folder)
    images = [build_splits(model.config.data).test[number].image for number in range(3)]
    several = model.answers(images)
    for image, answer in zip(images, several, strict=True):
        alone = model.answer(image)
        torch.testing.assert_close(answer.scores, alone.scores, rtol=1e-4, atol=1e-5)
        assert answer.label() == alone.label() == model.predict(image).label
        assert answer.region.tolist() == alone.region.tolist()
    assert model.answers([]) == []
    assert model.predict_many([]) == []
