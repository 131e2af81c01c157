"""Which class is meant, and which one it is compared with: by number, by name, or `runner-up`."""

from collections.abc import Sequence
from difflib import get_close_matches

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.inference.contrast import likeliest_other

RUNNER_UP = "runner-up"
_CLOSE = 3  # names that are offered in place of one that is not known

ClassName = str | int


def class_number(target: ClassName, classes: Sequence[str], *, owner: str) -> int:
    """The number of a class, by its number or its name; `owner` is who has the classes."""
    if isinstance(target, str) and target in classes:
        return list(classes).index(target)
    if not f"{target}".isdecimal():
        close = get_close_matches(f"{target}", classes, n=_CLOSE)
        hint = f"did you mean {' or '.join(repr(name) for name in close)}? " if close else ""
        raise UserError(f"{owner} has no class '{target}'; {hint}give one of its names, or a number")
    if int(target) >= len(classes):
        raise UserError(f"{owner} has no class {target}; its classes are 0 to {len(classes) - 1}")
    return int(target)


def check_versus(versus: ClassName, classes: Sequence[str], *, owner: str) -> None:
    """An error before any work, where there is no such class to compare with."""
    if len(classes) < 2:
        raise UserError(f"{owner} has one class, so there is none to compare it with")
    if versus != RUNNER_UP:
        class_number(versus, classes, owner=owner)


def compared_with(
    versus: ClassName,
    labels: Tensor,
    logits: Tensor,
    *,
    classes: Sequence[str],
    owner: str,
    images: Sequence[str] = (),
) -> Tensor:
    """The class (B,) that each of `labels` (B,) is compared with; `runner-up` is the likeliest other one.

    `images` are the names (B,) of what the labels are of: an error names the first that it is about.
    """
    check_versus(versus, classes, owner=owner)
    if versus == RUNNER_UP:
        return likeliest_other(logits, labels.to(logits.device)).to(labels.device)
    number = class_number(versus, classes, owner=owner)
    if bool((same := labels == number).any()):
        image = f"{images[int(same.int().argmax())]}: " if images else ""
        raise UserError(
            f"{image}{classes[number]} is the class that is explained, so it cannot be compared with "
            f"itself; name another one, or {RUNNER_UP} for the likeliest other class"
        )
    return torch.full_like(labels, number)
