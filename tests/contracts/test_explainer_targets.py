"""Every explainer is called alike: three ways in, any kind of target, a sentence for what is none."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from contracts.explainer_subjects import (
    ASKING,
    CLASSES,
    COUNT,
    LABELS,
    SIZE,
    SPECIES,
    TOLERANCE,
    Net,
    State,
    entry_of,
    explainer,
    heatmaps,
    images,
    made,
    node,
    used,
)
from dprotonet.errors import UserError
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.folding import Folding
from dprotonet.interpretation.nodes import CallableNode, ClassNode


class ClassifierOutputTarget:
    """Like the one of pytorch-grad-cam, which is not imported here."""

    def __init__(self, category: int) -> None:
        self.category = category

    def __call__(self, output: Tensor) -> Tensor:
        return output[self.category]


ROBIN: dict[str, Any] = {  # class 2 of every image
    "number": 2,
    "number of NumPy": np.int64(2),
    "name": "robin",
    "tensor of one": torch.tensor(2),
    "tensor of one in a row": torch.tensor([2]),
    "target": ClassifierOutputTarget(2),
    "list": [2] * COUNT,
    "tuple": (2,) * COUNT,
    "names": ["robin"] * COUNT,
    "names and numbers": ["robin", np.int32(2), torch.tensor(2)],
    "tensor": torch.full((COUNT,), 2),
    "column": torch.full((COUNT, 1), 2),
    "array": np.full(COUNT, 2),
    "array read backwards": np.full(COUNT, 2)[::-1],
    "array of foreign byte order": np.full(COUNT, 2, dtype=">i8"),
    "array of names": np.array(["robin"] * COUNT),
    "array of names and numbers": np.array(["robin", 2, np.int8(2)], dtype=object),
    "targets": [ClassifierOutputTarget(2)] * COUNT,
}


def three_ways(by: Explainer, target: Any) -> list[Tensor]:
    """Heatmaps (N, H, W) as pytorch-grad-cam, captum and everything else would have them."""
    called, attributed = by(images(), target), by.attribute(images(), target)
    assert isinstance(called, np.ndarray)
    assert called.dtype == np.float32
    assert attributed.shape == images().shape
    assert torch.equal(attributed[:, 0], attributed[:, 2])
    return [torch.from_numpy(called), attributed[:, 1], heatmaps(by.explain(images(), target))]


@pytest.mark.parametrize("kind", ROBIN)
def test_a_class_may_be_told_in_many_ways(name: str, kind: str, model: Net) -> None:
    by = made(name, model)
    asked = by.question(images(), ROBIN[kind], batch=32).node
    assert isinstance(asked, ClassNode)
    assert asked.labels.tolist() == [2] * COUNT
    assert asked.probability == by.probability


@pytest.mark.parametrize("kind", ["number", "names", "targets"])
def test_three_ways_in_give_one_map(name: str, kind: str, model: Net) -> None:
    usual = heatmaps(explainer(name, model)(images(), node(model, [2] * COUNT)))
    ways = three_ways(made(name, model), ROBIN[kind])
    assert torch.equal(ways[0], ways[1])
    assert torch.equal(ways[0], ways[2])
    if not made(name, model).probability:  # as `node` is
        assert torch.equal(ways[0], usual)


def test_each_image_has_a_class_of_its_own(name: str, model: Net) -> None:
    found = made(name, model).explain(images(), [SPECIES[LABELS[0]], *LABELS[1:]])
    assert [item.node.split()[-1] for item in found] == [str(label) for label in LABELS]
    for row, label in enumerate(LABELS):
        (alone,) = made(name, model).explain(images()[row : row + 1], label)
        assert (alone.heatmap - found[row].heatmap).abs().max() <= TOLERANCE


def test_nothing_is_the_prediction_and_no_pass_is_lost(name: str, model: Net) -> None:
    ways = three_ways(made(name, model), None)
    assert torch.equal(ways[0], heatmaps(explainer(name, model)(images())))


@pytest.mark.parametrize("name", ASKING)
def test_functions_of_the_output(name: str, model: Net) -> None:
    """As pytorch-grad-cam has them; a network's own maps are of classes and prototypes only."""
    by, targets = made(name, model), [lambda output: output[2] - output[0]] * COUNT
    if "prototypes" in entry_of(name).needs:
        with pytest.raises(UserError, match="explain classes and prototypes only; use MDM"):
            by(images(), targets)
        return
    found = by.explain(images(), targets)
    assert heatmaps(found).amax(dim=(1, 2)).min() > 0
    assert (heatmaps(found) - heatmaps(by.explain(images(), 2))).abs().max() > 10 * TOLERANCE


def test_functions_of_images_and_nodes(name: str, model: Net) -> None:
    def brightness(given: Tensor) -> Tensor:
        return given[:, :, :12].square().mean(dim=(1, 2, 3))

    by = made(name, model)
    for target in (brightness, CallableNode(brightness)):
        if {"feature map", "prototypes"} & set(entry_of(name).needs):
            with pytest.raises(UserError, match="use MDM for other nodes"):
                by(images(), target)
        elif "attention" in entry_of(name).needs:  # which this function has none of
            with pytest.raises(UserError, match="no attention was seen in this network; use MDM"):
                by(images(), target)
        else:
            found = by.explain(images(), target)
            assert [item.node for item in found] == ["brightness"] * COUNT
            assert all(item.raw[:12].mean() > item.raw[20:].mean() for item in found)


REFUSED: dict[str, tuple[Any, str]] = {
    "a bool": (True, r"True \(bool\) is no class; give nothing for the predicted class"),
    "bools": ([True, False, True], r"True \(bool\) is no class"),
    "a tensor of bools": (torch.tensor([True] * COUNT), "of type torch.bool, and classes are whole numbers"),
    "a float": (1.0, r"1.0 \(float\) is no target; give nothing"),
    "floats": ([1.0] * COUNT, r"1.0 \(float\) is no class"),
    "a tensor of floats": (torch.ones(COUNT), "of type torch.float32, and classes are whole numbers"),
    "an array of floats": (np.ones(COUNT), "of type torch.float64, and classes are whole numbers"),
    "an array of nothings": (np.array([None] * COUNT), r"None \(NoneType\) is no class"),
    "a table of names": (np.array([["robin"]] * COUNT), r"\['robin'\] \(list\) is no class"),
    "an empty list": ([], "the list of targets is empty"),
    "too few": ([0, 1], f"2 targets for {COUNT} images; give exactly one target per image"),
    "too many": ([0] * 4, f"4 targets for {COUNT} images"),
    "a list of one": ([0], f"1 targets for {COUNT} images"),
    "too few in a tensor": (torch.tensor([0, 1]), f"2 targets for {COUNT} images"),
    "too many targets": ([ClassifierOutputTarget(1)] * 4, f"4 targets for {COUNT} images"),
    "a table": (torch.zeros(COUNT, 2, dtype=torch.long), r"the shape \(3, 2\); give one class per image"),
    "no such class": (CLASSES, f"no class {CLASSES}; the model has classes 0 to {CLASSES - 1}"),
    "a class below none": ([0, -1, 0], f"no class -1; the model has classes 0 to {CLASSES - 1}"),
    "no such name": ("robins", "no class 'robins'; did you mean 'robin'?"),
    "nothing among names": (["robin", None, "lark"], r"None \(NoneType\) is no class"),
    "a mapping": ({"robin": 2}, r"\(dict\) is no target; give nothing"),
    "a set": ({0, 1, 2}, r"\(set\) is no target"),
    "a thing": (object(), r"\(object\) is no target"),
    "a class of Python": (ClassifierOutputTarget, r"\(type\) is no target"),
    "functions and numbers": ([len, 1, 2], "targets mix functions with 1"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_target_is_refused_in_a_sentence(name: str, kind: str, model: Net) -> None:
    target, message = REFUSED[kind]
    by, before = made(name, model), State.of(used(model))
    for way in (by, by.attribute, by.explain):
        with pytest.raises(UserError, match=message):
            way(images(), target)
    before.assert_same(model)


def test_a_node_belongs_in_no_list(name: str, model: Net) -> None:
    with pytest.raises(UserError, match="give it alone, not in a list"):
        made(name, model)(images(), [node(model)] * COUNT)


def test_names_have_to_be_known(name: str, model: Net) -> None:
    by = made(name, model, classes=())
    with pytest.raises(UserError, match="'robin' is not known by its name: give the explainer classes="):
        by(images(), "robin")


def test_a_plain_function_is_explained_like_its_module_or_refused(
    name: str, model: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, once the module is not folded: of a function no normalisation is known."""
    monkeypatch.setattr(Folding, "through", lambda _self, ask: ask())

    def function(given: Tensor) -> Tensor:
        return model(given)

    if {"feature map", "attention", "prototypes"} & set(entry_of(name).needs):
        with pytest.raises(UserError, match=r"a module.*; MDM and Rise explain functions too"):
            made(name, function)
        return
    wanted = three_ways(made(name, model), LABELS)[0]
    for found in three_ways(made(name, function), LABELS):
        assert torch.equal(found, wanted)
    assert made(name, function).explain(images())[0].node == made(name, model).explain(images())[0].node


@pytest.mark.parametrize("thing", ["resnet50", 3, Net])
def test_what_is_no_model_is_refused(name: str, thing: Any) -> None:
    with pytest.raises(UserError, match="a module"):
        made(name, thing)


def test_code_written_for_cams_runs(name: str, model: Net) -> None:
    with made(name, model) as cam:
        assert cam(input_tensor=images(), targets=[ClassifierOutputTarget(0)] * COUNT).shape == (COUNT, *SIZE)
    with pytest.raises(UserError, match="leave aug_smooth and eigen_smooth out"):
        made(name, model)(images(), aug_smooth=True)
