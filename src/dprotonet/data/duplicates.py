"""Equal bytes under two names: a leak where they lie in two splits, a repeat within one.

Files that are equal, or belong to one patient, are kept together wherever a share is drawn.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dprotonet.data.problems import SHOWN, some
from dprotonet.data.scan import ImageFile
from dprotonet.errors import UserError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Duplicates:
    """Pairs "one = other" of equal files in two splits, and within one."""

    leaks: tuple[str, ...]
    repeats: tuple[str, ...]


def same_bytes(files: Iterable[ImageFile]) -> list[list[ImageFile]]:
    """The files in groups of equal content, in order of appearance."""
    groups: dict[str, list[ImageFile]] = defaultdict(list)
    for file in files:
        groups[file.digest].append(file)
    return list(groups.values())


def together(files: Iterable[ImageFile]) -> list[list[ImageFile]]:
    """The files in groups that may not be torn apart: equal content, or one patient, or a chain of both."""
    merged: list[list[ImageFile]] = []
    home: dict[str, list[ImageFile]] = {}
    for equal in same_bytes(files):
        names = {file.group for file in equal if file.group}
        target: list[ImageFile] = []
        for other in {id(home[name]): home[name] for name in names if name in home}.values():
            target += other
            other.clear()
        target += equal
        merged.append(target)
        home |= {file.group: target for file in target if file.group}
    return [group for group in merged if group]


def find_duplicates(files: Iterable[ImageFile]) -> Duplicates:
    groups = [group for group in same_bytes(files) if len(group) > 1]
    leaks = (
        f"{group[0].name} = {other.name}"
        for group in groups
        for other in group[1:]
        if other.split != group[0].split
    )
    repeats = (f"{a.name} = {b.name}" for group in groups for a, b in pairwise(group) if a.split == b.split)
    return Duplicates(tuple(leaks), tuple(repeats))


def report_duplicates(found: Duplicates, *, allow_leaks: bool) -> None:
    """Warn of repeats; leaks are an error unless they are allowed."""
    if found.repeats:
        _log.warning("%d images occur twice within a split: %s", len(found.repeats), some(found.repeats))
    if not found.leaks:
        return
    message = _leak_message(found.leaks)
    if not allow_leaks:
        raise UserError(f"{message};\nremove one file of each pair, or go on all the same with --allow-leaks")
    _log.warning("%s", message)


def _leak_message(leaks: Sequence[str]) -> str:
    message = f"the same file in two splits, so that results would be too good (pairs: {len(leaks)}):\n  "
    # Semicolons too: an error of a command is shown on one line.
    return message + ";\n  ".join(leaks[:SHOWN]) + ";\n  ..." * (len(leaks) > SHOWN)
