"""A seeded, stratified share of images set aside, for validation or for a test split nobody gave."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dprotonet.data.duplicates import together
from dprotonet.data.scan import ImageFile


@dataclass(frozen=True)
class StratifiedSplit:
    """The images set aside, by name, and the classes with too few different ones (and how many)."""

    files: list[ImageFile]
    short: dict[str, int]


def stratified_split(files: Sequence[ImageFile], *, fraction: float, seed: Sequence[int]) -> StratifiedSplit:
    """A share of every class, at least one image; what belongs together stays so, and nothing leaks.

    Groups with images of several classes stay where they are: taking them could empty a class. So does the
    last group of a class.
    """
    total = Counter(file.class_name for file in files)
    by_class: dict[str, list[list[ImageFile]]] = {name: [] for name in sorted(total)}
    for group in together(files):
        if len({file.class_name for file in group}) == 1:
            by_class[group[0].class_name].append(group)
    chosen: list[ImageFile] = []
    short: dict[str, int] = {}
    for number, (name, groups) in enumerate(by_class.items()):
        random = np.random.default_rng([*seed, number])
        drawn = _drawn(groups, random, of=total[name], wanted=max(1, round(fraction * total[name])))
        if not drawn:
            short[name] = len(groups)
        chosen += drawn
    return StratifiedSplit(sorted(chosen, key=lambda file: file.name), short)


def _drawn(
    groups: Sequence[list[ImageFile]], random: np.random.Generator, *, of: int, wanted: int
) -> list[ImageFile]:
    # Small groups first (the sort is stable), so that a crowd of copies never swells the share.
    shuffled = sorted((groups[i] for i in random.permutation(len(groups))), key=len)
    drawn: list[ImageFile] = []
    for group in shuffled:
        if len(drawn) >= wanted or len(drawn) + len(group) == of:
            break
        drawn += group
    return drawn
