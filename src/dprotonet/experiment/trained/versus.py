"""Which class is meant, and which one it is compared with: by number, by name, or `runner-up`.

The word `runner-up` always means the likeliest other class; a class of that name is meant by its number.
"""

import logging
import re
import unicodedata
from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

import torch
from torch import Tensor

from dprotonet.errors import UserError
from dprotonet.inference.contrast import likeliest_other

logger = logging.getLogger(__name__)

RUNNER_UP = "runner-up"
_FEW = 6  # classes, which are all named in a complaint
_CLOSE = 3  # names that are offered in place of one that is not known
_DIGITS = re.compile("[0-9]{1,18}")

ClassName = str | int


def class_number(target: ClassName, classes: Sequence[str], *, owner: str, words: Sequence[str] = ()) -> int:
    """The number of a class, by its number or its name; `owner` is who has the classes.

    Where no class is written just so, case, `_`, `-` and the other names after a comma do not matter, if only
    one class is meant. `words` may stand there too and are offered if nothing is meant.
    """
    if isinstance(target, str) and target in classes:
        return list(classes).index(target)
    if _DIGITS.fullmatch(f"{target}"):
        if int(target) >= len(classes):
            raise UserError(f"{owner} has no class {target}; its classes are 0 to {len(classes) - 1}")
        return int(target)
    wanted = _plain(f"{target}")
    meant = [number for number, name in enumerate(classes) if wanted in (_plain(name), *_synonyms(name))]
    if len(meant) == 1:
        return meant[0]
    close = [classes[number] for number in meant] or _close(wanted, (*classes, *words))
    hint = f"did you mean {' or '.join(repr(name) for name in close[:_CLOSE])}? " if close else ""
    named = f" ({', '.join(classes)})" if len(classes) <= _FEW else ""
    either = "".join(f", or {word}" for word in words)
    raise UserError(
        f"{owner} has no class '{target}'; {hint}give one of its names{named}, or a number{either}"
    )


def _plain(name: str) -> str:
    """Without what people write in different ways."""
    return " ".join(re.split(r"[\s_-]+", unicodedata.normalize("NFKC", name).casefold())).strip()


def _synonyms(name: str) -> list[str]:
    """ImageNet has several names for a class: tench, Tinca tinca."""
    return [_plain(part) for part in name.split(",")]


def _close(wanted: str, names: Sequence[str]) -> list[str]:
    spelt = {part: name for name in names for part in (_plain(name), *_synonyms(name))}
    return list(dict.fromkeys(spelt[found] for found in get_close_matches(wanted, spelt, n=_CLOSE)))


def check_versus(versus: ClassName, classes: Sequence[str], *, owner: str) -> None:
    """An error before any work, where there is no such class to compare with."""
    if len(classes) < 2:
        raise UserError(f"{owner} has one class, so there is none to compare it with")
    if versus != RUNNER_UP:
        class_number(versus, classes, owner=owner, words=(RUNNER_UP,))
    elif RUNNER_UP in classes:
        number = list(classes).index(RUNNER_UP)
        logger.warning(
            "'%s' means the likeliest other class; for the class of that name give its number %d",
            RUNNER_UP,
            number,
        )


class Others(NamedTuple):
    """What each class is compared with (B,), and where that is not the class that was asked for (B,) bool."""

    versus: Tensor
    replaced: Tensor


def compared_with(
    versus: ClassName, labels: Tensor, logits: Tensor, *, classes: Sequence[str], owner: str
) -> Others:
    """The class that each of `labels` (B,) is compared with; logits (B, C).

    `runner-up` is the likeliest other one. It also stands in where a label is the class `versus` itself, so
    that one such image does not stop the others.
    """
    runner_up = likeliest_other(logits, labels.to(logits.device)).to(labels.device)
    if versus == RUNNER_UP:
        return Others(runner_up, torch.zeros_like(labels, dtype=torch.bool))
    number = class_number(versus, classes, owner=owner)
    same = labels == number
    return Others(torch.where(same, runner_up, number), same)


def check_different(targets: Sequence[int], versus: ClassName, classes: Sequence[str], *, owner: str) -> None:
    """An error where a class is to be explained that is the one it is compared with."""
    if versus == RUNNER_UP:
        return
    number = class_number(versus, classes, owner=owner)
    if number in targets:
        raise UserError(
            f"{classes[number]} is the class that is explained, so it cannot be compared with itself; name "
            f"another one, or {RUNNER_UP} for the likeliest other class"
        )


def replaced_words(asked: str, taken: str) -> str:
    """Why a class is not compared with the one that was asked for, but with `taken`."""
    return f"is {asked} itself, so it is compared with {taken}, the likeliest other class"
