"""Cross-validation: the training images in k parts, each once for validation.

Training and validation images are pooled first; test images take no part. Every fold has its share of every
class, and what belongs together (one patient, equal bytes) is in one fold. Which image is in which fold
depends on the data and the seed alone.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dprotonet.data.base import ImageData, Splits
from dprotonet.data.duplicates import together
from dprotonet.data.listed import ListedImages
from dprotonet.data.subset import Concatenation, Subset
from dprotonet.errors import UserError


class TooFewForFolds(UserError):
    """A class cannot be in every fold."""


def fold_splits(splits: Splits, *, folds: int, fold: int, seed: int) -> Splits:
    """The splits whose validation images are those of `fold`, 1 to `folds`; test stays as it is."""
    pool = Concatenation(splits.train, splits.val)
    groups = _groups(splits.train, splits.val)
    _check(pool, groups, folds)
    number = fold_of_each(pool.labels, groups, folds=folds, seed=seed)
    train = [index for index, own in enumerate(number) if own != fold - 1]
    val = [index for index, own in enumerate(number) if own == fold - 1]
    return replace(splits, train=Subset(pool, train), val=Subset(pool, val))


def parts_of(images: ImageData, *, folds: int, seed: int) -> list[int]:
    """The part of every image of one split, from 0, as for folds."""
    return fold_of_each(images.labels, _groups(images), folds=folds, seed=seed)


def fold_of_each(
    labels: Sequence[int], groups: Sequence[Sequence[int]], *, folds: int, seed: int
) -> list[int]:
    """The fold of every image, from 0. Each group goes where its classes are scarcest, large groups first."""
    names = np.asarray(labels)
    counts = np.zeros((folds, int(names.max()) + 1), dtype=int)
    found = np.full(len(names), -1)
    shuffled = [groups[place] for place in np.random.default_rng(seed).permutation(len(groups))]
    for group in sorted(shuffled, key=len, reverse=True):  # the sort is stable
        own = np.bincount(names[list(group)], minlength=counts.shape[1])
        crowd = zip((counts @ own).tolist(), counts.sum(axis=1).tolist(), range(folds), strict=True)
        chosen = min(crowd)[-1]
        counts[chosen] += own
        found[list(group)] = chosen
    return found.tolist()


def _groups(*splits: ImageData) -> list[list[int]]:
    """Numbers of the pooled images that may not be torn apart; each image by itself if nothing is known."""
    files = [file for split in splits if isinstance(split, ListedImages) for file in split.files]
    if len(files) != sum(map(len, splits)):
        return [[index] for index in range(sum(map(len, splits)))]
    place = {file.name: index for index, file in enumerate(files)}
    return [[place[file.name] for file in group] for group in together(files)]


def _check(pool: Concatenation, groups: Sequence[Sequence[int]], folds: int) -> None:
    having = [{pool.labels[index] for index in group} for group in groups]
    for label, name in enumerate(pool.classes):
        count = sum(label in labels for labels in having)
        if count < folds:
            remedy = f"use --folds {count}" if count > 1 else "add images"
            raise TooFewForFolds(
                f"--folds {folds}: class '{name}' has {count} training images that do not belong together, "
                f"fewer than folds; {remedy}"
            )
