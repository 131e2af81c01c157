"""Whatever a model returns, its answer is found or named, and explained as if it returned nothing else."""

import re
from collections import namedtuple
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.interpretation.conftest import Net
from torch import Tensor, nn

import dprotonet as dp
from dprotonet.data.transforms import Normalise
from dprotonet.errors import UserError
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.interpretation.base import Explanation
from dprotonet.interpretation.cam import CAM
from dprotonet.interpretation.explainer import Explainer
from dprotonet.interpretation.mdm import MDM, preset
from dprotonet.interpretation.nodes import TargetNode
from dprotonet.interpretation.returned import Reader
from dprotonet.interpretation.rise import Rise

COUNT = 2
FAST = preset("fast", iterations=3, sizes=(4, 7))

Pair = namedtuple("Pair", ["aux", "logits"])


@dataclass
class Prediction:
    loss: Tensor | None
    scores: Tensor


class Returning(nn.Module):
    """A network whose logits come in a container."""

    def __init__(self, inner: nn.Module, pack: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.inner, self.pack = inner, pack
        self.eval()

    def forward(self, images: Tensor) -> Any:
        return self.pack(self.inner(images))


PACKED: dict[str, Callable[[Tensor], Any]] = {
    "a dict": lambda logits: {"logits": logits, "hidden": [logits[:, :, None, None]]},
    "a dict with embeddings": lambda logits: {"embeddings": logits.repeat(1, 7), "logits": logits},
    "a dict with one fitting tensor": lambda logits: {"loss": logits.sum(), "answer": logits, "note": "x"},
    "a dataclass": lambda logits: Prediction(None, logits),
    "a named tuple": lambda logits: Pair(logits + 1, logits),
    "a tuple with a map": lambda logits: (logits[:, :, None, None], logits),
    "an object": lambda logits: SimpleNamespace(logits=logits, aux=logits + 1),
    "a dict in a list": lambda logits: [{"out": logits}],
}


@pytest.fixture
def images() -> Tensor:
    return torch.rand(COUNT, 3, 24, 24, generator=torch.Generator().manual_seed(0)) + 0.1


def explainers(model: nn.Module, **options: Any) -> Iterator[Explainer]:
    yield MDM(model, preset=FAST, **options)
    yield CAM(model, "gradcam", **options)
    yield Rise(model, samples=10, **options)


def same(one: list[Explanation], other: list[Explanation]) -> bool:
    return all(torch.equal(a.heatmap, b.heatmap) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("pack", PACKED.values(), ids=PACKED)
def test_the_answer_is_found(pack: Callable[[Tensor], Any], model: Net, images: Tensor) -> None:
    plain, packed = explainers(model), explainers(Returning(model, pack))
    for bare, wrapped in zip(plain, packed, strict=True):
        assert same(bare.explain(images), wrapped.explain(images))


NAMED: dict[str, tuple[Callable[[Tensor], Any], str | int]] = {
    "by key": (lambda logits: {"a": -logits, "b": logits}, "b"),
    "by field": (lambda logits: Pair(logits, -logits), "aux"),
    "by place": (lambda logits: [-logits, logits], 1),
    "from behind": (lambda logits: (-logits, logits), -1),
    "inside": (lambda logits: {"heads": [-logits, {"x.y": logits}]}, "heads.1.x.y"),
}


@pytest.mark.parametrize(("pack", "output"), NAMED.values(), ids=NAMED)
def test_the_answer_is_named(
    pack: Callable[[Tensor], Any], output: str | int, model: Net, images: Tensor
) -> None:
    plain, packed = explainers(model), explainers(Returning(model, pack), output=output)
    for bare, wrapped in zip(plain, packed, strict=True):
        assert same(bare.explain(images), wrapped.explain(images))


def test_a_function_may_return_a_dict_too(model: Net, images: Tensor) -> None:
    plain = MDM(lambda given: model(given), preset=FAST).explain(images)
    assert same(
        plain,
        MDM(lambda given: {"a": -model(given), "b": model(given)}, preset=FAST, output="b").explain(images),
    )


def test_of_several_heads_the_first_counts_and_that_is_said_once(
    model: Net, images: Tensor, caplog: pytest.LogCaptureFixture
) -> None:
    heads = Returning(model, lambda logits: [logits, -logits])
    assert same(MDM(model, preset=FAST).explain(images), MDM(heads, preset=FAST).explain(images))
    said = [record.getMessage() for record in caplog.records if "several outputs" in record.getMessage()]
    assert len(said) == 1
    assert re.search(r"'0' \(\d, 4\), '1' \(\d, 4\); the first counts; name another by output='1'", said[0])


def rows(columns: int = 4) -> Tensor:
    return torch.zeros(COUNT, columns)


REFUSED: dict[str, tuple[Any, str | int | None, str]] = {
    "several in a dict": (
        {"left": rows(), "right": rows(3)},
        None,
        r"several outputs: 'left' \(2, 4\), 'right' \(2, 3\); say which by output='left'",
    ),
    "none fits": (
        {"map": rows()[..., None]},
        None,
        r"gave 'map' \(2, 4, 1\) for 2 images, not logits \(B, C\)",
    ),
    "no tensor": ({"note": "x"}, None, "gave dict for 2 images"),
    "nothing": (None, None, "gave NoneType for 2 images"),
    "whole numbers": (torch.zeros(COUNT, 4, dtype=torch.long), None, r"gave \(2, 4\)"),
    "an unknown name": ({"left": rows()}, "logits", r"no output 'logits'; it gives 'left' \(2, 4\)"),
    "a place beyond": ([rows()], 3, r"no output '3'; it gives '0' \(2, 4\)"),
    "a name of a tensor": (rows(), "logits", r"no output 'logits'; it gives \(2, 4\)"),
    "the named is a map": (
        {"m": rows()[..., None]},
        "m",
        r"output 'm' is \(2, 4, 1\) for 2 images, not \(B, K\)",
    ),
    "the named is a number": ({"m": 3.0}, "m", "output 'm' is float for 2 images"),
}


@pytest.mark.parametrize(("returned", "output", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(returned: Any, output: str | int | None, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Reader(output)(returned, COUNT)


def test_one_number_per_image_also_squeezed() -> None:
    assert Reader()(torch.zeros(3), 3).shape == (3, 1)
    assert Reader()({"value": torch.tensor(2.0), "map": torch.zeros(1, 2, 2)}, 1).tolist() == [[2.0]]


def test_images_that_a_network_is_not_made_for_are_named(model: Net, images: Tensor) -> None:
    with pytest.raises(UserError, match=r"refused images of shape \(\d, 1, 24, 24\): .*channels"):
        MDM(model, preset=FAST).explain(images[:, :1])


def test_targets_look_into_containers_of_maps(model: Net, images: Tensor) -> None:
    """A segmentation network of torchvision gives {"out": (B, C, H, W)}."""
    maps = Returning(
        model, lambda logits: {"aux": logits.sum(), "out": logits[:, :, None, None].expand(-1, -1, 5, 5)}
    )
    node = TargetNode(maps, [lambda output: output[1].mean(), lambda output: output[2].mean()])
    found = node(images, torch.arange(COUNT))
    assert torch.allclose(found[:, 0], model(images)[torch.arange(COUNT), torch.tensor([1, 2])])


def test_a_classifier_of_a_module_with_a_named_output(model: Net, images: Tensor) -> None:
    packed = Returning(model, lambda logits: {"a": -logits, "b": logits})
    normalise = Normalise((0.0,) * 3, (1.0,) * 3)
    found = Classifier.of_module(packed, list("wxyz"), size=24, normalise=normalise, output="b")
    assert found.classes == tuple("wxyz")
    assert torch.equal(found.module(images), model(images))
    assert found.name == "Returning"


def test_a_transformer_of_hugging_face() -> None:
    import transformers

    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    network = transformers.ViTForImageClassification(config).eval()
    images = torch.rand(COUNT, 3, 32, 32)
    bare = Returning(network, lambda found: found.logits)
    assert same(dp.MDM(bare, preset=FAST).explain(images), dp.MDM(network, preset=FAST).explain(images))
