"""How every explainer is called, whatever it does inside.

Three ways in: called like pytorch-grad-cam, `.attribute` like captum, and `explain`, which gives everything.
A subclass answers one question, `explained`; `maps_explained` makes explanations of plain maps.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.base import Explanation, Passes, warn_of_empty
from dprotonet.interpretation.given_images import Wanted, as_images
from dprotonet.interpretation.masking_task import MaskingTask, Step, check_images
from dprotonet.interpretation.nodes import ClassNode, Node
from dprotonet.interpretation.outputs import GivenTask, Model, Outputs
from dprotonet.interpretation.returned import OutputName
from dprotonet.interpretation.targets import Targets, Watching, node_of
from dprotonet.ops import unit_range

WatchStep = Callable[[Step], bool | None]  # of a finished step; True ends the optimisation


@dataclass(frozen=True, eq=False)
class Question:
    """Images (N, C, H, W) and the node to explain on them; `batch` go through the network at a time.

    `before` is how often the network saw each image already, to find the node. `on_step` hears of the steps
    of an explainer that takes steps.
    """

    images: Tensor
    node: Node
    batch: int
    before: int = 0
    on_step: WatchStep | None = None

    def task(self) -> MaskingTask:
        """For those that ask the network about masked images."""
        return MaskingTask(self.images, self.node, batch=self.batch, before=self.before)


class Explainer(ABC):
    """Explains a classifier, a module or a function of images; without one, nodes only.

    `task` says what its outputs mean (`task.Task`); None finds it in the first pass. `targets` is None for
    the predicted class, the number or name of a class, a list or tensor of one per image, pytorch-grad-cam
    targets, a function of images, or a node. Names are those of `classes`; of a regression `up` and `down`.
    Of a model that returns several tensors `output` names the answer: "logits", 1, "heads.1" (`returned`).
    """

    explains_volumes = False

    def __init__(
        self,
        model: Model | None = None,
        *,
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        batch: int = 32,
    ) -> None:
        if model is not None and (not callable(model) or isinstance(model, type)):
            kind = type(model).__name__
            raise UserError(f"{self.title} explains a module or a function of images, not {kind}")
        self.model, self.batch = model, batch
        self.outputs = None if model is None else Outputs(model, task, classes=classes, output=output)

    @property
    def classes(self) -> tuple[str, ...]:
        """What the classes are called, where that was said."""
        return () if self.outputs is None else self.outputs.classes

    @property
    def probability(self) -> bool:
        """Whether a class is watched at its probability, not its logit."""
        return False

    @property
    def title(self) -> str:
        """What messages call it."""
        return type(self).__name__

    @abstractmethod
    def explained(self, question: Question) -> list[Explanation]:
        """One explanation per image."""

    def __enter__(self) -> Self:
        return self

    def __exit__(  # noqa: B027 - nothing to override
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left on the model between calls, so there is nothing to undo."""

    def __call__(
        self,
        input_tensor: Tensor,
        targets: Targets = None,
        aug_smooth: bool = False,
        eigen_smooth: bool = False,
    ) -> np.ndarray:
        """Heatmaps (N, H, W) float32 in [0, 1], as pytorch-grad-cam gives them."""
        if aug_smooth or eigen_smooth:
            raise UserError(f"{self.title} smooths nothing afterwards; leave aug_smooth and eigen_smooth out")
        found = self.explain(input_tensor, targets)
        return torch.stack([item.heatmap for item in found]).cpu().numpy()

    def attribute(
        self,
        inputs: Tensor,
        target: Targets = None,
        *,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Tensor:
        """Attributions of the inputs' shape and device, as captum gives them; equal for all channels."""
        on_step = _progress_bar(self.title) if show_progress else None
        images = self.images(inputs)
        found = self.explain(images, target, on_step=on_step, internal_batch_size=internal_batch_size)
        heatmaps = torch.stack([item.heatmap for item in found]).unsqueeze(1)
        return heatmaps.to(images.device).repeat_interleave(images.shape[1], dim=1)

    def explain(
        self,
        images: Tensor,
        targets: Targets = None,
        *,
        on_step: WatchStep | None = None,
        internal_batch_size: int | None = None,
    ) -> list[Explanation]:
        """One explanation per image: tensors, pictures or NumPy arrays (`given_images`).

        `on_step` sees every step of an explainer that takes steps, and ends them by returning True.
        """
        batch = self.batch if internal_batch_size is None else internal_batch_size
        question = self.question(images, targets, batch=batch, on_step=on_step)
        found = self.explained(question)
        return [replace(item, facts={**item.facts, **_task_of(question.node)}) for item in found]

    def images(self, given: Any) -> Tensor:
        """Images (N, C, H, W): a tensor as it is, pictures and arrays as the model wants them."""
        images = as_images(given, Wanted.by(self.model))
        if isinstance(given, Tensor) or not isinstance(self.model, nn.Module):
            return images
        held = next(self.model.parameters(), None)
        return images if held is None else images.to(held.device)

    def question(
        self, images: Tensor, targets: Targets, *, batch: int, on_step: WatchStep | None = None
    ) -> Question:
        """Images and targets, checked."""
        images = self.images(images)
        check_images(images, batch)
        if images.ndim == 5 and not self.explains_volumes:
            raise UserError(
                f"{self.title} explains images (N, C, H, W), not volumes {tuple(images.shape)}; "
                "MDM explains both"
            )
        watching = Watching(self.title, self.outputs, self.probability)
        if targets is None:
            labels = ClassNode.predicted(watching.classifier(), images, batch=batch).labels
            node: Node = ClassNode(watching.classifier(), labels, probability=self.probability)
        else:
            node = node_of(targets, len(images), watching)
        node.check(len(images))
        return Question(images, node, batch, int(targets is None), on_step)


def maps_explained(
    question: Question,
    raw: Tensor,
    *,
    passes: Passes,
    facts: Mapping[str, Any],
    heatmaps: Tensor | None = None,
    sides: Tensor | None = None,
) -> list[Explanation]:
    """Raw maps (N, H, W) as explanations; the heatmaps are the same in [0, 1] unless they are given."""
    heat = unit_range(raw) if heatmaps is None else heatmaps
    warn_of_empty(heat, question.node.name)
    return [
        Explanation(
            heatmap=heat[row],
            raw=raw[row],
            masks={},
            loss=(),
            passes=passes,
            node=question.node.name(row),
            image=question.images[row].detach(),
            facts=facts,
            side=None if sides is None else sides[row],
        )
        for row in range(len(raw))
    ]


def signed_explained(
    question: Question, raw: Tensor, *, passes: Passes, facts: Mapping[str, Any], outliers: float = 0.0
) -> list[Explanation]:
    """Raw maps (N, H, W) in which below 0 speaks against the node; the heatmap shows what speaks for it.

    Where nothing does, it shows what speaks least against it. The hottest `outliers`, a share of the pixels,
    are equally hot in it (`unit_range_of_most`).
    """
    speaks = (raw > 0).flatten(1).any(dim=1).view(-1, 1, 1)
    heatmaps = unit_range_of_most(raw.clamp_min(0).where(speaks, raw), outliers)
    return maps_explained(question, raw, passes=passes, facts=facts, heatmaps=heatmaps, sides=raw)


def unit_range_of_most(maps: Tensor, outliers: float) -> Tensor:
    """Maps (N, H, W) in [0, 1], a share of the hottest pixels all 1: grains would darken the rest."""
    place = max(1, round((1 - outliers) * maps[0].numel()))
    top = maps.flatten(1).kthvalue(place, dim=1).values.view(-1, 1, 1)
    return unit_range(maps.minimum(top.where(top > maps.amin(dim=(1, 2), keepdim=True), torch.inf)))


def _task_of(node: Node) -> dict[str, Any]:
    return {"task": node.outputs.kind} if isinstance(node, ClassNode) and node.outputs.kind else {}


def _progress_bar(title: str) -> WatchStep:
    from tqdm.auto import tqdm

    bar = tqdm(desc=title, unit="step")

    def advance(step: Step) -> None:
        bar.total = step.total
        bar.update(step.number - bar.n)
        bar.set_postfix(loss=f"{float(step.loss.mean()):.3f}")
        if step.number == step.total:
            bar.close()

    return advance
