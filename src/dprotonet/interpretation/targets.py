"""What a caller means by `targets`, as the node that is watched.

Code written for pytorch-grad-cam gives target objects, code written for captum class numbers; a class may
also be named, and whatever else can be watched is a node or a function of images. What is none of these is
refused in a sentence, and nothing is cut to length.
"""

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.interpretation.nodes import CallableNode, ClassNode, Node, TargetNode, module_of
from dprotonet.interpretation.outputs import Model, Outputs
from dprotonet.interpretation.task import DIRECTIONS

Targets = Any  # whatever ACCEPTED says

ACCEPTED = (
    "give nothing for the predicted class, the number or name of a class, a list or tensor with one of them "
    "per image, pytorch-grad-cam targets, a function of images, or a node"
)
_NO_NUMBER = f"a regression has no classes: give '{DIRECTIONS[0]}' (nothing is the same) or '{DIRECTIONS[1]}'"
_CLASS_TARGETS = ("ClassifierOutputTarget", "ClassifierOutputSoftmaxTarget")  # grad-cam's that name a class


class Watching(NamedTuple):
    """Who watches: an explainer, the outputs of its model, and whether it watches probabilities."""

    name: str
    outputs: Outputs | None
    probability: bool

    def classifier(self) -> Outputs:
        if self.outputs is None:
            raise UserError(f"this {self.name} has no model; give it one, or pass explain() a node")
        return self.outputs

    @property
    def model(self) -> Model | None:
        return None if self.outputs is None else self.outputs.model

    @property
    def classes(self) -> Sequence[str]:
        """What targets may be called."""
        return self.outputs.names() if self.outputs else ()

    @property
    def is_regression(self) -> bool:
        return self.outputs is not None and self.outputs.kind == "regression"


def node_of(targets: Targets, count: int, watching: Watching) -> Node:
    """The node that `targets`, not None, mean for `count` images."""
    if isinstance(targets, Node):
        return targets
    if isinstance(targets, list | tuple):
        return _listed(targets, watching)
    if isinstance(targets, np.ndarray):
        return _of_array(targets, count, watching)
    if isinstance(targets, Tensor):
        return _classes(_numbers(targets, count, watching), watching)
    if isinstance(targets, int | str | np.integer) or _is_of_output(targets):
        return _listed([targets] * count, watching)
    if callable(targets) and not isinstance(targets, type):
        return CallableNode(targets, model=module_of(watching.model))
    raise UserError(f"{_shown(targets)} is no target; {ACCEPTED}")


def _listed(targets: Sequence[Any], watching: Watching) -> Node:
    """One target for each image."""
    if not targets:
        raise UserError(f"the list of targets is empty; {ACCEPTED}")
    if any(isinstance(target, Node) for target in targets):
        raise UserError("a node serves all images of a call: give it alone, not in a list")
    functions = [target for target in targets if _is_function(target)]
    if not functions:
        as_outputs = any(type(target).__name__ in _CLASS_TARGETS for target in targets)
        return _classes([_label(target, watching) for target in targets], watching, as_outputs=as_outputs)
    if len(functions) < len(targets):
        other = next(target for target in targets if not _is_function(target))
        raise UserError(f"targets mix functions with {_shown(other)}; {ACCEPTED}")
    return TargetNode(watching.classifier().model, targets)


def _of_array(targets: np.ndarray, count: int, watching: Watching) -> Node:
    """Numbers of any layout, read backwards or in foreign byte order too; what is no number, as a list."""
    if targets.dtype.kind not in "iufcb":
        return node_of(targets.tolist(), count, watching)
    own = np.ascontiguousarray(targets, dtype=targets.dtype.newbyteorder("="))
    return _classes(_numbers(torch.as_tensor(own), count, watching), watching)


def _classes(labels: Sequence[int] | Tensor, watching: Watching, *, as_outputs: bool = False) -> ClassNode:
    return ClassNode(
        watching.classifier(), labels, probability=watching.probability, numbered_as_outputs=as_outputs
    )


def _numbers(given: Tensor, count: int, watching: Watching) -> Tensor:
    """Class numbers (N,) of a tensor; a single number is that of every image."""
    if watching.is_regression:
        raise UserError(_NO_NUMBER)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise UserError(f"targets are of type {given.dtype}, and classes are whole numbers; {ACCEPTED}")
    if given.ndim > 1 and given.numel() != len(given):
        raise UserError(f"targets have the shape {tuple(given.shape)}; give one class per image, (N,)")
    return given.reshape(1).expand(count) if given.numel() == 1 else given.reshape(-1)


def _label(target: Any, watching: Watching) -> int:
    """The number of a class."""
    if isinstance(target, str):
        return _named(target, watching.classes)
    if isinstance(target, Tensor | np.ndarray) and target.ndim == 0:
        target = target.item()
    category = _category(target)
    if category is None:
        raise UserError(f"{_shown(target)} is no class; {ACCEPTED}")
    if watching.is_regression and type(target).__name__ not in _CLASS_TARGETS:
        raise UserError(_NO_NUMBER)
    return category


def _named(name: str, classes: Sequence[str]) -> int:
    if not classes:
        raise UserError(
            f"the class '{name}' is not known by its name: give the explainer classes=[…], or a number"
        )
    if name not in classes:
        close = get_close_matches(name, classes, n=1)
        hint = f"did you mean '{close[0]}'? " if close else ""
        raise UserError(f"there is no class '{name}'; {hint}there are {len(classes)}, from '{classes[0]}' on")
    return list(classes).index(name)


def _category(target: Any) -> int | None:
    """The class that a number, or one of grad-cam's targets, stands for."""
    number = target.category if type(target).__name__ in _CLASS_TARGETS else target
    return int(number) if isinstance(number, int | np.integer) and not isinstance(number, bool) else None


def _is_function(target: Any) -> bool:
    return callable(target) and not isinstance(target, type) and _category(target) is None


def _is_of_output(target: Any) -> bool:
    """Whether it is one of grad-cam's targets, which look at a row of the model's output."""
    kind = type(target)
    return kind.__name__ in _CLASS_TARGETS or kind.__module__.startswith("pytorch_grad_cam.")


def _shown(target: Any) -> str:
    text = repr(target)
    return f"{text if len(text) <= 60 else text[:57] + '…'} ({type(target).__name__})"
