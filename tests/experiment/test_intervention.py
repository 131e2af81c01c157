"""The check by intervention: what it gathers is what its definitions say, image by image."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import tiny_config
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.data.base import Sample
from dprotonet.data.birds import Birds
from dprotonet.data.subset import Subset
from dprotonet.experiment.build.network import build_network
from dprotonet.experiment.compare.method import preset_of
from dprotonet.experiment.model import Model
from dprotonet.experiment.quality.intervention import check as check_module
from dprotonet.experiment.quality.intervention import subject as subject_module
from dprotonet.experiment.quality.intervention.check import InterventionCheck, spread_over_classes
from dprotonet.experiment.quality.intervention.result import (
    AREA,
    EXCHANGE,
    LEAD,
    OWN_SCORES,
    REMOVAL,
    ROWS,
    ROWS_BY_LEAD,
    TRUTH_AGAIN,
    Agreement,
    Examined,
    NamedPart,
    gathered,
)
from dprotonet.experiment.quality.intervention.subject import (
    Subject,
    changes_of,
    exchange_falls,
    falls,
    joined_rows,
    joins,
    row_falls,
    subject_maps,
    subject_of,
)
from dprotonet.experiment.runs.run_folder import prototype_records
from dprotonet.metrics.intervention import PartHeat
from dprotonet.training.push import Projection

QUICK = "fast,iterations=1,zoom=1.0"
QUICK_PRESET = preset_of(QUICK)[1]


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
    lead = exchange_falls(model, subject, changes.exchange)[LEAD]
    own = row_falls(model, subject, changes.removal)
    before = logits(model, birds[1])
    assert [subject.predicted, subject.rival] == before.argsort(descending=True)[:2].tolist()
    for k, (part, mask) in enumerate(birds[1].parts.items()):
        if not mask.any():
            assert found[0][k].isnan()
            assert found[1][k].isnan()
            assert lead[k].isnan()
            assert own[:, k].isnan().all()
            continue
        drops = [before - logits(model, other) for other in birds.exchanges(1, part, count=3)]
        expected = sum(float(drop[subject.predicted]) for drop in drops) / 3
        gone = before - logits(model, birds.removed(1, part))
        assert float(found[0][k]) == pytest.approx(expected, abs=1e-4)
        less = sum(float(drop[subject.rival]) for drop in drops) / 3
        assert float(lead[k]) == pytest.approx(expected - less, abs=1e-4)
        assert float(found[1][k]) == pytest.approx(float(gone[subject.predicted]), abs=1e-4)
        items = {item.prototype: item for item in model.predict(birds.removed(1, part).image).evidence}
        for row, number in enumerate(subject.rows.tolist()):
            score = items[number].similarity - float(subject.scores[number])
            weight = float(model.network.head.weight.detach()[subject.predicted, number])
            assert float(own[row, k]) == pytest.approx(-score * weight, abs=1e-4)


def test_the_second_draw_is_another_of_the_same_size(model: Model, birds: Birds) -> None:
    subject = subject_of(model, birds, 1, rows=2)
    first, other = (changes_of(model, birds, subject, exchanges=3, seed=seed) for seed in (0, 1))
    assert first.again.shape == first.exchange.shape
    drawn = [found[subject.seen].sum(dim=1) for found in (first.exchange, first.again, other.exchange)]
    for one, two in ((0, 1), (1, 2)):  # the same three of a part's variants may be drawn by chance
        assert ((drawn[one] - drawn[two]).abs().amax(dim=1) > 1e-6).double().mean() > 0.5
    torch.testing.assert_close(first.removal, other.removal, equal_nan=True)


def test_a_part_that_both_classes_share_moves_the_logit_and_not_the_lead(
    model: Model, birds: Birds, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = torch.zeros(4, 8)
    weight[0, 0] = weight[1, 0] = weight[0, 1] = weight[1, 2] = 1  # shared, own, the rival's
    monkeypatch.setattr(subject_module, "head_weight", lambda model: weight.double())
    subject = replace(
        subject_of(model, birds, 0, rows=2), predicted=0, rival=1, scores=torch.ones(8).double()
    )
    changed = torch.ones(4, 1, 8, dtype=torch.double)
    changed[0, 0, 0], changed[1, 0, 1], changed[2, 0, 2] = -2, -1, 2
    found = exchange_falls(model, subject, changed)
    assert found[EXCHANGE].tolist() == [3, 2, 0, 0]
    assert found[LEAD].tolist() == [0, 2, 1, 0]


def test_rows_are_the_strongest_of_the_predicted_class(model: Model, birds: Birds) -> None:
    subject = subject_of(model, birds, 2, rows=9)
    own = model.predict(birds[2].image).evidence
    name = model.classes[subject.predicted]
    expected = [item.prototype for item in own if item.class_name == name]
    assert subject.rows.tolist() == expected  # both of the class, fewer than asked for
    assert (subject.leads, list(joins(subject, most=9))) == (None, [ROWS])  # masks have no parts to lead in
    assert subject.contributions.tolist() == pytest.approx(
        [item.contribution for item in own if item.class_name == name], abs=1e-4
    )


def test_joined_rows_weigh_by_contribution() -> None:
    maps = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(0))
    joined = joined_rows(maps, torch.tensor([3.0, 1.0, -2.0]))
    torch.testing.assert_close(joined, (0.75 * maps[0] + 0.25 * maps[1]).double())
    torch.testing.assert_close(joined_rows(maps, torch.tensor([-1.0, -1.0, -2.0])), maps.double().mean(dim=0))


def many_prototypes(subject: Subject) -> Subject:
    """Twelve prototypes of the class, two of them shown; the leads tell another story than contributions."""
    said = torch.arange(12, 0, -1).double() - 1  # the last says nothing
    leads = torch.tensor([-1.0] * 9 + [1.0, 3.0, 0.0]).double()
    return replace(subject, own=torch.arange(20, 32), contributions=said, leads=leads, shown=2)


def test_all_that_speak_for_the_class_are_joined(model: Model, birds: Birds) -> None:
    subject = many_prototypes(subject_of(model, birds, 0, rows=2))
    found = joins(subject, most=99)
    assert found[ROWS].prototypes.tolist() == list(range(20, 31))  # far more than are shown
    assert found[ROWS].weight.tolist() == list(range(11, 0, -1))
    assert found[ROWS_BY_LEAD].prototypes.tolist() == [30, 29]  # the strongest first
    assert found[ROWS_BY_LEAD].weight.tolist() == [3, 1]
    assert joins(subject, most=3)[ROWS].prototypes.tolist() == [20, 21, 22]
    against = replace(subject, contributions=-subject.contributions)
    assert joins(against, most=2)[ROWS].prototypes.tolist() == [31, 30]  # none for it: those least against


def test_each_joined_map_has_its_own_prototypes_and_weights(
    model: Model, birds: Birds, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = many_prototypes(subject_of(model, birds, 0, rows=2))
    spots = torch.eye(32)[:, None]  # prototype p is hot at place p only
    monkeypatch.setattr(
        check_module, "subject_maps", lambda model, subject, prototypes, preset: spots[prototypes]
    )
    rows, joined = InterventionCheck(model, birds, rows=2, joined=10)._row_maps(subject)
    torch.testing.assert_close(rows, spots[20:22])
    torch.testing.assert_close(joined[ROWS][0, 20:30], torch.arange(11, 1, -1).double() / 65)
    assert joined[ROWS][0, 30:].sum() == 0
    torch.testing.assert_close(joined[ROWS_BY_LEAD][0, 29:31], torch.tensor([0.25, 0.75]).double())


def test_a_region_is_decoded_once_and_alike(model: Model, birds: Birds) -> None:
    subject = subject_of(model, birds, 0, rows=2)
    subject = replace(subject, region=torch.tensor([3, 1, 3, 0, 0, 0, 0, 0]))
    together = subject_maps(model, subject, torch.tensor([0, 1, 2]), QUICK_PRESET)
    for map_, number in zip(together, (0, 1, 2), strict=True):
        torch.testing.assert_close(
            map_, subject_maps(model, subject, torch.tensor([number]), QUICK_PRESET)[0]
        )
    assert not torch.equal(together[0], together[1])


def test_images_are_spread_over_the_classes() -> None:
    labels = [0, 0, 0, 1, 1, 2]
    assert spread_over_classes(labels, 3) == [0, 3, 5]
    assert spread_over_classes(labels, 4) == [0, 3, 5, 1]
    assert spread_over_classes(labels, 99) == [0, 3, 5, 1, 4, 2]


def planted(seed: int, *, wrong: bool = False) -> Examined:
    """Heat and a second draw that are the importance itself, or its opposite; two rows, three parts.

    Of the lead the importance is the opposite, and the second draw always the same as the first.
    """
    truth = torch.rand(3, generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    rows = torch.stack([truth, 1 - truth])
    heat, area = 1 - truth if wrong else truth, torch.ones(3, dtype=torch.double)
    maps = {
        "good": PartHeat(heat, heat),
        **{name: PartHeat(area, area) for name in ("centre", "random", AREA)},
    }
    named = NamedPart(int(truth.argmax()), {"rows by mean": rows})
    falls = {EXCHANGE: truth, LEAD: 1 - truth, REMOVAL: truth}
    again, own = {EXCHANGE: heat, LEAD: 1 - truth}, {EXCHANGE: rows, REMOVAL: rows}
    both = PartHeat(rows, rows)
    return Examined(f"image {seed}", ("a", "b", "c"), maps, both, falls, again, own, {}, named)


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


def test_the_second_draw_is_the_ceiling_of_what_is_drawn() -> None:
    result = gathered([planted(0), planted(1), planted(2, wrong=True)], [], facts={})
    found = result.summary()["agreement"]
    assert list(found) == [EXCHANGE, LEAD, REMOVAL]
    assert TRUTH_AGAIN not in found[REMOVAL]  # nothing is drawn by lot
    again, columns = found[EXCHANGE][TRUTH_AGAIN], [field.name for field in fields(Agreement)]
    assert [again[name]["mean"] for name in columns] == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert [found[LEAD][TRUTH_AGAIN][name]["mean"] for name in columns] == [1, 1, 1, 1]
    assert found[LEAD]["good"]["correlation_sum"]["mean"] == pytest.approx(-1 / 3)  # against its own truth
    assert OWN_SCORES not in found[LEAD]  # a row's score has no rival


@pytest.fixture(scope="module")
def parts_model(birds: Birds) -> Model:
    """Random weights; a prototype for each of three parts in each of the four classes."""
    torch.manual_seed(0)
    tiny = tiny_config()
    network = replace(tiny.network, regions="parts", parts=3, similarity="cosine", prototypes_per_class=3)
    built: Any = build_network(network, classes=4, image_size=64, pretrained=False)
    nn.init.normal_(built.prototypes.vectors)
    made = Model(built, config=replace(tiny, network=network), classes=birds.classes, prototypes=[])
    index, none = torch.arange(12) % 5, torch.zeros(12, dtype=torch.bool)
    pushed = Projection(index, torch.arange(12) % 3, torch.zeros(12), 1, index[:, None], none)
    made.prototypes = tuple(prototype_records(built, pushed, birds, seed=0, normalise=made.normalise))
    return made


def test_leads_of_parts_add_up_to_the_lead_that_falls(parts_model: Model, birds: Birds) -> None:
    subject = subject_of(parts_model, birds, 1, rows=2)
    before = logits(parts_model, birds[1])
    assert subject.leads is not None
    expected = float(before[subject.predicted] - before[subject.rival])
    assert float(subject.leads.sum()) == pytest.approx(expected, abs=1e-4)
    assert subject.leads.tolist() == sorted(subject.leads.tolist(), reverse=True)
    assert len(subject.rows) == 2 < len(subject.own) == 3


def test_both_ways_to_join_rows_are_in_every_table(parts_model: Model, birds: Birds) -> None:
    check = InterventionCheck(parts_model, birds, images=2, methods=(), exchanges=1, rows=2, decoder=QUICK)
    found = check.run().summary()
    assert found["joined"] == 10
    for form in (EXCHANGE, LEAD, REMOVAL):
        assert {ROWS, ROWS_BY_LEAD, "single rows"} <= set(found["agreement"][form])


def test_the_same_check_twice_is_the_same(model: Model, birds: Birds) -> None:
    check = InterventionCheck(model, birds, images=1, methods=("mdm",), exchanges=1, rows=3, decoder=QUICK)
    told: list[tuple[str, int, int]] = []
    first = check.run(lambda *step: told.append(step)).summary()
    assert first == check.run().summary()
    assert ("changing parts", 1, 1) in told
    assert set(first["agreement"]) == set(first["importance"]) == {EXCHANGE, LEAD, REMOVAL}
    other = replace(check, seed=1).run().summary()
    assert other["agreement"]["exchange"]["mdm"] != first["agreement"]["exchange"]["mdm"]
    assert other["agreement"]["removal"] == first["agreement"]["removal"]


def test_data_that_cannot_be_drawn_again_is_refused(model: Model, birds: Birds) -> None:
    with pytest.raises(dp.UserError, match="draw an image again with one part changed"):
        InterventionCheck(model, Subset(birds, range(len(birds)))).run()
    with pytest.raises(dp.UserError, match="exchanges is 0"):
        InterventionCheck(model, birds, exchanges=0).run()
