"""What the outputs of a classifier mean: which classes there are, what explains and what measures one.

`single`: one class per image, logits (B, C) under a softmax. `binary`: one logit (B, 1) or (B,), whose
sigmoid is the probability of class 1, and 1 minus it that of class 0. `multilabel`: a sigmoid for every label
(B, C). `regression`: one value, explained `up` or `down`. A `Task` turns outputs into one column per class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from dprotonet.errors import UserError

Kind = Literal["single", "binary", "multilabel", "regression"]
Ending = Literal["softmax", "sigmoid", "softmax of one"]  # the last operation of a model

KINDS: tuple[Kind, ...] = get_args(Kind)
DIRECTIONS = ("up", "down")
_ROUNDING = 1e-3  # by which the probabilities of a row may miss 1, in half precision too
_SURE = 1e-7  # a probability this near to 0 or 1 has no finite logit


@dataclass(frozen=True)
class Task:
    """How outputs (B, K) are read; `probabilities`: the model has applied its softmax or sigmoid already."""

    kind: Kind = "single"
    probabilities: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"unknown task '{self.kind}'; known: {', '.join(KINDS)}")

    @classmethod
    def found(
        cls, outputs: Tensor, ending: Ending | None, *, kind: Kind | None = None, classes: int = 0
    ) -> "Task":
        """What outputs (B, K) and the operation that they end with say; `kind` where the user said it.

        A value cannot be told from a logit: one output is a binary classifier unless it is called a
        regression. Rows that sum to 1 are probabilities, whatever made them.
        """
        if ending == "softmax of one":
            raise UserError("the model ends with a softmax over one output, always 1; explain it without")
        ending = ending or ("softmax" if _sum_to_one(outputs) else None)
        one = outputs.shape[1] == 1
        likely: Kind = "binary" if one else "multilabel" if ending == "sigmoid" else "single"
        if kind is None and one and classes > 2:
            raise UserError(f"the model gives one output per image, and {classes} classes are named")
        task = cls(kind or likely, ending is not None and kind != "regression")
        task.check(outputs)
        if {task.kind, likely} == {"single", "multilabel"} and ending is not None:
            raise UserError(
                f"the model ends with a {ending}: its task is '{likely}', and '{task.kind}' was given"
            )
        return task

    def check(self, outputs: Tensor) -> None:
        """A UserError unless outputs (B, K) are of this task."""
        count = outputs.shape[1]
        if self.kind == "single" and count == 1:
            raise UserError(
                "the model gives one output per image, whose softmax is always 1: its task is not 'single'; "
                "give task='binary' for a logit, or task='regression' for a value"
            )
        if self.kind in ("binary", "regression") and count > 1:
            instead = "two classes with an output each are task 'single'"
            if self.kind == "regression":
                instead = "explain one of several values by a target per image, lambda output: output[0]"
            raise UserError(
                f"task '{self.kind}' is for one output per image, and the model gives {count}; {instead}"
            )

    def names(self, classes: Sequence[str]) -> tuple[str, ...]:
        """What targets may be called: a binary classifier may name its class 1 only."""
        if self.kind == "regression":
            return DIRECTIONS
        if self.kind == "binary" and len(classes) == 1:
            return f"not {classes[0]}", classes[0]
        if self.kind == "binary" and len(classes) > 2:
            raise UserError(f"a binary classifier has two classes, and {len(classes)} are named")
        return tuple(classes)

    def columns(self, values: Tensor) -> Tensor:
        """Outputs (B, K), or numbers that add up to them, as they speak for every class (B, C)."""
        if self.kind == "binary":
            return torch.cat([-values, values], dim=1)
        return torch.cat([values, -values], dim=1) if self.kind == "regression" else values

    def scores(self, outputs: Tensor) -> Tensor:
        """What grows with each class and has a gradient everywhere, (B, C): logits, or the value."""
        if not self.probabilities:
            return self.columns(outputs)
        if self.kind == "single":
            return outputs.clamp_min(torch.finfo(outputs.dtype).tiny).log()
        return self.columns(torch.logit(outputs, eps=_SURE))

    def watched(self, outputs: Tensor) -> Tensor:
        """The probability of each class (B, C); of a regression the value, up and down."""
        if self.kind == "regression":
            return self.columns(outputs)
        if not self.probabilities:
            return outputs.softmax(dim=1) if self.kind == "single" else self.columns(outputs).sigmoid()
        return torch.cat([1 - outputs, outputs], dim=1) if self.kind == "binary" else outputs

    def predicted(self, outputs: Tensor) -> Tensor:
        """The likeliest class, (B,); of several labels the likeliest, of a value `up`."""
        if self.kind == "regression":
            return torch.zeros(len(outputs), dtype=torch.long, device=outputs.device)
        return self.watched(outputs).argmax(dim=1) if self.kind == "binary" else outputs.argmax(dim=1)

    def said(self) -> str:
        """What was found, in a sentence that says what to do where it is wrong."""
        what = {
            "single": "one class per image",
            "binary": "one output per image, read as that of class 1; for a value give task='regression'",
            "multilabel": "a sigmoid for each output: several labels per image",
            "regression": "a value",
        }[self.kind]
        ready = ", and the model gives probabilities itself" if self.probabilities else ""
        return f"task '{self.kind}' found: {what}{ready}"


SINGLE = Task()


def _sum_to_one(outputs: Tensor) -> bool:
    if outputs.shape[1] == 1 or not outputs.isfinite().all() or outputs.min() < 0:
        return False
    return bool((outputs.sum(dim=1) - 1).abs().max() <= _ROUNDING)
