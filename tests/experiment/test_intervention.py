"""The check by intervention: what it gathers is what its definitions say, image by image."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dprotonet as dp
from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds
from dprotonet.data.part import Part
from dprotonet.experiment.intervention.check import InterventionCheck, spread
from dprotonet.experiment.intervention.result import (
    AREA,
    OWN_SCORES,
    Examined,
    NamedPart,
    gathered,
)
from dprotonet.experiment.intervention.subject import (
    changes_of,
    falls,
    joined_rows,
    row_falls,
    subject_of,
)
from dprotonet.experiment.model import Model
from dprotonet.metrics.intervention import PartHeat

QUICK = "fast,iterations=1,zoom=1.0"


@pytest.fixture(scope="module")
def model(run_folder: Path) -> Model:
    return dp.load(run_folder)


@pytest.fixture(scope="module")
def birds() -> Birds:
    return Birds(species=4, per_species=2, split="test", size=64)


def logits(model: Model, sample: Sample) -> Tensor:
    with torch.no_grad():
        return model.network(model.inputs([sample.image]))[0].double()


def test_falls_are_those_of_pictures_drawn_one_by_one(model: Model, birds: Birds) -> None:
    subject = subject_of(model, birds, 1, rows=2)
    changes = changes_of(model, birds, subject, exchanges=3, seed=0)
    found = falls(model, subject, changes.exchange), falls(model, subject, changes.removal)
    own = row_falls(model, subject, changes.removal)
    before = logits(model, birds[1])
    assert subject.predicted == int(before.argmax())
    for k, (part, mask) in enumerate(birds[1].parts.items()):
        if not mask.any():
            assert found[0][k].isnan()
            assert found[1][k].isnan()
            assert own[:, k].isnan().all()
            continue
        drops = [before - logits(model, other) for other in birds.exchanges(1, part, count=3)]
        expected = sum(float(drop[subject.predicted]) for drop in drops) / 3
        gone = before - logits(model, birds.removed(1, part))
        assert float(found[0][k]) == pytest.approx(expected, abs=1e-4)
        assert float(found[1][k]) == pytest.approx(float(gone[subject.predicted]), abs=1e-4)
        items = {item.prototype: item for item in model.predict(birds.removed(1, part).image).evidence}
        for row, number in enumerate(subject.rows.tolist()):
            score = items[number].similarity - float(subject.scores[number])
            weight = float(model.network.head.weight.detach()[subject.predicted, number])
            assert float(own[row, k]) == pytest.approx(-score * weight, abs=1e-4)


def test_rows_are_the_strongest_of_the_predicted_class(model: Model, birds: Birds) -> None:
    subject = subject_of(model, birds, 2, rows=9)
    own = model.predict(birds[2].image).evidence
    name = model.classes[subject.predicted]
    expected = [item.prototype for item in own if item.class_name == name]
    assert subject.rows.tolist() == expected  # both of the class, fewer than asked for
    assert subject.contributions.tolist() == pytest.approx(
        [item.contribution for item in own if item.class_name == name], abs=1e-4
    )


def test_joined_rows_weigh_by_contribution() -> None:
    maps = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))
    joined = joined_rows(maps, torch.tensor([3.0, 1.0, -2.0]))
    torch.testing.assert_close(joined, (0.75 * maps[0] + 0.25 * maps[1]).double())
    torch.testing.assert_close(joined_rows(maps, torch.tensor([-1.0, -1.0, -2.0])), maps.double().mean(dim=0))


def test_images_are_spread_over_the_classes() -> None:
    labels = [0, 0, 0, 1, 1, 2]
    assert spread(labels, 3) == [0, 3, 5]
    assert spread(labels, 4) == [0, 3, 5, 1]
    assert spread(labels, 99) == [0, 3, 5, 1, 4, 2]


def planted(seed: int, *, wrong: bool = False) -> Examined:
    """Heat that is the importance itself, or its opposite; two rows, three parts."""
    truth = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    rows = torch.stack([truth, 1 - truth])
    heat, area = 1 - truth if wrong else truth, torch.ones(3, dtype=torch.double)
    maps = {
        "good": PartHeat(heat, heat),
        **{name: PartHeat(area, area) for name in ("centre", "random", AREA)},
    }
    named = NamedPart(int(truth.argmax()), {"rows by mean": rows})
    falls, own = {"exchange": truth}, {"exchange": rows}
    return Examined(f"image {seed}", ("a", "b", "c"), maps, PartHeat(rows, rows), falls, own, {}, named)


def test_what_is_gathered_is_the_mean_over_images() -> None:
    result = gathered([planted(0), planted(1), planted(2, wrong=True)], [], facts={"seed": 0})
    summary = result.summary()
    good = summary["agreement"]["exchange"]["good"]
    assert good["correlation_sum"]["mean"] == pytest.approx(1 / 3)
    assert good["top_sum"]["mean"] == pytest.approx(2 / 3)
    assert good["top_sum"]["over area"]["difference"] == pytest.approx(2 / 3 - 1 / 3)
    assert good["correlation_sum"]["over area"] is None  # a flat map has no order
    own = summary["agreement"]["exchange"][OWN_SCORES]
    assert own["correlation_mean"]["mean"] == pytest.approx(1)  # of both rows, each by its own score
    single = summary["agreement"]["exchange"]["single rows"]
    assert single["correlation_mean"]["mean"] == pytest.approx(0)  # one right, one the opposite
    assert summary["deciding part named"]["all images"]["rows by mean"]["first 1"]["mean"] == 1
    assert summary["deciding part named"]["confusions of siblings"] == {}
    assert summary["contrast"] == {}
    expected = torch.stack([planted(seed).falls["exchange"] for seed in range(3)]).mean(dim=0)
    means = [cell["mean"] for cell in summary["importance"]["exchange"].values()]
    assert means == pytest.approx(expected.tolist())


def test_the_same_check_twice_is_the_same(model: Model, birds: Birds) -> None:
    check = InterventionCheck(model, birds, images=1, methods=("mdm",), exchanges=1, rows=3, decoder=QUICK)
    told: list[tuple[str, int, int]] = []
    first = check.run(lambda *step: told.append(step)).summary()
    assert first == check.run().summary()
    assert ("changing parts", 1, 1) in told
    assert set(first["agreement"]) == {"exchange", "removal"}
    other = replace(check, seed=1).run().summary()
    assert other["agreement"]["exchange"]["mdm"] != first["agreement"]["exchange"]["mdm"]
    assert other["agreement"]["removal"] == first["agreement"]["removal"]


def test_data_that_cannot_be_drawn_again_is_refused(model: Model, birds: Birds) -> None:
    with pytest.raises(dp.UserError, match="draw an image again with one part changed"):
        InterventionCheck(model, Part(birds, range(len(birds)))).run()
    with pytest.raises(dp.UserError, match="exchanges is 0"):
        InterventionCheck(model, birds, exchanges=0).run()
