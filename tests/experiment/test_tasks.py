"""Networks with one output, several labels or a value, from opening them to pictures and tables."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.data.base import Sample
from dprotonet.data.transforms import Normalise
from dprotonet.experiment.compare.files import save_comparison
from dprotonet.experiment.compare.method import method
from dprotonet.experiment.compare.mosaics import mosaics_of
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.explaining.explanation_files import save_saliency
from dprotonet.experiment.explaining.saliency import Saliency, saliency, saliency_picture
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.outputs import GivenTask
from dprotonet.metrics.faithfulness import RiseProtocol
from dprotonet.metrics.measures import Protocol

SIZE = 32
AS_IT_IS = Normalise((0.0,) * 3, (1.0,) * 3)
QUICK = dp.preset("fast", iterations=4, zoom=1.0)


class Halves(nn.Module):
    """Outputs are weights of the brightness of the upper and of the lower half."""

    def __init__(self, *rows: tuple[float, float]) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 1, 4, stride=4, bias=False), nn.ReLU())
        self.weight = nn.Parameter(torch.tensor(rows, dtype=torch.float32))
        nn.init.constant_(self.features[0].weight, 1 / 48)

    def forward(self, images: Tensor) -> Tensor:
        seen = self.features(images).squeeze(1)
        halves = torch.stack([seen[:, :4].mean(dim=(1, 2)), seen[:, 4:].mean(dim=(1, 2))], dim=1)
        return halves @ self.weight.T


def network(*rows: tuple[float, float], task: GivenTask = None, classes: tuple[str, ...] = ()) -> Classifier:
    return Classifier.of_module(
        Halves(*rows), classes, size=SIZE, normalise=AS_IT_IS, task=task, name="halves"
    )


def image(upper: int = 200, lower: int = 200) -> Tensor:
    pixels = torch.full((3, SIZE, SIZE), upper, dtype=torch.uint8)
    pixels[:, SIZE // 2 :] = lower
    return pixels


def half(item: Saliency) -> str:
    raw = item.explanation.raw
    return "upper" if raw[: SIZE // 2].mean() > raw[SIZE // 2 :].mean() else "lower"


class Pictures:
    """Images with both halves bright, the object being the upper one."""

    classes = ("unknown",)
    fingerprint = "pictures"
    labels = (0, 0, 0)

    def name(self, index: int) -> str:
        return f"{index}.png"

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Sample:
        truth = torch.zeros(SIZE, SIZE, dtype=torch.bool)
        truth[: SIZE // 2] = True
        return Sample(image(200 - index, 180), 0, self.name(index), truth)


# ── opening ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_blank_image_tells_the_task_and_the_number_of_classes() -> None:
    assert network((3, -2)).classes == ("class 0", "class 1")
    assert network((3, -2), classes=("ill",)).classes == ("not ill", "ill")
    assert network((3, -2), task="regression").classes == ("up", "down")
    assert network((3, 0), (0, 3)).task == dp.Task()
    assert network((3, 0), (0, 3), task="multilabel").classes == ("class 0", "class 1")
    with pytest.raises(dp.UserError, match="3 classes are named, and the network has 2"):
        network((3, 0), (0, 3), classes=("a", "b", "c"))
    with pytest.raises(dp.UserError, match="its task is not 'single'"):
        network((3, -2), task="single")


def test_opening_leaves_a_network_in_training_alone() -> None:
    module = Halves((3, -2)).train()
    Classifier.of_module(module, size=SIZE, normalise=AS_IT_IS)
    assert module.training
    assert module.weight.requires_grad


def test_a_run_has_one_class_per_image(run_folder: Path) -> None:
    assert Classifier.open(run_folder, task="single").task == dp.Task()
    with pytest.raises(dp.UserError, match="its task is 'single', not multilabel"):
        Classifier.open(run_folder, task="multilabel")


# ── saliency ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("method", ["mdm", "gradcam", "scorecam", "ablationcam"])
def test_both_classes_of_one_output(method: str) -> None:
    known = network((6, -3), classes=("ill",))
    share = torch.tensor(3 * 200 / 255).sigmoid()
    (ill,) = saliency(known, image(), method=method, preset=QUICK)
    (healthy,) = saliency(known, image(), method=method, preset=QUICK, target="not ill")
    assert (ill.class_name, healthy.class_name) == ("ill", "not ill")
    assert ill.probability == pytest.approx(float(share), abs=1e-6)
    assert healthy.probability == pytest.approx(1 - float(share), abs=1e-6)
    assert [name for name, _ in healthy.likely] == ["ill", "not ill"]
    if method == "mdm":  # of the only channel CAMs have one map
        assert (half(ill), half(healthy)) == ("upper", "lower")


def test_all_labels_that_are_likely_are_explained() -> None:
    known = network((6, -1), (-1, 6), (-4, -4), task="multilabel", classes=("high", "low", "none"))
    found = saliency(known, [image(), image(lower=0), image(0, 0)], preset=QUICK)
    assert [(item.class_name, half(item)) for item in found[:3]] == [
        ("high", "upper"),
        ("low", "lower"),
        ("high", "upper"),
    ]
    assert [item.class_name for item in found[3:]] == ["high", "low", "none"]  # each at exactly 50 %
    assert sum(share for _, share in found[0].likely) > 1.5
    chosen = saliency(known, [image(), image()], preset=QUICK, target=["none", "low"])
    assert [item.class_name for item in chosen] == ["none", "low"] * 2
    with pytest.raises(dp.UserError, match="list of targets is empty"):
        saliency(known, image(), target=[])


def test_the_likeliest_label_where_none_is_likely() -> None:
    known = network((-6, -1), (-1, -2), task="multilabel")
    (found,) = saliency(known, image(), preset=QUICK)
    assert found.label == 1
    assert found.probability is not None
    assert found.probability < 0.5


def test_a_value_is_told_as_it_is(tmp_path: Path) -> None:
    known = network((6, -3), task="regression")
    (up,) = saliency(known, image(), preset=QUICK)
    (down,) = saliency(known, image(), preset=QUICK, target="down")
    assert (half(up), half(down)) == ("upper", "lower")
    for item in (up, down):
        assert item.value == pytest.approx(3 * 200 / 255, abs=1e-5)
        assert (item.probability, item.likely) == (None, ())
    content = save_saliency(down, tmp_path, model="halves", method="mdm")
    assert (content["task"], content["class_name"], content["node"]) == ("regression", "down", "value down")
    assert json.loads((tmp_path / "explanation.json").read_text())["value"] == pytest.approx(2.3529, abs=1e-3)
    assert saliency_picture([up, down]).height > 300
    for target in (0, "sideways"):
        with pytest.raises(dp.UserError, match=f"is explained up or down, not '{target}'"):
            saliency(known, image(), target=target)
    with pytest.raises(dp.UserError, match="no classes to compare"):
        saliency(known, image(), versus="down")


def test_of_many_labels_only_the_likeliest_are_explained_and_the_rest_is_counted() -> None:
    rows = [(number / 4, number / 4) for number in range(-2, 10)]  # nine of twelve above a half
    known = network(*rows, task="multilabel")  # type: ignore[arg-type]
    found = saliency(known, [image(), image(0, 0)], preset=QUICK, top=3, versus=11)
    first, second = found[:3], found[3:]
    assert [item.label for item in first] == [9, 10, 11]
    assert [item.left_out for item in first] == [7, 7, 7]  # one is at 50 % itself
    assert [item.replaced for item in first] == [False, False, True]
    assert [item.versus for item in first] == ["class 11", "class 11", "class 10"]
    assert len(second) == 3  # all at 50 %
    assert {item.left_out for item in second} == {9}
    assert {item.left_out for item in saliency(known, image(), preset=QUICK, top=10)} == {0}
    with pytest.raises(dp.UserError, match="top is 0"):
        saliency(known, image(), top=0)
    assert [item.left_out for item in saliency(known, image(), preset=QUICK, top=1, target=[1, 2])] == [0, 0]


# ── compare ──────────────────────────────────────────────────────────────────────────────────────────


def compared(known: Classifier, out: Path, protocol: Protocol) -> Comparison:
    names = ("mdm:fast,iterations=4,zoom=1.0", "gradcam", "random")
    comparison = Comparison(known, Pictures(), [method(name, known) for name in names], out, protocol)
    for step in comparison.run():
        assert step.failure is None, step.failure
    return comparison


@pytest.mark.parametrize("task", ["binary", "multilabel"])
def test_curves_are_of_sigmoids(task: GivenTask, tmp_path: Path) -> None:
    rows = [(6, -3)] if task == "binary" else [(6.0, -3.0), (-6, 3)]
    known = network(*rows, task=task)  # type: ignore[arg-type]
    comparison = compared(known, tmp_path, Protocol(RiseProtocol(steps=4)))
    results = comparison.results()
    for index in range(3):
        whole = torch.tensor((6 * (200 - index) - 3 * 180) / 255).sigmoid()
        for kept in results.records.values():
            assert float(kept[index].deletion[0]) == pytest.approx(float(whole), abs=1e-5)
            assert float(kept[index].deletion[-1]) == 0.5  # the sigmoid of a blank image
    content = save_comparison(comparison, results)
    assert content["task"] == task
    assert json.loads((tmp_path / "plan.json").read_text())["task"]["kind"] == task


@pytest.mark.parametrize(("asked", "wanted"), [("up", 1.0), ("down", -1.0)])
def test_of_a_value_curves_are_shares_of_it(asked: str, wanted: float, tmp_path: Path) -> None:
    known = network((6, -3), task="regression")
    protocol = Protocol(RiseProtocol(steps=4), asked=asked, of_value=True)
    comparison = compared(known, tmp_path, protocol)
    results = comparison.results()
    first, _, control = results.records
    for index in range(3):
        ours, random = (results.records[name][index] for name in (first, control))
        assert float(ours.deletion[0]) == pytest.approx(wanted, abs=1e-5)
        assert float(ours.deletion[-1]) == pytest.approx(0, abs=1e-6)
        assert ours.values["deletion"] < random.values["deletion"]
        assert ours.values["insertion"] > random.values["insertion"]
    content = save_comparison(comparison, results)
    assert "AD" not in content["rows"][0]["measures"]
    assert "AD, AI and AG need a probability" in content["protocol"]["measured"]
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_what_cannot_be_compared(tmp_path: Path) -> None:
    known = network((6, -3), task="regression")
    with pytest.raises(dp.UserError, match="of a regression a value is measured"):
        next(Comparison(known, Pictures(), [], tmp_path).run())
    with pytest.raises(dp.UserError, match="a regression has none; leave --mosaic out"):
        mosaics_of(known, Pictures(), 4)
