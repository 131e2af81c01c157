"""Every explainer marks what moves the class that was asked for, whatever the model's outputs mean.

The truth is planted: the network sees three squares, and it is known which of them speaks for which class.
"""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from contracts.explainer_subjects import ASKING, SIGNED, made
from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.interpretation.outputs import GivenTask
from dprotonet.interpretation.rise import Rise

SIDE = 48
SQUARES = {"red": (4, 4), "green": (4, 28), "blue": (28, 28)}  # upper left corners; 16 pixels a side
OTHERS = ("paper", "similarity", "chefer", "legrad", "attnlrp")  # that need prototypes or attention
WITHOUT_PAPER = [name for name in ASKING if name not in OTHERS]
EVERY = ["paper", *WITHOUT_PAPER]
WITH_SIGN = [name for name in WITHOUT_PAPER if name in SIGNED]

Ending = Callable[[Tensor], Tensor]
TO_ONE: dict[str, Ending] = {
    "(N, 1)": lambda outputs: outputs,
    "(N,)": lambda outputs: outputs.squeeze(1),
    "squeezed": lambda outputs: outputs.squeeze(),
    "sigmoid": lambda outputs: outputs.sigmoid(),
    "sigmoid of (N,)": lambda outputs: torch.sigmoid(outputs.squeeze(1)),
    "softmax, one kept": lambda outputs: torch.cat([outputs * 0, outputs], dim=1).softmax(dim=1)[:, 1],
}


class Squares(nn.Module):
    """A row of weights for each output: of the red, the green and the blue square."""

    def __init__(self, *rows: list[float], ending: Ending = lambda outputs: outputs) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 3, 4, stride=4, bias=False), nn.ReLU())
        self.head, self.ending = nn.Linear(3, len(rows), bias=False), ending
        with torch.no_grad():
            self.features[0].weight.copy_(torch.eye(3)[:, :, None, None].expand(-1, -1, 4, 4) / 16)
            self.head.weight.copy_(torch.tensor(rows))

    def forward(self, images: Tensor) -> Tensor:
        return self.ending(self.head(self.features(images).mean(dim=(2, 3))))


def image(**brightness: float) -> Tensor:
    picture = torch.zeros(1, 3, SIDE, SIDE)
    for channel, (colour, (top, left)) in enumerate(SQUARES.items()):
        picture[:, channel, top : top + 16, left : left + 16] = brightness.get(colour, 1.0)
    return picture


def marked(found: Explanation) -> str:
    """The square that is hottest on average, and hotter than all around it."""
    inside = {
        colour: float(found.raw[top : top + 16, left : left + 16].mean())
        for colour, (top, left) in SQUARES.items()
    }
    hottest = max(inside, key=lambda colour: inside[colour])
    return hottest if inside[hottest] > found.raw.mean() else "nothing"


def explainer(name: str, model: nn.Module, **settings: Any) -> Explainer:
    by = made(name, model, (SIDE, SIDE), **{"classes": (), **settings})
    if isinstance(by, Rise):
        by.samples = 400  # the noise of few would be larger than what is asked
    return by


def mark(name: str, model: nn.Module, target: Any, seen: Tensor, **settings: Any) -> str:
    by = explainer(name, model, **settings)
    (found,) = by.explain(seen, target)
    assert found.heatmap.max() == pytest.approx(1)
    return marked(found)


@pytest.fixture(params=EVERY)
def name(request: pytest.FixtureRequest) -> str:
    wanted: str = request.param
    return wanted


# ── one output: a binary classifier ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", TO_ONE)
def test_class_1_is_what_raises_the_one_output_and_class_0_what_lowers_it(name: str, ending: str) -> None:
    model = Squares([30.0, -18.0, 0.0], ending=TO_ONE[ending])
    assert mark(name, model, 1, image()) == "red"
    ill = image(red=0.5)  # of which the output is below 0
    assert mark(name, model, 0, ill) == "green"


@pytest.mark.parametrize("name", WITH_SIGN)
def test_also_where_the_other_class_is_predicted(name: str) -> None:
    model = Squares([30.0, -18.0, 0.0])
    assert mark(name, model, None, image()) == "red"
    assert mark(name, model, 0, image()) == "green"


def test_the_paper_says_where_its_map_shows_what_holds_a_class_down(caplog: pytest.LogCaptureFixture) -> None:
    """Eq. (14) keeps an activation as it is, be it low."""
    mark("paper", Squares([30.0, -18.0, 0.0]), 0, image())
    assert "lower on image 0 than on a blank image" in caplog.text
    caplog.clear()
    mark("paper", Squares([30.0, -18.0, 0.0]), 1, image())
    assert "lower on image" not in caplog.text


@pytest.mark.parametrize("classes", [("ill",), ("healthy", "ill")])
def test_names_of_a_binary_classifier(name: str, classes: tuple[str, ...]) -> None:
    model, seen = Squares([30.0, -18.0, 0.0]), image(red=0.5)
    other = "not ill" if len(classes) == 1 else "healthy"
    by = explainer(name, model, classes=classes)
    nodes = [by.question(seen, target, batch=4).node for target in ("ill", other, 1, 0, None)]
    asked = [node.labels.tolist() for node in nodes if isinstance(node, ClassNode)]
    assert asked == [[1], [0], [1], [0], [0]]
    (found,) = by.explain(seen, other)
    assert marked(found) == "green"
    assert found.node.endswith("of class 0")
    assert found.facts["task"] == "binary"


# ── several labels, a value ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ending", ["logits", "sigmoid"])
def test_each_label_has_a_map_of_its_own(name: str, ending: str) -> None:
    rows = [[30.0, 0.0, 0.0], [0.0, 30.0, 0.0], [0.0, 0.0, 30.0]]
    model = Squares(*rows, ending=torch.sigmoid if ending == "sigmoid" else lambda outputs: outputs)
    task: GivenTask = None if ending == "sigmoid" else "multilabel"
    by = explainer(name, model, task=task, classes=list(SQUARES))
    found = by.explain(image().expand(3, -1, -1, -1), ["blue", "red", "green"])
    assert [marked(item) for item in found] == ["blue", "red", "green"]
    assert [item.facts["task"] for item in found] == ["multilabel"] * 3


@pytest.mark.parametrize("name", ["paper", *WITH_SIGN])
@pytest.mark.parametrize("ending", ["(N, 1)", "(N,)"])
def test_a_value_is_explained_up_and_down(name: str, ending: str) -> None:
    model = Squares([30.0, -18.0, 0.0], ending=TO_ONE[ending])
    assert mark(name, model, "up", image(), task="regression") == "red"
    assert mark(name, model, None, image(), task="regression") == "red"
    assert mark(name, model, "down", image(red=0.5), task="regression") == "green"
    if name != "paper":
        assert mark(name, model, "down", image(), task="regression") == "green"


@pytest.mark.parametrize("name", WITH_SIGN)
def test_also_where_what_raises_a_value_and_what_lowers_it_cancel(name: str) -> None:
    model = Squares([20.0, -20.0, 0.0])
    assert model(image()).item() == pytest.approx(0, abs=1e-6)
    assert mark(name, model, "up", image(), task="regression") == "red"
    assert mark(name, model, "down", image(), task="regression") == "green"


# ── what is refused, and what is said ────────────────────────────────────────────────────────────────

ONE, TWO = [30.0, -18.0, 0.0], [0.0, 9.0, 0.0]


def by_softmax(outputs: Tensor) -> Tensor:
    return outputs.softmax(dim=1)


Refused = tuple[nn.Module, Any, dict[str, Any], str]
REFUSED: dict[str, Refused] = {
    "one output as single": (Squares(ONE), 0, {"task": "single"}, "always 1: its task is not 'single'; give"),
    "two outputs as binary": (Squares(ONE, TWO), 0, {"task": "binary"}, "are task 'single'"),
    "two values": (Squares(ONE, TWO), "up", {"task": "regression"}, r"image, lambda output: output\[0\]"),
    "softmax of one": (Squares(ONE, ending=by_softmax), 0, {}, "softmax over one output, always 1"),
    "softmax as labels": (
        Squares(ONE, TWO, ending=by_softmax),
        0,
        {"task": "multilabel"},
        "ends with a softmax: its task is 'single'",
    ),
    "sigmoids as single": (
        Squares(ONE, TWO, ending=torch.sigmoid),
        0,
        {"task": "single"},
        "its task is 'multilabel', and 'single' was given",
    ),
    "an unknown task": (
        Squares(ONE),
        0,
        {"task": "ranking"},
        "unknown task 'ranking'; known: single, binary",
    ),
    "a class beyond two": (Squares(ONE), 2, {}, "no class 2; the model has classes 0 to 1"),
    "three names": (Squares(ONE), 1, {"classes": ("a", "b", "c")}, "one output per image, and 3 classes"),
    "a number of a value": (Squares(ONE), 0, {"task": "regression"}, "give 'up'.*or 'down'"),
    "numbers of a value": (Squares(ONE), torch.tensor([1]), {"task": "regression"}, "give 'up'.*or 'down'"),
    "sideways": (Squares(ONE), "sideways", {"task": "regression"}, "there is no class 'sideways'"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_does_not_fit_the_outputs_is_refused_in_a_sentence(name: str, kind: str) -> None:
    model, target, settings, message = REFUSED[kind]
    with pytest.raises(UserError, match=message):
        mark(name, model, target, image(), **settings)


class ClassifierOutputTarget:
    """Like the one of pytorch-grad-cam, which numbers outputs: its 0 would be our class 1 of two."""

    def __init__(self, category: int) -> None:
        self.category = category

    def __call__(self, output: Tensor) -> Tensor:
        return output[self.category]


@pytest.mark.parametrize("task", [None, "regression"])
def test_a_target_that_numbers_outputs_is_not_taken_for_a_class(name: str, task: GivenTask) -> None:
    with pytest.raises(UserError, match="only one; give class 1 or 0 of a binary classifier, 'up' or 'down'"):
        mark(name, Squares(ONE), [ClassifierOutputTarget(0)], image(), task=task)


@pytest.mark.parametrize("name", WITH_SIGN)
@pytest.mark.parametrize("ending", ["(N, 1)", "(N,)"])
def test_functions_of_the_output_have_a_sign(name: str, ending: str) -> None:
    model = Squares(ONE, ending=TO_ONE[ending])
    assert mark(name, model, [lambda output: output.sum()], image()) == "red"
    assert mark(name, model, [lambda output: -output.sum()], image()) == "green"


@pytest.mark.parametrize("name", [name for name in WITHOUT_PAPER if name not in SIGNED])
def test_what_takes_magnitudes_has_one_map_for_both_signs(name: str) -> None:
    by = explainer(name, Squares(ONE), task="regression")
    up, down = (by.explain(image(), target)[0].raw for target in ("up", "down"))
    assert torch.allclose(up, down)


def test_what_was_found_is_said_once(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    by = explainer(name, Squares(ONE))
    by.explain(image(), 1)
    by.explain(image(), 1)
    said = [record for record in caplog.records if "task 'binary' found" in record.getMessage()]
    assert [record.levelname for record in said] == ["WARNING"]
    assert "give task='regression'" in said[0].getMessage()
