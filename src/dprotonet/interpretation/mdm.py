"""The MDM decoder: a heatmap for any node of any network (Section 3.4).

Three ways in: called like pytorch-grad-cam, `.attribute` like captum, and `explain`, which gives everything.
All three run one loop, `steps`, that yields; progress, preview and early stopping are its callers. How the
masks are learned is the preset's affair.
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import version
from types import TracebackType
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.algorithm1 import Algorithm1
from dprotonet.interpretation.base import Explanation, warn_of_empty
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.masking_task import MaskingTask, Step, check_images
from dprotonet.interpretation.nodes import CallableNode, ClassNode, Node, TargetNode
from dprotonet.interpretation.ranked_masks import RankedMasks
from dprotonet.interpretation.sampled import SampledMasks

PRESETS: dict[str, "Preset"] = {
    "paper": Algorithm1(),
    "fast": RankedMasks(),
    "best": RankedMasks(iterations=60, rate=0.04),
    "sampled": SampledMasks(),
}
_CLASS_TARGETS = ("ClassifierOutputTarget", "ClassifierOutputSoftmaxTarget")  # grad-cam's that name a class
_ROUNDING = 1e-5  # a raw map that varies less, relative to its values, varies by rounding only
Target = Callable[[Any], Tensor]
OnStep = Callable[[Step], bool | None]


class Preset(Protocol):
    """A way of learning masks, with all its numbers; a frozen dataclass."""

    @property
    def probability(self) -> bool:
        """Whether a class is watched at its probability, not its logit."""
        ...

    def steps(self, task: MaskingTask) -> Generator[Step]: ...

    def heatmap(self, task: MaskingTask, raw: Tensor) -> Tensor:
        """Finished maps (N, H, W) in [0, 1] from raw ones."""
        ...

    def above(self, raw: Tensor) -> Tensor | None:
        """Where raw maps reach the preset's own threshold, bool of their shape; None if it has none."""
        ...


def preset(name: str, **changes: Any) -> Preset:
    """A preset by name, with any of its values changed: `preset("fast", iterations=15)`."""
    known = asdict(_named(name))  # type: ignore[call-overload]
    unknown = [key for key in changes if key not in known]
    if unknown:
        raise UserError(f"preset '{name}' has no value '{unknown[0]}'; it has: {', '.join(known)}")
    return replace(PRESETS[name], **changes)  # type: ignore[type-var]


def _named(name: str) -> Preset:
    if name not in PRESETS:
        raise UserError(f"unknown preset '{name}'; known: {', '.join(PRESETS)}")
    return PRESETS[name]


def preset_name(given: Preset) -> str:
    """The nearest preset and what differs from it, "fast, iterations=15"; "custom" for a way of one's own."""
    own = asdict(given)  # type: ignore[call-overload]
    alike = {
        name: asdict(known)  # type: ignore[call-overload]
        for name, known in PRESETS.items()
        if type(known) is type(given)
    }
    changes = {
        name: [f"{key}={value}" for key, value in own.items() if value != known[key]]
        for name, known in alike.items()
    }
    if not changes:
        return "custom"
    nearest = min(changes, key=lambda name: len(changes[name]))
    return ", ".join([nearest, *changes[nearest]])


class MDM:
    """Explains a model; give it a module, or nothing and a node of your own with every call.

    `target_layers` is accepted for the sake of code written for CAMs and not needed.
    """

    def __init__(
        self,
        model: nn.Module | None = None,
        target_layers: Sequence[nn.Module] | None = None,
        *,
        preset: str | Preset = "fast",
        internal_batch_size: int = 32,
    ) -> None:
        self.model = model
        self.name = preset if isinstance(preset, str) else preset_name(preset)
        self.preset = _named(preset) if isinstance(preset, str) else preset
        self.internal_batch_size = internal_batch_size

    def __enter__(self) -> "MDM":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left on the model between calls, so there is nothing to undo."""

    # ── three ways in ──

    def __call__(
        self,
        input_tensor: Tensor,
        targets: Sequence[Target] | None = None,
        aug_smooth: bool = False,
        eigen_smooth: bool = False,
    ) -> np.ndarray:
        """Heatmaps (N, H, W) float32 in [0, 1], as pytorch-grad-cam gives them."""
        if aug_smooth or eigen_smooth:
            raise UserError("MDM smooths nothing afterwards; leave aug_smooth and eigen_smooth out")
        found = self.explain(input_tensor, self._node(input_tensor, targets))
        return torch.stack([item.heatmap for item in found]).cpu().numpy()

    def attribute(
        self,
        inputs: Tensor,
        target: int | Sequence[int] | Tensor | None = None,
        *,
        internal_batch_size: int | None = None,
        show_progress: bool = False,
    ) -> Tensor:
        """Attributions of the inputs' shape and device, as captum gives them; equal for all channels."""
        labels = [target] * len(inputs) if isinstance(target, int) else target
        if isinstance(labels, Tensor) and labels.numel() == 1:
            labels = labels.reshape(1).expand(len(inputs))
        node = (
            ClassNode(self._module(), labels, probability=self.preset.probability)
            if labels is not None
            else None
        )
        on_step = _progress_bar() if show_progress else None
        found = self.explain(inputs, node, on_step=on_step, internal_batch_size=internal_batch_size)
        heatmaps = torch.stack([item.heatmap for item in found]).unsqueeze(1)
        return heatmaps.to(inputs.device).repeat(1, inputs.shape[1], 1, 1)

    def explain(
        self,
        images: Tensor,
        node: Node | Callable[[Tensor], Tensor] | None = None,
        *,
        on_step: OnStep | None = None,
        internal_batch_size: int | None = None,
    ) -> list[Explanation]:
        """One explanation an image; `node` None watches the predicted class.

        `on_step` sees every step and ends the optimisation by returning True.
        """
        traces: list[Tensor] = []
        task = self.task(images, node, internal_batch_size=internal_batch_size)
        with closing(self.steps(task)) as steps:  # closed also when on_step raises: the model is borrowed
            for step in steps:
                traces.append(step.loss)
                if on_step is not None and on_step(step):
                    break
        return self.finish(task, step, torch.stack(traces).cpu())

    # ── the one loop ──

    def task(
        self,
        images: Tensor,
        node: Node | Callable[[Tensor], Tensor] | None = None,
        *,
        internal_batch_size: int | None = None,
    ) -> MaskingTask:
        """The task that `steps` works on."""
        batch = self.internal_batch_size if internal_batch_size is None else internal_batch_size
        check_images(images, batch)
        watched = self._watched(images, node, batch)
        return MaskingTask(images, watched, batch=batch, before=int(node is None))

    def steps(self, task: MaskingTask) -> Generator[Step]:
        """Learn the masks, step by step; the model is borrowed while the loop runs."""
        with borrowed(task.node.model), closing(self.preset.steps(task)) as steps:
            while True:
                with differentiable():
                    step = next(steps, None)
                if step is None:
                    return
                yield step

    def finish(self, task: MaskingTask, step: Step, trace: Tensor) -> list[Explanation]:
        """Explanations from the last step that was taken; `trace` (steps, N) are the losses on the way."""
        with borrowed(task.node.model):
            heatmaps = self.preset.heatmap(task, step.raw)
        heatmaps = heatmaps.where(~_is_flat(step.raw), 0.0)
        warn_of_empty(heatmaps, task.node.name)
        above, facts = self.preset.above(step.raw), self._facts(step)
        return [
            Explanation(
                heatmap=heatmaps[row],
                raw=step.raw[row],
                masks={size: masks[row] for size, masks in step.masks.items()},
                loss=tuple(trace[:, row].tolist()),
                passes=task.passes,
                node=task.node.name(row),
                image=task.images[row],
                facts=facts,
                above=None if above is None else above[row],
            )
            for row in range(task.count)
        ]

    def _facts(self, step: Step) -> dict[str, Any]:
        return {
            "preset": self.name,
            "settings": {**asdict(self.preset), "strategy": type(self.preset).__name__},  # type: ignore[call-overload]
            "steps": step.number,
            "versions": {name: version(name) for name in ("dprotonet", "torch")},
        }

    # ── what to watch ──

    def _watched(self, images: Tensor, node: Node | Callable[[Tensor], Tensor] | None, batch: int) -> Node:
        if node is None:
            predicted = ClassNode.predicted(self._module(), images, batch=batch)
            return ClassNode(self._module(), predicted.labels, probability=self.preset.probability)
        return node if isinstance(node, Node) else CallableNode(node, model=self.model)

    def _node(self, images: Tensor, targets: Sequence[Target] | None) -> Node | None:
        """grad-cam's targets as a node; those that name a class are watched as the preset watches classes."""
        if targets is None:
            return None
        named = [
            getattr(target, "category", None) if type(target).__name__ in _CLASS_TARGETS else None
            for target in targets
        ]
        labels = [int(label) for label in named if isinstance(label, int | np.integer)]
        if len(labels) == len(targets):
            return ClassNode(self._module(), labels, probability=self.preset.probability)
        return TargetNode(self._module(), targets)

    def _module(self) -> nn.Module:
        if self.model is None:
            raise UserError("this MDM has no model; give it one, or pass explain() a node")
        return self.model


def _is_flat(raw: Tensor) -> Tensor:
    """Which maps (N, H, W) would show nothing but rounding errors, (N, 1, 1)."""
    low, high = raw.amin(dim=(-2, -1), keepdim=True), raw.amax(dim=(-2, -1), keepdim=True)
    return high - low <= _ROUNDING * torch.maximum(low.abs(), high.abs())


def _progress_bar() -> OnStep:
    from tqdm.auto import tqdm

    bar = tqdm(desc="MDM", unit="step")

    def advance(step: Step) -> None:
        bar.total = step.total
        bar.update(step.number - bar.n)
        bar.set_postfix(loss=f"{float(step.loss.mean()):.3f}")
        if step.number == step.total:
            bar.close()

    return advance
