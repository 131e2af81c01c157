"""Evidence for any class: the same similarities, the class's own weights, and the class's own logit."""

from pathlib import Path

import pytest
import torch

from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.model import Model
from dprotonet.experiment.trained.class_evidence import class_evidence


def test_contributions_sum_to_every_logit(run_folder: Path) -> None:
    model = Model.load(run_folder)
    image = build_splits(model.config.data).test[0].image
    prediction = model.predict(image)
    with torch.no_grad():
        evidence = model.prototyped.evidence(model.inputs([image]))
    for label, name in enumerate(model.classes):
        found = class_evidence(model, prediction, label)
        assert found.class_name == name
        assert found.logit == pytest.approx(float(evidence.logits[0, label]), rel=1e-4)
        assert sorted(item.prototype for item in found.evidence) == list(range(len(model.prototypes)))
        for item in found.evidence:
            weight = model.network.head.weight[label, item.prototype].item()
            assert item.contribution == pytest.approx(float(evidence.scores[0, item.prototype]) * weight)
        points = [item.contribution for item in found.evidence]
        assert points == sorted(points, reverse=True)
    assert class_evidence(model, prediction, prediction.label).evidence == prediction.evidence
