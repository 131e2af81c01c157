"""Folds: a partition by class and by patient, the same for the same seed."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dprotonet.data.base import Splits
from dprotonet.data.birds import bird_splits
from dprotonet.data.folds import fold_of_each, fold_splits
from dprotonet.data.listed import ListedImages
from dprotonet.data.scan import ImageFile
from dprotonet.data.subset import Concatenation, Subset
from dprotonet.errors import UserError


def birds() -> Splits:
    return bird_splits(species=3, train_per_species=5, val_per_species=2, test_per_species=4, size=32)


def listed(split: str, rows: list[tuple[str, str, str]]) -> ListedImages:
    """Files that are never opened: name, class and patient, of different content."""
    files = [
        ImageFile(f"{split}/{name}", split, kind, group=group, digest=f"{split}{name}".removesuffix("-copy"))
        for name, kind, group in rows
    ]
    return ListedImages(Path(), files, classes=("a", "b"), size=32)


def test_every_image_is_in_exactly_one_validation_fold() -> None:
    splits = birds()
    names = [
        (split, data.name(index))
        for fold in range(1, 5)
        for found in [fold_splits(splits, folds=4, fold=fold, seed=0)]
        for split, data in (("train", found.train), ("val", found.val))
        for index in range(len(data))
    ]
    everything = {pool.name(index) for pool in (splits.train, splits.val) for index in range(len(pool))}
    counts = Counter(names)
    assert {name for _, name in names} == everything
    assert all(counts["val", name] == 1 and counts["train", name] == 3 for name in everything)


def test_a_fold_has_its_share_of_every_class_and_leaves_test_alone() -> None:
    splits = birds()
    for fold in range(1, 4):
        found = fold_splits(splits, folds=3, fold=fold, seed=0)
        assert all(2 <= count <= 3 for count in Counter(found.val.labels).values())
        assert len(Counter(found.val.labels)) == 3
        assert found.test is splits.test


def test_the_seed_decides() -> None:
    labels, groups = [0, 1] * 20, [[index] for index in range(40)]
    first = fold_of_each(labels, groups, folds=5, seed=0)
    assert first == fold_of_each(labels, groups, folds=5, seed=0)
    assert first != fold_of_each(labels, groups, folds=5, seed=1)


@given(
    sizes=st.lists(st.integers(1, 4), min_size=6, max_size=30),
    folds=st.integers(2, 5),
    seed=st.integers(0, 99),
)
def test_groups_stay_whole_and_folds_even(sizes: list[int], folds: int, seed: int) -> None:
    ends = np.cumsum(sizes)
    groups = [list(range(end - size, end)) for size, end in zip(sizes, ends.tolist(), strict=True)]
    labels = [number % 2 for number, group in enumerate(groups) for _ in group]
    found = fold_of_each(labels, groups, folds=folds, seed=seed)
    assert all(len({found[index] for index in group}) == 1 for group in groups)
    for label in (0, 1):
        counts = Counter(own for own, other in zip(found, labels, strict=True) if other == label)
        held = [counts[fold] for fold in range(folds)]
        assert max(held) - min(held) <= 4  # never more than the largest group


def test_patients_and_copies_are_not_torn_apart() -> None:
    rows = [(f"{n}", "ab"[n % 2], f"patient {n // 4}") for n in range(40)]
    train = listed("train", [*rows, ("7-copy", "b", "")])
    val = listed("val", [("v", "a", "patient 3"), ("w", "b", "patient 11"), ("x", "a", "patient 11")])
    empty = listed("test", [])
    splits = Splits(train, val, empty)
    homes: dict[str, set[int]] = {}
    for fold in range(1, 4):
        found = fold_splits(splits, folds=3, fold=fold, seed=0).val
        assert isinstance(found, Subset)
        for index in found.indices:
            file = (*train.files, *val.files)[index]
            homes.setdefault(file.group or "patient 1", set()).add(fold)  # the copy is of image 7
    assert len(homes) == 11
    assert all(len(folds) == 1 for folds in homes.values())


def test_too_few_images_for_the_folds() -> None:
    train = listed("train", [*((f"{n}", "a", "") for n in range(9)), *((f"b{n}", "b", "") for n in range(3))])
    splits = Splits(train, listed("val", []), listed("test", []))
    with pytest.raises(UserError, match=r"class 'b' has 3 training images .* use --folds 3"):
        fold_splits(splits, folds=5, fold=1, seed=0)
    one = listed("train", [("0", "a", "p"), ("1", "a", "p"), ("2", "b", ""), ("3", "b", "")])
    with pytest.raises(UserError, match=r"class 'a' has 1 training images .* add images"):
        fold_splits(replace(splits, train=one), folds=2, fold=1, seed=0)


def test_parts_are_the_images_they_name() -> None:
    splits = birds()
    pool = Concatenation(splits.train, splits.val)
    part = Subset(pool, [16, 3])
    assert (len(pool), len(part)) == (21, 2)
    assert [part.name(0), part.name(1)] == [splits.val.name(1), splits.train.name(3)]
    assert [part[0].name, part[1].name] == [part.name(0), part.name(1)]
    assert list(part.labels) == [part[0].label, part[1].label]
    assert pool[-1].name == splits.val.name(5)
    with pytest.raises(IndexError):
        pool[21]
    marks = [
        pool,
        part,
        Subset(pool, [3, 16]),
        Subset(splits.train, [3]),
        Concatenation(splits.val, splits.train),
    ]
    assert len({data.fingerprint for data in marks}) == 5
