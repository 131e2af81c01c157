"""Prototypes off: the literal sum over the others, models that lack them, and a head that learns again."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import Remembered
from torch import nn

import dprotonet as dp
from dprotonet.data.birds import Birds
from dprotonet.experiment.evaluation.evaluation import evaluate_model
from dprotonet.experiment.prototypes import split_evidence as passing
from dprotonet.experiment.prototypes.cleaning import clean
from dprotonet.experiment.prototypes.split_evidence import split_evidence
from dprotonet.experiment.prototypes.what_if import WhatIf, cleaned, last_layer, without
from dprotonet.training import score_rows


@pytest.fixture(scope="module")
def train() -> Remembered:
    return Remembered(Birds(species=4, per_species=6, split="train", seed=0, size=64))


@pytest.fixture(scope="module")
def model(run_folder: Path) -> dp.Model:
    loaded = dp.load(run_folder)
    with torch.no_grad():
        weight = loaded.network.head.weight
        weight += 0.5 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
    return loaded


@pytest.fixture(scope="module")
def asked(model: dp.Model, train: Remembered) -> WhatIf:
    return WhatIf(model, train)


@pytest.mark.parametrize("off", [(), (3,), (0, 1, 6), tuple(range(8))])
def test_logits_are_the_sum_over_those_that_are_on(asked: WhatIf, model: dp.Model, off: tuple) -> None:
    weight, right = model.network.head.weight.detach().double(), 0
    found = asked.logits(asked.scores[:], off)
    for row, label, logits in zip(asked.scores[:].double(), asked.labels, found, strict=True):
        literal = [sum(float(weight[c, p] * row[p]) for p in range(8) if p not in off) for c in range(4)]
        assert logits.tolist() == pytest.approx(literal, rel=1e-4, abs=1e-4)
        right += literal.index(max(literal)) == int(label)
    assert asked.accuracy(off) == pytest.approx(right / 24)


def test_nothing_off_is_the_model_as_it_is(asked: WhatIf, model: dp.Model, train: Remembered) -> None:
    assert asked.accuracy(()) == evaluate_model(model, model.config.data, split="train").predictions.accuracy
    with torch.no_grad():
        evidence = model.prototyped.evidence(model.inputs([train[5].image]))
    torch.testing.assert_close(asked.scores[5:6], evidence.scores, rtol=1e-4, atol=1e-4)
    assert asked.labels.tolist() == list(train.labels)


def test_scores_on_disk_say_the_same(
    asked: WhatIf, model: dp.Model, train: Remembered, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_rows, "IN_MEMORY", 0)
    monkeypatch.setattr(score_rows, "_BLOCK", 5 * 8 * 4)
    monkeypatch.setenv("DPROTONET_CACHE", str(tmp_path))
    spilled = WhatIf(model, train)
    assert list(tmp_path.iterdir()) == []
    assert torch.equal(spilled.scores[:], asked.scores[:])
    assert torch.equal(spilled.distances, asked.distances)
    assert [spilled.accuracy(off) for off in ((), (3,), (0, 1, 6))] == [
        asked.accuracy(off) for off in ((), (3,), (0, 1, 6))
    ]
    one, other = (clean(model, {2: "dark"}, {"train": split}, epochs=3) for split in (spilled, asked))
    assert torch.equal(one.model.network.head.weight, other.model.network.head.weight)
    assert one.accuracy == other.accuracy


def test_off_and_gone_are_the_same(asked: WhatIf, model: dp.Model, train: Remembered) -> None:
    smaller = without(model, [6, 1])
    left = [0, 2, 3, 4, 5, 7]
    assert [item.source for item in smaller.prototypes] == [model.prototypes[old].source for old in left]
    assert [item.prototype for item in smaller.prototypes] == list(range(6))
    with torch.no_grad():
        inputs = model.inputs([train[number].image for number in range(4)])
        torch.testing.assert_close(smaller.network(inputs), asked.logits(asked.scores[:4], [1, 6]))
    assert len(model.prototypes) == 8


def test_a_model_without_some_is_saved_and_loaded(model: dp.Model, tmp_path: Path, train: Remembered) -> None:
    smaller = without(model, [0, 7])
    smaller.save_pretrained(tmp_path / "run")
    again, image = dp.load(tmp_path / "run"), train[0].image
    assert again.predict(image) == smaller.predict(image)


def test_the_last_layer_learns_again(model: dp.Model, asked: WhatIf) -> None:
    old = without(model, [2]).network
    new = cleaned(model, [2], asked, epochs=30).network
    kept = [0, 1, 3, 4, 5, 6, 7]
    assert torch.equal(new.prototypes.vectors, old.prototypes.vectors)
    assert not torch.equal(new.head.weight, old.head.weight)
    assert torch.equal(old.head.weight, model.network.head.weight[:, kept])
    loss = torch.nn.functional.cross_entropy
    scores = asked.scores[:][:, kept]
    with torch.no_grad():
        assert loss(new.head(scores), asked.labels) < loss(old.head(scores), asked.labels)


def test_images_or_their_scores_give_the_same(model: dp.Model, asked: WhatIf, train: Remembered) -> None:
    steps: list[tuple[int, int]] = []
    one = cleaned(model, [2], train, on_progress=lambda *step: steps.append(step))
    assert torch.equal(one.network.head.weight, cleaned(model, [2], asked).network.head.weight)
    assert steps == [(24, 24)]


def test_no_epochs_leave_the_weights(model: dp.Model, asked: WhatIf) -> None:
    same = cleaned(model, [2], asked, epochs=0).network.head.weight
    assert torch.equal(same, without(model, [2]).network.head.weight)


def test_settings_are_those_of_the_run(model: dp.Model) -> None:
    training = replace(model.config.training, rate_head=0.5, foreign=0.25, batch_size=7, seed=3)
    other = replace(model.config, training=training)
    changed = dp.Model(model.network, config=other, classes=model.classes, prototypes=model.prototypes)
    settings = last_layer(changed)
    assert (settings.rate, settings.batch, settings.seed, settings.epochs) == (0.5, 7, 3, 2)
    assert settings.loss.foreign == 0.25
    changed.config = replace(other, training=replace(training, head_learns="never"))
    assert last_layer(changed).epochs == 0
    assert last_layer(changed, 4).epochs == 4


def test_features_of_the_training_are_used_where_they_are_kept(
    run_folder: Path, train: Remembered, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = dp.load(run_folder)
    whole = torch.cat([item.evidence.distances for item in split_evidence(model, train)])
    monkeypatch.setattr(passing, "default_cache", lambda: run_folder.parent / "cache")
    seen: list[int] = []
    first = next(part for part in model.network.encoder.backbone.modules() if isinstance(part, nn.Conv2d))
    first.register_forward_hook(lambda _, inputs, __: seen.append(len(inputs[0])))
    kept = torch.cat([item.evidence.distances for item in split_evidence(model, train)])
    assert seen == [1, 1, 1, 1]  # which levels there are, and the check of three rows
    torch.testing.assert_close(kept, whole, rtol=0.05, atol=0.05 * float(whole.mean()))
    assert not model.network.training


# ── cleaning ─────────────────────────────────────────────────────────────────────────────────────────


def test_cleaning_tells_before_and_after(model: dp.Model, asked: WhatIf, tmp_path: Path) -> None:
    cleaning = clean(model, {6: "a twig", 1: "dark"}, {"train": asked}, epochs=5)
    told = cleaning.accuracy["train"]
    assert (cleaning.dropped, cleaning.kept) == ((1, 6), (0, 2, 3, 4, 5, 7))
    assert told.before == asked.accuracy()
    with torch.no_grad():
        logits = cleaning.model.network.head(asked.scores[:][:, list(cleaning.kept)])
    assert told.after == pytest.approx(float((logits.argmax(1) == asked.labels).double().mean()))
    cleaning.save(str(tmp_path / "run"))
    remembered = json.loads((tmp_path / "run" / "cleaned.json").read_text())
    assert [item["reason"] for item in remembered["dropped"]] == ["dark", "a twig"]
    assert remembered["dropped"][1]["source"] == model.prototypes[6].source
    assert remembered["accuracy"] == {"train": {"before": told.before, "after": told.after}}
    assert remembered["last_layer_epochs"] == 5
    assert torch.equal(dp.load(tmp_path / "run").network.head.weight, cleaning.model.network.head.weight)
    with pytest.raises(dp.UserError, match="not empty"):
        cleaning.save(tmp_path / "run")


def test_half_a_run_is_not_left_behind(
    model: dp.Model, asked: WhatIf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the same command would be refused the next time."""
    cleaning = clean(model, {1: "dark"}, {"train": asked}, epochs=0)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dprotonet.experiment.runs.run_folder.RunFolder.write_model", interrupted)
        with pytest.raises(KeyboardInterrupt):
            cleaning.save(tmp_path / "run")
    assert not (tmp_path / "run").exists()
    cleaning.save(tmp_path / "run")


def test_dropping_nothing_changes_nothing(model: dp.Model, asked: WhatIf) -> None:
    cleaning = clean(model, {}, {"train": asked}, epochs=5)
    assert cleaning.epochs == 0
    assert torch.equal(cleaning.model.network.head.weight, model.network.head.weight)
    assert cleaning.accuracy["train"].after == cleaning.accuracy["train"].before


def test_what_cannot_be_dropped_is_refused_before_any_pass(model: dp.Model, train: Remembered) -> None:
    for reasons, error in (({0: "", 1: ""}, "left without"), ({9: ""}, "no prototype 9")):
        with pytest.raises(dp.UserError, match=error):
            clean(model, reasons, {"train": train}, on_progress=lambda *_: pytest.fail("a pass"))
    with pytest.raises(ValueError, match="train"):
        clean(model, {0: ""}, {"val": train})


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("off", [[8], [-1], [True], ["3"], [1.0]])
def test_prototypes_that_do_not_exist(off: list, asked: WhatIf, model: dp.Model) -> None:
    for attempt in (asked.accuracy, lambda numbers: without(model, numbers)):
        with pytest.raises(dp.UserError, match=r"there is no prototype .*; the run has 0 to 7"):
            attempt(off)


def test_a_class_left_without_prototypes(asked: WhatIf, model: dp.Model) -> None:
    name = model.classes[1]
    for attempt in (without, lambda *given: cleaned(*given, asked)):
        with pytest.raises(dp.UserError, match=f"class '{name}' would be left .*one of 2, 3"):
            attempt(model, [2, 3, 4])
        with pytest.raises(dp.UserError, match=f"class '{name}' .and 1 more classes. would"):
            attempt(model, [2, 3, 4, 5])


def test_other_mistakes(asked: WhatIf, model: dp.Model, run_folder: Path) -> None:
    with pytest.raises(dp.UserError, match="other classes"):
        WhatIf(model, Birds(species=6, per_species=1, split="train", size=64))
    with pytest.raises(dp.UserError, match="epochs is -1"):
        cleaned(model, [2], asked, epochs=-1)
    with pytest.raises(ValueError, match=r"must be \(B, 8\)"):
        asked.logits(torch.zeros(2, 7))
    with pytest.raises(ValueError, match="another model"):
        cleaned(dp.load(run_folder), [2], asked)
