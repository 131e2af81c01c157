"""Detection nodes: what is watched while the image is masked.

A node turns images into activations (B, K): one number for a class, a vector for a region. Rows say which of
the explained images each masked image came from, so that every image of a batch may have its own target.
The network is reached through callables only; nothing here knows what a DProtoNet is.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.borrowed import borrowed
from dprotonet.interpretation.layout import layout_of
from dprotonet.interpretation.outputs import GivenTask, Model, Outputs
from dprotonet.interpretation.returned import per_image
from dprotonet.interpretation.task import DIRECTIONS

Forward = Callable[[Tensor], Tensor]
Guess = Callable[[Tensor, Tensor], Tensor]  # images (B, C, H, W) and rows (B,) to maps (B, h, w)
Similarity = Callable[[Tensor, Tensor], Tensor]  # vectors (B, R, D), prototypes (P, D) to (B, R, P)


@runtime_checkable
class Node(Protocol):
    """Activations of masked images, and what masking should keep of them.

    A node that knows where it looks may offer that by `guess(images, rows)`, as RegionNode does; it need not.
    Of a node with `rises` true more is always more, whatever a blank image gives (`KeptActivation`).
    """

    model: nn.Module | None  # to be borrowed while explaining, if there is one

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        """Activations (B, K) of images (B, C, H, W) that derive from the explained images `rows` (B,)."""
        ...

    def target(self, rows: Tensor) -> Tensor | None:
        """The activations (B, K) to keep; None for those of the unmasked images themselves."""
        ...

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """One number per image (B,) that grows with the node, for a first guess by its gradient."""
        ...

    def name(self, row: int) -> str: ...

    def check(self, count: int) -> None:
        """Raise a UserError unless the node has a target for each of `count` images."""
        ...


class OwnActivation(ABC):
    """A node whose target is what the image itself activates."""

    @abstractmethod
    def __call__(self, images: Tensor, rows: Tensor) -> Tensor: ...

    def target(self, rows: Tensor) -> Tensor | None:
        return None

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """The activation; a vector's agreement with itself, whose gradient is the vector's own."""
        values = self(images, rows)
        return values.squeeze(1) if values.shape[1] == 1 else (values * values.detach()).sum(dim=1)


class ClassNode(OwnActivation):
    """The probability (or logit) of one class per image; `model`, module or function: images to logits.

    What classes there are, the `task` says (`task.Task`): with one output class 1 is what its logit speaks
    for and class 0 the rest; of a regression class 0 is `up` and class 1 `down`. An explainer gives its
    `Outputs` instead of the model, so that the task is found only once.
    """

    rises = True

    def __init__(
        self,
        model: Model | Outputs,
        labels: Sequence[int] | Tensor,
        *,
        probability: bool = True,
        task: GivenTask = None,
        numbered_as_outputs: bool = False,
    ) -> None:
        self.numbered_as_outputs = numbered_as_outputs  # as grad-cam counts, who knows no class but an output
        self.outputs = model if isinstance(model, Outputs) else Outputs(model, task)
        self.classifier, self.model = self.outputs.model, module_of(self.outputs.model)
        given = torch.as_tensor(labels).reshape(-1).cpu()
        if len(given) and (given.is_floating_point() or given.dtype == torch.bool):
            raise UserError(f"classes are whole numbers, not {given.tolist()}")
        self.labels = given.long()
        self.probability = probability

    @classmethod
    def predicted(cls, model: Model | Outputs, images: Tensor, *, batch: int = 32) -> "ClassNode":
        """The class that the model gives each image."""
        outputs = model if isinstance(model, Outputs) else Outputs(model)
        module = module_of(outputs.model)
        with borrowed(module), torch.no_grad():
            labels = [outputs.predicted(block).cpu() for block in images.to(precision(module)).split(batch)]
        return cls(outputs, torch.cat(labels))

    def name(self, row: int) -> str:
        if self.outputs.kind == "regression":
            return f"value {DIRECTIONS[int(self.labels[row])]}"
        return f"{'probability' if self.probability else 'logit'} of class {int(self.labels[row])}"

    @property
    def differs(self) -> bool:
        """Whether parts of an image may speak for it and against it, so that they cancel: of a value."""
        return self.outputs.kind == "regression"

    def check(self, count: int) -> None:
        _one_each("target", len(self.labels), count)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        outputs = self.outputs
        return self._own(outputs.watched(images) if self.probability else outputs.scores(images), rows)

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """What the network offers for it by `agreement(images, label)`, (B,); or else the logit."""
        agreement = getattr(self.classifier, "agreement", None)
        if callable(agreement):
            offered: Tensor = agreement(images, self.labels.to(rows.device)[rows])
            return offered
        return self.logit(images, rows)

    def logit(self, images: Tensor, rows: Tensor) -> Tensor:
        """(B,): a probability also falls by what speaks for other classes, and hardly moves near 1."""
        return self._own(self.outputs.scores(images), rows).squeeze(1)

    def _own(self, columns: Tensor, rows: Tensor) -> Tensor:
        """Of all classes' columns (B, C) that of each image, (B, 1)."""
        labels = self.labels[rows.cpu()]
        if self.numbered_as_outputs and self.outputs.kind in ("binary", "regression"):
            raise UserError(
                "ClassifierOutputTarget names an output, and this model has only one; give class 1 or 0 of a "
                "binary classifier, 'up' or 'down' of a regression"
            )
        check_labels(labels, columns)
        return columns.gather(1, labels.to(columns.device).unsqueeze(1))


class TargetNode(OwnActivation):
    """pytorch-grad-cam's target objects, one per image: callables from a model's output row to a number."""

    rises = True

    def __init__(self, model: Model, targets: Sequence[Callable[[Any], Tensor]]) -> None:
        self.classifier, self.model = model, module_of(model)
        self.targets = list(targets)

    def name(self, row: int) -> str:
        return type(self.targets[row]).__name__

    def check(self, count: int) -> None:
        _one_each("target", len(self.targets), count)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        outputs = per_image(self.classifier(images), len(images))
        if not isinstance(outputs, Tensor | list | tuple) or len(outputs) != len(images):
            raise UserError(
                f"the model gave {type(outputs).__name__} for {len(images)} images, not one output per image"
            )
        pairs = zip(rows.tolist(), outputs, strict=True)
        return torch.stack([self.value(row, output) for row, output in pairs]).unsqueeze(1)

    def value(self, row: int, output: Any) -> Tensor:
        """The number () that the target of an explained image makes of an output."""
        value = torch.as_tensor(self.targets[row](output)).float()
        if value.numel() != 1:
            raise UserError(f"{self.name(row)} gave {tuple(value.shape)}; a target must give one number")
        return value.reshape(())


class CallableNode(OwnActivation):
    """Any differentiable function of images: (B, C, H, W) to (B,) or (B, …)."""

    def __init__(self, function: Forward, *, model: nn.Module | None = None, name: str = "") -> None:
        self.function, self.model = function, _owner(function, model)
        self._name = name or getattr(function, "__name__", type(function).__name__)

    def name(self, row: int) -> str:
        return self._name

    def check(self, count: int) -> None:
        """A function serves any number of images."""

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        values = self.function(images)
        if not isinstance(values, Tensor) or values.ndim == 0 or len(values) != len(images):
            kind = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise UserError(
                f"{self._name} gave {kind} for {len(images)} images; it must give a tensor (B, …)"
            )
        return values.float().flatten(1) if values.ndim > 1 else values.float().unsqueeze(1)


class ArrayNode(OwnActivation):
    """A function from NumPy images to NumPy activations, that has no gradient: for the `sampled` preset.

    An ONNX session: `ArrayNode(lambda x: session.run(None, {name: x})[0][:, 281])`.
    """

    def __init__(self, function: Callable[[np.ndarray], Any], *, name: str = "") -> None:
        self.function, self.model = function, None
        self._name = name or getattr(function, "__name__", type(function).__name__)

    def name(self, row: int) -> str:
        return self._name

    def check(self, count: int) -> None:
        """A function serves any number of images."""

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        values = np.asarray(self.function(images.detach().cpu().numpy()), dtype=np.float32)
        if values.ndim == 0 or len(values) != len(images):
            raise UserError(f"{self._name} gave {values.shape} for {len(images)} images; it must give (B, …)")
        return torch.from_numpy(values.reshape(len(images), -1)).to(images.device)


class ModuleNode(OwnActivation):
    """What a module inside the model puts out: one channel's mean over space, or the whole output."""

    def __init__(self, model: nn.Module, module: str, *, channel: int | None = None) -> None:
        known = dict(model.named_modules())
        if module not in known or not module:
            raise UserError(f"the model has no module '{module}'; it has e.g. {', '.join(list(known)[1:6])}")
        self.model: nn.Module | None = model
        self.module, self.channel, self._inner = module, channel, known[module]

    def name(self, row: int) -> str:
        return f"{self.module}" + ("" if self.channel is None else f"[{self.channel}]")

    def check(self, count: int) -> None:
        """A module serves any number of images."""

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        assert self.model is not None
        seen: list[Tensor] = []

        def remember(_module: nn.Module, _inputs: object, output: object) -> None:
            if isinstance(output, Tensor):
                seen.append(output.clone())  # what comes after it may work in place

        handle = self._inner.register_forward_hook(remember)
        try:
            self.model(images)
        finally:
            handle.remove()
        if not seen or seen[-1].ndim == 0 or len(seen[-1]) != len(images):
            raise UserError(f"module {self.module} gives no tensor (B, …) in a forward pass; name another")
        return self._watched(seen[-1].float(), tuple(images.shape[2:]))

    def _watched(self, output: Tensor, size: tuple[int, ...]) -> Tensor:
        if self.channel is None:
            return output.reshape(len(output), -1)
        layout = layout_of(output, size, len(output))
        channels = output if layout is None else layout.channels_first(output)
        if channels.ndim < 2 or not 0 <= self.channel < channels.shape[1]:
            raise UserError(f"module {self.module} has no channel {self.channel}: {tuple(output.shape)}")
        return channels[:, self.channel].reshape(len(output), -1).mean(dim=1, keepdim=True)


class RegionNode:
    """The region vector z_j of each image that its prototype was found in; j stays as the image is masked.

    `regions`: images to (B, R, D); `region` (N,): the j of each image, which the network's own search found.
    Kept is z_j(x) itself for a prototype in an input image, Eq. (14), or `target` (N, D), the prototype p,
    for one in its source, Eq. (15). `maps`: images to (B, R, h, w), where each region lies; only for regions
    that follow the image.
    """

    def __init__(
        self,
        regions: Forward,
        region: Tensor,
        *,
        target: Tensor | None = None,
        maps: Forward | None = None,
        model: nn.Module | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.model = _owner(regions, model)
        self.regions, self.region, self._target, self._names = regions, region, target, list(names)
        self.maps = maps

    def name(self, row: int) -> str:
        return self._names[row] if self._names else f"region {int(self.region[row])}"

    def check(self, count: int) -> None:
        _one_each("prototype", len(self.region), count)

    def target(self, rows: Tensor) -> Tensor | None:
        return None if self._target is None else self._target.to(rows.device)[rows]

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """Agreement with the vector to be kept."""
        values, fixed = self(images, rows), self.target(rows)
        return (values * (values.detach() if fixed is None else fixed)).sum(dim=1)

    def guess(self, images: Tensor, rows: Tensor) -> Tensor | None:
        """Where the region lies in each image, (B, h, w), for masks to start from; None without `maps`."""
        return None if self.maps is None else self._own(self.maps(images), rows)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        return self._own(self.regions(images), rows)

    def _own(self, values: Tensor, rows: Tensor) -> Tensor:
        """Of all regions' (B, R, …) that of each image, (B, …)."""
        here = torch.arange(len(values), device=values.device)
        return values.float()[here, self.region.to(rows.device)[rows]]


class PrototypeNode(OwnActivation):
    """The score of one prototype per image, by number: its greatest similarity to a region, as in Eq. (2).

    `similarity`: region vectors (B, R, D) and prototypes (P, D) to (B, R, P).
    """

    def __init__(
        self,
        regions: Forward,
        similarity: Similarity,
        prototypes: Tensor,
        numbers: Sequence[int] | Tensor,
        *,
        model: nn.Module | None = None,
    ) -> None:
        self.model = _owner(regions, model)
        self.regions, self.similarity, self.prototypes = regions, similarity, prototypes.detach().float()
        self.numbers = torch.as_tensor(numbers, dtype=torch.long).reshape(-1).cpu()
        for number in self.numbers.tolist():
            if not 0 <= number < len(prototypes):
                raise UserError(f"there is no prototype {number}; they are 0 to {len(prototypes) - 1}")

    def name(self, row: int) -> str:
        return f"prototype {int(self.numbers[row])}"

    def check(self, count: int) -> None:
        _one_each("prototype", len(self.numbers), count)

    def __call__(self, images: Tensor, rows: Tensor) -> Tensor:
        return torch.cat([similar.amax(dim=1) for _, _, similar in self._compared(images, rows)])

    def direction(self, images: Tensor, rows: Tensor) -> Tensor:
        """Agreement of the most similar region with the prototype.

        Not the similarity: that of a distance is flat where the prototype is met, and says nothing there.
        """
        agreements = [
            (vectors[0, int(similar.argmax())] * wanted[0]).sum()
            for vectors, wanted, similar in self._compared(images, rows)
        ]
        return torch.stack(agreements)

    def _compared(self, images: Tensor, rows: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Image by image its vectors (1, R, D), its prototype (1, D), and their similarities (1, R, 1)."""
        vectors = self.regions(images).float()
        wanted = self.prototypes.to(vectors.device)[self.numbers.to(rows.device)[rows].to(vectors.device)]
        for pair in zip(vectors.split(1), wanted.split(1), strict=True):
            yield *pair, self.similarity(*pair)


def check_labels(labels: Tensor, columns: Tensor) -> None:
    """A UserError unless labels are of classes that have a column in (B, C)."""
    wrong = [int(label) for label in labels if not 0 <= int(label) < columns.shape[1]]
    if wrong:
        raise UserError(f"there is no class {wrong[0]}; the model has classes 0 to {columns.shape[1] - 1}")


def precision(model: nn.Module | None) -> torch.dtype:
    """The type of numbers that a model computes with; float32 if it does not say."""
    held = model.parameters() if model is not None else ()
    return next((item.dtype for item in held if item.is_floating_point()), torch.float32)


def module_of(model: Model | None) -> nn.Module | None:
    """The model if it is a module, which has to be borrowed; a function is only called."""
    return model if isinstance(model, nn.Module) else None


def _owner(function: Forward, model: nn.Module | None) -> nn.Module | None:
    return function if model is None and isinstance(function, nn.Module) else model


def _one_each(what: str, given: int, images: int) -> None:
    if given != images:
        raise UserError(f"{given} {what}s for {images} images; give exactly one {what} per image")
