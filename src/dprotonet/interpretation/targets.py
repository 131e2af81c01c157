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
from dprotonet.interpretation.nodes import CallableNode, ClassNode, Model, Node, TargetNode, module_of

Targets = Any  # whatever ACCEPTED says

ACCEPTED = (
    "give nothing for the predicted class, the number or name of a class, a list or tensor with one of them "
    "per image, pytorch-grad-cam targets, a function of images, or a node"
)
_CLASS_TARGETS = ("ClassifierOutputTarget", "ClassifierOutputSoftmaxTarget")  # grad-cam's that name a class


class Watching(NamedTuple):
    """Who watches: an explainer, its model, whether it watches probabilities, and what classes are called."""

    name: str
    model: Model | None
    probability: bool
    classes: Sequence[str] = ()

    def classifier(self) -> Model:
        if self.model is None:
            raise UserError(f"this {self.name} has no model; give it one, or pass explain() a node")
        return self.model


def node_of(targets: Targets, count: int, watching: Watching) -> Node:
    """The node that `targets`, not None, mean for `count` images."""
    if isinstance(targets, Node):
        return targets
    if isinstance(targets, list | tuple):
        return _listed(targets, watching)
    if isinstance(targets, np.ndarray):
        return _of_array(targets, count, watching)
    if isinstance(targets, Tensor):
        return _classes(_numbers(targets, count), watching)
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
        return _classes([_label(target, watching.classes) for target in targets], watching)
    if len(functions) < len(targets):
        other = next(target for target in targets if not _is_function(target))
        raise UserError(f"targets mix functions with {_shown(other)}; {ACCEPTED}")
    return TargetNode(watching.classifier(), targets)


def _of_array(targets: np.ndarray, count: int, watching: Watching) -> Node:
    """Numbers of any layout, read backwards or in foreign byte order too; what is no number, as a list."""
    if targets.dtype.kind not in "iufcb":
        return node_of(targets.tolist(), count, watching)
    own = np.ascontiguousarray(targets, dtype=targets.dtype.newbyteorder("="))
    return _classes(_numbers(torch.as_tensor(own), count), watching)


def _classes(labels: Sequence[int] | Tensor, watching: Watching) -> ClassNode:
    return ClassNode(watching.classifier(), labels, probability=watching.probability)


def _numbers(given: Tensor, count: int) -> Tensor:
    """Class numbers (N,) of a tensor; a single number is that of every image."""
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise UserError(f"targets are of type {given.dtype}, and classes are whole numbers; {ACCEPTED}")
    if given.ndim > 1 and given.numel() != len(given):
        raise UserError(f"targets have the shape {tuple(given.shape)}; give one class per image, (N,)")
    return given.reshape(1).expand(count) if given.numel() == 1 else given.reshape(-1)


def _label(target: Any, classes: Sequence[str]) -> int:
    """The number of a class."""
    if isinstance(target, str):
        return _named(target, classes)
    if isinstance(target, Tensor | np.ndarray) and target.ndim == 0:
        target = target.item()
    category = _category(target)
    if category is None:
        raise UserError(f"{_shown(target)} is no class; {ACCEPTED}")
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
