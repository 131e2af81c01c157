"""Rivals by their word: a whole run of each."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w
import torch
from PIL import Image
from tests.conftest import rival_config, tiny_config
from torch import Tensor

import dprotonet as dp
from dprotonet.cli.main import main
from dprotonet.config import Config, to_tables
from dprotonet.data.birds import Birds
from dprotonet.experiment.explaining.saliency import saliency
from dprotonet.experiment.prototypes.prune import prune_model
from dprotonet.experiment.prototypes.what_if import check_classes_left
from dprotonet.experiment.quality.quality import QualityCheck
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.config_check import check_config
from dprotonet.experiment.settings.recipe_tables import NETWORKS
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.inference.prune import PruneRule
from dprotonet.interpretation.similarity import percentile_box
from dprotonet.report.about import about as described
from dprotonet.training.events import EpochDone, RoundDone

RIVALS = tuple(name for name in NETWORKS if name != "dprotonet")


def tiny_rival(name: str, **training: object) -> Config:
    """The tiny run with the rival's own values."""
    config = rival_config(name)
    small = tiny_config(**{"epochs": 2, **training})
    sizes = {key: getattr(small.network, key) for key in ("backbone", "dimension", "prototypes_per_class")}
    epochs = {
        key: getattr(small.training, key)
        for key in ("mode", "epochs", "warm_epochs", "push_every", "batch_size", "augmentations", "patience")
    }
    last_layer = min(config.training.last_layer_epochs, small.training.last_layer_epochs)
    trained = replace(config.training, **epochs, last_layer_epochs=last_layer)
    return Config(small.data, replace(config.network, **sizes), trained)


def trained(name: str, out: Path, **training: object) -> dp.Model:
    for _ in Trainer(tiny_rival(name, **training), out, cache=out.parent / "cache").run():
        pass
    return dp.load(out)


def some_images() -> list[Tensor]:
    birds = Birds(species=4, per_species=1, split="test", seed=0, size=64)
    return [birds[index].image for index in range(4)]


@pytest.fixture(scope="module")
def black_box(tmp_path_factory: pytest.TempPathFactory) -> dp.Model:
    return trained("blackbox", tmp_path_factory.mktemp("black") / "run", mode="frozen", epochs=4)


@pytest.mark.parametrize("mode", ["joint", "frozen"])
@pytest.mark.parametrize("name", RIVALS)
def test_train_save_load_predict(name: str, mode: str, tmp_path: Path) -> None:
    model, images = trained(name, tmp_path / "run", mode=mode), some_images()
    assert model.config.network.network == name
    model.save_pretrained(tmp_path / "copy")
    first, second = (
        model.predict_many(images),
        dp.Model.from_pretrained(tmp_path / "copy").predict_many(images),
    )
    assert first == second
    with torch.no_grad():
        logits = model.network(model.inputs(images)).double()
    for row, prediction in enumerate(first):
        assert prediction.logit == pytest.approx(logits[row, prediction.label].item(), rel=1e-4, abs=1e-4)
        assert prediction.label == int(logits[row].argmax())


def test_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "rival.toml", tmp_path / "run"
    file.write_text(
        tomli_w.dumps({name: values for name, values in to_tables(tiny_config()).items() if name == "data"})
    )
    words = (
        "--backbone timm:test_resnet:none --dimension 8 --prototypes-per-class 2 --epochs 2 --push-every 2"
    )
    words += " --last-layer-epochs 1 --warm-epochs 1 --network protopnet --epsilon 1e-3"
    assert main(["train", "--out", str(out), "--config", str(file), *words.split()]) == 0
    config = dp.load(out).config
    assert (config.network.network, config.network.regions, config.network.epsilon) == (
        "protopnet",
        "points",
        1e-3,
    )
    assert (config.training.push_images, config.data.species) == (1, 4)


def test_the_demo_is_dprotonets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--mode", "joint", "--out", str(tmp_path / "run")]) == 2
    assert "the demo is of frozen mode" in capsys.readouterr().err
    assert main(["demo", "--network", "protopnet", "--out", str(tmp_path / "run")]) == 2
    assert "dprotonet train --network protopnet" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "moment", "times"),
    [
        ("blackbox", RoundDone, 1),
        ("xprotonet", EpochDone, 1),
        ("protopool", EpochDone, 1),
        ("pip-net", EpochDone, 4),  # before classes are learned
        ("pip-net", RoundDone, 1),
    ],
)
def test_a_run_that_was_stopped_goes_on(name: str, moment: type, times: int, tmp_path: Path) -> None:
    """The black box where it was judged; others between epochs, with the same random transformations."""
    config = tiny_rival(name, mode="frozen", epochs=4)
    events = Trainer(config, tmp_path / "run", cache=tmp_path / "cache").run()
    for _ in range(times):
        next(event for event in events if isinstance(event, moment))
    events.close()
    for _ in Trainer(config, tmp_path / "run", resume=True, cache=tmp_path / "cache").run():
        pass
    whole, again = trained(name, tmp_path / "whole", mode="frozen", epochs=4), dp.load(tmp_path / "run")
    for entry, tensor in whole.network.state_dict().items():
        assert torch.equal(tensor, again.network.state_dict()[entry])


@pytest.mark.parametrize("name", [name for name in RIVALS if name != "blackbox"])
def test_every_rival_is_explained_by_mdm_and_in_its_own_way(name: str, tmp_path: Path) -> None:
    model, images = trained(name, tmp_path / "run", mode="frozen"), some_images()[:2]
    for explained in model.explain(images, top=1):
        (row,) = explained.rows
        assert row.item.contribution + explained.rest == pytest.approx(explained.prediction.logit)
        assert row.input.heatmap.shape == row.source.heatmap.shape == (64, 64)
    classifier = Classifier.of_model(model)
    for found in saliency(classifier, images, method="similarity"):
        box = percentile_box(found.heatmap)
        assert 0 <= box.left < box.right <= 64
    birds = Birds(species=4, per_species=1, split="test", seed=0, size=64)
    for maps in ("decoder", "similarity"):
        quick = dp.preset("fast", iterations=1, zoom=1.0)
        measures = (
            QualityCheck(model, birds, images=1, top=2, maps=maps, preset=quick, patches=1).run().measures
        )
        assert 0 <= measures["overlap"][maps].mean <= 1
        assert 0 <= measures["stability"][maps].mean <= 1
        assert measures["moved"][maps].mean >= 0
        assert 0 <= box.top < box.bottom <= 64
        assert found.explanation.facts["preset"] == ("occurrence" if name == "xprotonet" else "similarity")


@pytest.mark.parametrize("name", ["protopool", "pip-net"])
def test_shared_prototypes_have_a_source_and_a_class(name: str, tmp_path: Path) -> None:
    model = trained(name, tmp_path / "run", mode="frozen")
    assert model.folder is not None
    labels = Birds(species=4, per_species=6, split="train", seed=0, size=64).labels
    owned = model.prototyped.head.owned(model.prototyped.prototype_class)
    for number, record in enumerate(model.prototypes):
        assert (model.folder / record.image).is_file()
        label = model.classes.index(record.class_name)
        # What nobody holds is listed with the class of the image it was found in.
        assert owned[label, number] if owned[:, number].any() else label == labels[record.index]
    about = {fact.name: fact.value for fact in described(model, folder=model.folder).facts}
    assert "shared by all classes" in about["Prototypes"]


def test_a_pool_is_not_pruned_by_any_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By purity it was said that a class would be left without prototypes."""
    trained("protopool", tmp_path / "run", mode="frozen")
    for rule in ([], ["--drop", "0"], ["--purity", "1"]):
        assert main(["prune", str(tmp_path / "run"), "--out", str(tmp_path / "fewer"), *rule]) == 2
        assert "prototypes of a pool cannot be pruned" in capsys.readouterr().err


def test_a_class_keeps_what_speaks_for_it_where_prototypes_are_shared(tmp_path: Path) -> None:
    """Not the prototypes that are listed with it."""
    model = trained("pip-net", tmp_path / "run", mode="frozen")
    network = model.prototyped
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.weight[:, 3] = 1
        network.head.weight[1, 4] = 1
    network.prototype_class.fill_(1)
    everything = range(len(network.prototype_class))
    check_classes_left(model, [number for number in everything if number != 3])
    with pytest.raises(dp.UserError, match=r"and 2 more classes\) would .* keep at least one of 3$"):
        check_classes_left(model, [number for number in everything if number != 4])


def test_pip_net_without_some_prototypes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = trained("pip-net", tmp_path / "run", mode="frozen")
    out = tmp_path / "fewer"
    assert main(["prune", str(tmp_path / "run"), "--out", str(out)]) == 2
    assert "classes share their prototypes; name some with --drop" in capsys.readouterr().err
    assert not out.exists()
    assert main(["prune", str(tmp_path / "run"), "--out", str(out), "--drop", "0,5"]) == 0
    fewer = dp.load(out)
    assert len(fewer.prototypes) == len(model.prototypes) - 2
    assert (fewer.prototyped.head.weight >= 0).all()
    assert fewer.predict(some_images()[0]).label in range(4)


@pytest.mark.parametrize(
    ("name", "network", "training", "words"),
    [
        ("protopool", {"pool": 10}, {}, "--pool is 10; it must be above --prototypes-per-class"),
        ("protopool", {"regions": "occurrence"}, {}, "use points or patches"),
        ("pip-net", {"activation": "sigmoid"}, {}, "need each other"),
        ("pip-net", {"regions": "masks"}, {}, "needs --regions points"),
        ("pip-net", {}, {"mode": "frozen", "augmentations": 0}, "--augmentations 1 or more"),
        ("dprotonet", {"activation": "softmax", "regions": "masks"}, {}, "need each other"),
    ],
)
def test_shared_prototypes_that_cannot_be(
    name: str, network: dict[str, object], training: dict[str, object], words: str
) -> None:
    with pytest.raises(dp.UserError, match=words):
        check_config(rival_config(name, {"network": network, "training": training}))


def test_an_occurrence_loss_without_occurrence_maps_is_refused() -> None:
    with pytest.raises(dp.UserError, match="--regions occurrence"):
        check_config(rival_config("protopnet", {"training": {"occurrence": 0.5}}))


# ── pruning ──────────────────────────────────────────────────────────────────────────────────────────


def test_pruning_makes_a_smaller_run(
    run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "pruned"
    assert (
        main(["prune", str(run_folder), "--out", str(out), "--nearest", "1", "--least", "1", "--json"]) == 0
    )
    content = json.loads(capsys.readouterr().out)
    before, after = dp.load(run_folder), dp.load(out)
    assert sorted(content["kept"] + content["dropped"]) == list(range(8))
    assert [item.source for item in after.prototypes] == [
        before.prototypes[old].source for old in content["kept"]
    ]
    assert {item.class_name for item in after.prototypes} == set(after.classes)
    image = some_images()[0]
    said = {item.prototype: item.similarity for item in before.predict(image).evidence}
    for item in after.predict(image).evidence:
        assert item.similarity == pytest.approx(said[content["kept"][item.prototype]])
    assert main(["prune", str(run_folder), "--out", str(out)]) == 2
    assert "not empty" in capsys.readouterr().err


def test_pruned_prototypes_are_gone(run_folder: Path, tmp_path: Path) -> None:
    model = dp.load(run_folder)
    kept = torch.tensor([True, False] * 4)
    train = Birds(species=4, per_species=6, split="train", seed=0, size=64)
    model.prototyped.prototypes.vectors.data[~kept] = 1e3  # far from all: near to none in particular
    pruning = prune_model(model, train, rule=PruneRule(1, 1))
    assert set(pruning.dropped) <= {1, 3, 5, 7}
    assert pruning.dropped
    pruning.model.save_pretrained(tmp_path / "run")
    again = dp.load(tmp_path / "run")
    assert len(again.prototypes) == len(pruning.kept) < 8
    assert again.predict_many(some_images()) == pruning.model.predict_many(some_images())


# ── the black box ────────────────────────────────────────────────────────────────────────────────────


def test_a_black_box_is_pooling_and_a_linear_layer(black_box: dp.Model) -> None:
    inputs = black_box.inputs(some_images())
    network = black_box.network
    with torch.no_grad():
        pooled = network.encoder.backbone(inputs).mean(dim=(2, 3))
        literal = pooled @ network.head.weight.T + network.head.bias
        torch.testing.assert_close(network(inputs), literal)


def test_a_black_box_is_judged_where_others_are_pushed(black_box: dp.Model) -> None:
    assert black_box.folder is not None
    events = [item["event"] for item in RunFolder(black_box.folder).read_metrics()]
    # Judged before the first epoch too: a head that starts as the discriminant is a classifier already.
    assert events == ["RoundDone", *["EpochDone", "EpochDone", "RoundDone"] * 2]


def test_a_black_box_gives_no_evidence(
    black_box: dp.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert black_box.prototypes == ()
    assert black_box.predict(some_images()[0]).evidence == ()
    with pytest.raises(dp.UserError, match="no prototypes; use dprotonet saliency"):
        black_box.explain(some_images())
    image, run = tmp_path / "bird.png", str(black_box.folder)
    Image.fromarray(some_images()[0].permute(1, 2, 0).numpy()).save(image)
    for words in (
        ["explain", run, str(image), "--out", str(tmp_path / "explained")],
        ["quality", run],
        ["prototypes", run],
        ["prune", run, "--out", str(tmp_path / "pruned"), "--drop", "1"],
        ["predict", run, str(image), "--out", str(tmp_path)],
    ):
        assert main(words) == 2
        assert "a black box has no prototypes; use dprotonet saliency" in capsys.readouterr().err
    assert main(["predict", run, str(image)]) == 0
    assert main(["evaluate", run]) == 0


@pytest.mark.parametrize("method", ["mdm", "gradcam"])
def test_saliency_of_a_black_box(black_box: dp.Model, method: str) -> None:
    (found,) = saliency(Classifier.of_model(black_box), some_images()[0], method=method)
    assert found.heatmap.max() == 1
