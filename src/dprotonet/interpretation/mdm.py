"""The MDM decoder: a heatmap for any node of any network (Section 3.4).

It is called as every explainer is (`explainer`). One loop, `steps`, yields; progress, preview and early
stopping are its callers. How the masks are learned is the preset's affair.
"""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from dprotonet.errors import UserError
from dprotonet.interpretation.algorithm1 import Algorithm1
from dprotonet.interpretation.base import Explanation, warn_of_empty
from dprotonet.interpretation.borrowed import borrowed, differentiable
from dprotonet.interpretation.explainer import Explainer, Question
from dprotonet.interpretation.folding import Folding
from dprotonet.interpretation.masking_task import MaskingTask, Step
from dprotonet.interpretation.masks import places
from dprotonet.interpretation.outputs import GivenTask, Model
from dprotonet.interpretation.ranked_masks import RankedMasks
from dprotonet.interpretation.returned import OutputName
from dprotonet.interpretation.sampled import SampledMasks
from dprotonet.interpretation.targets import Targets

PRESETS: dict[str, "Preset"] = {
    "paper": Algorithm1(),
    "fast": RankedMasks(),
    "instant": RankedMasks(
        iterations=3,
        rate=0.3,
        zoom=1.0,
        brightness=(0.3,),
        asks=("hide black", "keep blur", "hide black"),
        softness=0.15,
        softest=0.15,
        trust=0.1,
    ),
    "best": RankedMasks(iterations=60, rate=0.04, softness=0.05, softest=0.05, trust=0.1),
    "sampled": SampledMasks(),
}
_ROUNDING = 1e-5  # a raw map that varies less, relative to its values, varies by rounding only


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


class MDM(Explainer):
    """Explains a model, a module or a function; or nothing, and a node of your own with every call.

    `target_layers` is accepted for the sake of code written for CAMs and not needed. Volumes (N, C, D, H, W)
    are explained as images are, by masks of three axes.
    """

    explains_volumes = True

    def __init__(
        self,
        model: Model | None = None,
        target_layers: Sequence[nn.Module] | None = None,
        *,
        preset: str | Preset = "fast",
        classes: Sequence[str] = (),
        task: GivenTask = None,
        output: OutputName = None,
        internal_batch_size: int = 32,
    ) -> None:
        super().__init__(model, classes=classes, task=task, output=output, batch=internal_batch_size)
        self.name = preset if isinstance(preset, str) else preset_name(preset)
        self.preset = _named(preset) if isinstance(preset, str) else preset

    @property
    def probability(self) -> bool:
        return self.preset.probability

    def explained(self, question: Question) -> list[Explanation]:
        traces: list[Tensor] = []
        task = question.task()
        with closing(self.steps(task)) as steps:  # closed also when on_step raises: the model is borrowed
            for step in steps:
                traces.append(step.loss)
                if question.on_step is not None and question.on_step(step):
                    break
        return self.finish(task, step, torch.stack(traces).cpu())

    # ── the one loop ──

    def task(self, images: Tensor, targets: Targets = None) -> MaskingTask:
        """The task that `steps` works on."""
        return self.question(images, targets, batch=self.batch).task()

    def steps(self, task: MaskingTask) -> Generator[Step]:
        """Learn the masks, step by step; the model is borrowed while the loop runs."""
        task.folding = Folding(task.node.model)
        with borrowed(task.node.model), task.folding, closing(self.preset.steps(task)) as steps:
            while True:
                with differentiable():
                    step = next(steps, None)
                if step is None:
                    return
                yield step

    def finish(self, task: MaskingTask, step: Step, trace: Tensor) -> list[Explanation]:
        """Explanations from the last step that was taken; `trace` (steps, N) are the losses on the way."""
        with borrowed(task.node.model), task.folding:
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


def _is_flat(raw: Tensor) -> Tensor:
    """Which maps (N, H, W) would show nothing but rounding errors, (N, 1, 1)."""
    low, high = raw.amin(dim=places(raw), keepdim=True), raw.amax(dim=places(raw), keepdim=True)
    return high - low <= _ROUNDING * torch.maximum(low.abs(), high.abs())
