"""What outputs mean: found in the pass that is needed anyway, and turned into one column per class."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.nodes import ClassNode
from dprotonet.interpretation.outputs import Outputs
from dprotonet.interpretation.task import Task

IMAGES = torch.randn(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
ROWS = torch.arange(6)


class Ends(nn.Module):
    """A gate that is a sigmoid in the middle, `outputs` numbers, and some ending."""

    def __init__(self, outputs: int, ending: Callable[[Tensor], Any] = lambda logits: logits) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.ending, self.passes = nn.Linear(3, outputs), ending, 0

    def logits(self, images: Tensor) -> Tensor:
        pooled = images.mean(dim=(2, 3))
        logits: Tensor = 10 * self.head(pooled * pooled.sigmoid())
        return logits

    def forward(self, images: Tensor) -> Any:
        self.passes += len(images)
        return self.ending(self.logits(images))


def by_numpy(logits: Tensor) -> Tensor:
    """As a session outside PyTorch would give it."""
    return torch.from_numpy(logits.detach().softmax(dim=1).numpy().copy())


FOUND: dict[str, tuple[int, Callable[[Tensor], Any], Task]] = {
    "logits": (3, lambda logits: logits, Task("single")),
    "logits, wrapped": (3, lambda logits: (logits, None), Task("single")),
    "softmax": (3, lambda logits: logits.softmax(dim=1), Task("single", True)),
    "softmax module": (3, nn.Softmax(dim=1), Task("single", True)),
    "softmax, half precision": (3, lambda logits: logits.half().softmax(1).float(), Task("single", True)),
    "softmax, the last dropped": (3, lambda logits: logits.softmax(dim=1)[:, :2], Task("single", True)),
    "softmax outside": (3, by_numpy, Task("single", True)),
    "log softmax": (3, lambda logits: logits.log_softmax(dim=1), Task("single")),
    "softmax, then scaled": (3, lambda logits: logits.softmax(dim=1) * 7, Task("single")),
    "sigmoids": (3, lambda logits: logits.sigmoid(), Task("multilabel", True)),
    "sigmoids, half precision": (3, lambda logits: logits.half().sigmoid().float(), Task("multilabel", True)),
    "sigmoid module": (3, nn.Sigmoid(), Task("multilabel", True)),
    "sigmoids, then scaled": (3, lambda logits: logits.sigmoid() * 7, Task("single")),
    "sigmoids, then scaled in place": (3, lambda logits: logits.sigmoid().mul_(7), Task("single")),
    "one": (1, lambda logits: logits, Task("binary")),
    "one each": (1, lambda logits: logits[:, 0], Task("binary")),
    "one sigmoid": (1, lambda logits: logits.sigmoid().squeeze(1), Task("binary", True)),
    "one sigmoid, scaled": (1, lambda logits: 100 * logits.sigmoid(), Task("binary")),
}  # fmt: skip


@pytest.mark.parametrize("gradients", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", FOUND)
def test_the_task_is_found_in_the_first_pass(kind: str, gradients: Callable[[], Any]) -> None:
    count, ending, wanted = FOUND[kind]
    model = Ends(count, ending).eval()
    outputs = Outputs(model)
    with gradients():
        raw = outputs.raw(IMAGES)
    assert outputs.task == wanted
    assert model.passes == len(IMAGES)
    assert raw.shape[1] == wanted.columns(raw).shape[1] / (2 if count == 1 else 1)


@pytest.mark.parametrize("kind", FOUND)
def test_probabilities_are_those_of_the_model_whatever_it_ends_with(kind: str) -> None:
    count, ending, task = FOUND[kind]
    if "scaled" in kind:  # whose logits are others
        return
    model = Ends(count, ending).eval()
    logits = model.logits(IMAGES)
    single = logits.softmax(dim=1)[:, : 2 if "dropped" in kind else 3]
    wanted = {
        "single": single,
        "multilabel": logits.sigmoid(),
        "binary": torch.cat([-logits, logits], 1).sigmoid(),
    }
    found = Outputs(model).watched(IMAGES)
    assert torch.allclose(found, wanted[task.kind], atol=1e-3 if "half" in kind else 1e-6)
    assert torch.equal(Outputs(model).predicted(IMAGES), found.argmax(dim=1))
    for label in range(found.shape[1]):
        node = ClassNode(model, [label] * 6)
        assert torch.allclose(node(IMAGES, ROWS).squeeze(1), found[:, label])


@pytest.mark.parametrize("ending", ["one", "one sigmoid", "sigmoids", "logits"])
def test_scores_are_logits_with_the_sign_of_the_class(ending: str) -> None:
    count, function, task = FOUND[ending]
    model = Ends(count, function).eval()
    logits = model.logits(IMAGES)
    wanted = torch.cat([-logits, logits], dim=1) if count == 1 else logits
    assert torch.allclose(Outputs(model).scores(IMAGES), wanted, atol=1e-3)
    assert task.kind != "single" or torch.equal(Outputs(model).scores(IMAGES), logits)


def test_log_probabilities_stand_for_logits_after_a_softmax() -> None:
    model = Ends(3, lambda logits: logits.softmax(dim=1)).eval()
    wanted = model.logits(IMAGES).log_softmax(dim=1)
    assert torch.allclose(Outputs(model).scores(IMAGES), wanted, atol=1e-4)
    certain = Task("single", True).scores(torch.tensor([[1.0, 0.0]]))
    assert certain.isfinite().all()
    assert Task("binary", True).scores(torch.tensor([[1.0], [0.0]])).isfinite().all()


def test_a_value_stays_a_value() -> None:
    for ending in (lambda logits: logits, lambda logits: logits.sigmoid()):
        model = Ends(1, ending).eval()
        outputs = Outputs(model, "regression")
        value = model(IMAGES)
        assert torch.equal(outputs.watched(IMAGES), torch.cat([value, -value], dim=1))
        assert torch.equal(outputs.scores(IMAGES), outputs.watched(IMAGES))
        assert outputs.predicted(IMAGES).tolist() == [0] * 6  # up
        assert outputs.task == Task("regression")


def test_a_task_object_is_taken_at_its_word() -> None:
    model = Ends(1)  # whose probabilities PyTorch cannot see
    given = Outputs(lambda images: model.logits(images).sigmoid() + 0, Task("binary", probabilities=True))
    assert torch.allclose(given.watched(IMAGES)[:, 1:], model.logits(IMAGES).sigmoid())
    with pytest.raises(UserError, match="its task is not 'single'"):
        Outputs(model, Task()).raw(IMAGES)
    with pytest.raises(UserError, match="unknown task 'many'"):
        Task("many")  # type: ignore[arg-type]


def test_names() -> None:
    assert Task("binary").names(("ill",)) == ("not ill", "ill")
    assert Task("binary").names(("healthy", "ill")) == ("healthy", "ill")
    assert Task("regression").names(("age",)) == ("up", "down")
    assert Task("multilabel").names(("cat", "dog")) == ("cat", "dog")
    with pytest.raises(UserError, match="two classes, and 3 are named"):
        Task("binary").names(("a", "b", "c"))
