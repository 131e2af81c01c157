"""Heatmaps for classes of any classifier: which network, which class, which method."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image

import dprotonet as dp
from dprotonet.errors import UserError
from dprotonet.experiment.explaining.saliency import saliency, saliency_picture
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation import cam
from dprotonet.interpretation.explainers import EXPLAINERS

QUICK = dp.preset("fast", iterations=2, zoom=1.0)
SIZES = {"wide": (60, 30), "tall": (20, 50), "large": (1500, 700)}


@pytest.fixture(scope="module")
def network() -> Classifier:
    torch.manual_seed(0)
    return Classifier.open("timm:test_resnet:none")


@pytest.fixture(scope="module")
def trained(run_folder: Path) -> Classifier:
    return Classifier.open(run_folder)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    paths = [tmp_path_factory.mktemp("images") / f"{name}.png" for name in SIZES]
    for path, size in zip(paths, SIZES.values(), strict=True):
        Image.radial_gradient("L").resize(size).convert("RGB").save(path)
    return paths


def test_a_timm_network_brings_its_own_settings(network: Classifier) -> None:
    assert len(network.classes) == 1000
    assert network.classes[0] == "tench, Tinca tinca"
    pixels = torch.full((3, 9, 9), 255, dtype=torch.uint8)
    inputs = network.inputs([pixels])
    assert inputs.shape == (1, 3, network.size, network.size)
    expected = [
        (1 - mean) / std for mean, std in zip(network.normalise.mean, network.normalise.std, strict=True)
    ]
    assert inputs[0, :, 0, 0].tolist() == pytest.approx(expected)


def test_a_run_is_a_classifier_too(trained: Classifier, run_folder: Path) -> None:
    model = dp.load(run_folder)
    assert trained.classes == model.classes
    image = torch.full((3, 64, 64), 90, dtype=torch.uint8)
    (found,) = saliency(trained, image, preset=QUICK)
    prediction = model.predict(image)
    assert (found.class_name, found.label) == (prediction.class_name, prediction.label)
    assert found.probability == pytest.approx(prediction.probability, abs=1e-5)
    assert found.likely[0][0] == prediction.class_name


@pytest.mark.parametrize("method", [name for name in EXPLAINERS if "attention" not in EXPLAINERS[name].needs])
def test_every_method_explains_both_kinds(
    method: str, trained: Classifier, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(EXPLAINERS, "rise", replace(EXPLAINERS["rise"], settings={"samples": 9}))
    small = Classifier.open("timm:test_efficientnet:none")
    for classifier in (trained,) if method == "similarity" else (small, trained):
        found = saliency(classifier, images[:2], method=method, preset=QUICK)
        for item in found:
            assert item.explanation.heatmap.shape == (classifier.size, classifier.size)
            assert 0 <= float(item.heatmap.min()) <= float(item.heatmap.max()) <= 1
            assert item.explanation.facts["preset"] == (
                "fast, iterations=2, zoom=1.0" if method == "mdm" else method
            )


def test_pictures_keep_their_proportions(network: Classifier, images: list[Path]) -> None:
    found = saliency(network, images, preset=QUICK)
    assert [item.picture.shape[1:] for item in found] == [(30, 60), (50, 20), (299, 640)]
    assert [item.heatmap.shape for item in found] == [item.picture.shape[1:] for item in found]
    assert saliency_picture(found).height > 500


@pytest.mark.parametrize("target", [7, "7", "cock"])
def test_the_class_can_be_chosen(network: Classifier, images: list[Path], target: str | int) -> None:
    (found,) = saliency(network, images[0], preset=QUICK, target=target)
    assert (found.label, found.class_name) == (7, "cock")
    assert found.probability <= found.likely[0][1]


@pytest.mark.parametrize("target", [1000, "1000", -1, "-1", "unicorn"])
def test_a_class_that_is_not_there(network: Classifier, images: list[Path], target: str | int) -> None:
    with pytest.raises(dp.UserError, match=f"has no class '?{target}"):
        saliency(network, images, target=target)


def test_progress_goes_to_the_end(
    network: Classifier, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dprotonet.experiment.explaining.saliency._BLOCK", 2)
    for method in ("mdm", "gradcam"):
        seen: list[tuple[int, int]] = []
        saliency(
            network,
            images,
            method=method,
            preset=QUICK,
            on_progress=lambda done, total, seen=seen: seen.append((done, total)),  # type: ignore[misc]
        )
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1]


def test_blocks_do_not_matter(
    network: Classifier, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    together = saliency(network, images, preset=QUICK)
    monkeypatch.setattr("dprotonet.experiment.explaining.saliency._BLOCK", 1)
    for one, other in zip(together, saliency(network, images, preset=QUICK), strict=True):
        assert torch.allclose(one.explanation.heatmap, other.explanation.heatmap, atol=0.02)
    assert saliency(network, []) == []


def test_mistakes(network: Classifier, images: list[Path], tmp_path: Path) -> None:
    for name, message in [
        (tmp_path / "nowhere", "not a run folder"),
        ("resnet18", "write timm:NAME"),
        ("timm:resnet51", "resnet50"),
        ("timm:resnet18:packaged", "packaged weights exist for"),
        (tmp_path, "config.toml"),
    ]:
        with pytest.raises(dp.UserError, match=message):
            Classifier.open(name)
    with pytest.raises(dp.UserError, match="unknown method 'lemon'; known: mdm, gradcam"):
        saliency(network, images, method="lemon")
    with pytest.raises(dp.UserError, match="unknown preset"):
        saliency(network, images, preset="slow")


def test_a_rival_without_its_package(
    network: Classifier, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(cam, "import_guarded", absent)
    with pytest.raises(dp.UserError, match=r"pip install 'dprotonet\[cam\]'"):
        saliency(network, images, method="gradcam")


def test_a_classifier_however_one_has_it(trained: Classifier, run_folder: Path, images: list[Path]) -> None:
    (wanted,) = saliency(trained, images[0], method="similarity")
    for given in (dp.load(run_folder), run_folder, str(run_folder)):
        (found,) = saliency(given, images[0], method="similarity")
        assert found.probability == wanted.probability
        assert torch.equal(found.heatmap, wanted.heatmap)
    with pytest.raises(
        dp.UserError, match=r"what dp.classifier or dp.load opens, or its name, not DProtoNet"
    ):
        saliency(trained.module, images[0])  # type: ignore[arg-type]


def test_the_network_predicts_and_comes_back_as_it_was(images: list[Path]) -> None:
    """A network in training mode would tell another probability, and learn statistics of the images."""
    usual = Classifier.open("timm:test_efficientnet:none")
    (wanted,) = saliency(usual, images[0], preset=QUICK)
    before = {name: value.clone() for name, value in usual.module.state_dict().items()}
    usual.module.train()
    (found,) = saliency(usual, images[0], preset=QUICK)
    assert usual.module.training
    assert (found.label, found.probability) == (wanted.label, wanted.probability)
    assert all(torch.equal(value, before[name]) for name, value in usual.module.state_dict().items())


def test_a_name_that_is_nearly_right(network: Classifier, images: list[Path]) -> None:
    with pytest.raises(dp.UserError, match="no class 'cok'; did you mean 'cock'"):
        saliency(network, images, target="cok")


def test_one_class_rather_than_another(trained: Classifier, images: list[Path]) -> None:
    """The runner-up is that of each image; a class that is named is that of all."""
    logits = trained.module(trained.inputs(images)).detach()
    order = logits.argsort(dim=1, descending=True)
    found = saliency(trained, images, preset=QUICK, versus="runner-up")
    assert [item.versus for item in found] == [trained.classes[number] for number in order[:, 1].tolist()]
    likely, other = order[0, :2].tolist()
    (named,) = saliency(trained, images[0], preset=QUICK, target=other, versus=trained.classes[likely])
    assert named.explanation.node == f"logit of class {other} less that of class {likely}"
    (turned,) = saliency(trained, images[0], preset=QUICK, target=likely, versus=other)
    assert torch.equal(turned.heatmap, found[0].heatmap)
    assert not torch.equal(turned.heatmap, named.heatmap)
    assert isinstance(saliency_picture(found), Image.Image)


def test_a_class_that_cannot_be_compared_with_is_named(trained: Classifier, images: list[Path]) -> None:
    own = trained.classes[0]
    with pytest.raises(UserError, match=f"did you mean '{own}'"):
        saliency(trained, images, versus=own[:-1], preset=QUICK)
    with pytest.raises(UserError, match="cannot be compared with itself"):
        saliency(trained, images, target=own, versus=own, preset=QUICK)
    with pytest.raises(UserError, match=f"classes are 0 to {len(trained.classes) - 1}"):
        saliency(trained, images, versus=99, preset=QUICK)
