"""PALM: labels from names, both kinds of lesions merged, and what an incomplete download says."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch

from dprotonet.data.base import Sample, Splits
from dprotonet.data.palm import palm_splits
from dprotonet.data.problems import MissingOfficialFile
from dprotonet.data.reading import Reading
from original_layouts import PALM_LESIONS, make_palm, paint

READING = Reading(size=60)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_palm(tmp_path)


def everything(splits: Splits) -> dict[str, Sample]:
    parts = (splits.train, splits.val, splits.test)
    return {Path(part.name(i)).stem: part[i] for part in parts for i in range(len(part))}


def test_only_pathological_myopia_is_the_second_class(root: Path) -> None:
    splits = palm_splits(root, READING)
    assert list(splits.train.classes) == ["normal", "pathological myopia"]
    assert {name[0]: sample.label for name, sample in everything(splits).items()} == {"N": 0, "H": 0, "P": 1}
    assert Counter(splits.test.labels) == {0: 2, 1: 1}  # a fifth of twelve, and of six
    assert (splits.problems, splits.absent) == ({}, {})


def test_lesions_are_black_and_merged(root: Path) -> None:
    samples = everything(palm_splits(root, READING))
    atrophy = torch.zeros(60, 60, dtype=torch.bool)
    atrophy[:, :20] = True
    both = atrophy.clone()
    both[:30] = True
    for name, sample in samples.items():
        expected = (both if int(name[1:]) % 2 else atrophy) if name[0] == "P" else torch.zeros_like(both)
        assert sample.truth is not None
        assert torch.equal(sample.truth, expected)


def test_without_the_lesion_archive_nothing_is_known(tmp_path: Path) -> None:
    splits = palm_splits(make_palm(tmp_path, lesions=False), READING)
    assert all(sample.truth is None for sample in everything(splits).values())
    assert list(splits.absent) == [f"{PALM_LESIONS}/"]


def test_unpacked_into_a_folder_of_its_own_name(root: Path) -> None:
    before = palm_splits(root, READING)
    inner = root / "PALM-Training400"
    shutil.move(inner, root / "moved")
    inner.mkdir()
    shutil.move(root / "moved", inner / "PALM-Training400")
    assert len(palm_splits(root, READING).train) == len(before.train)


def test_strange_names_and_lonely_masks_are_named(root: Path) -> None:
    paint(root / "PALM-Training400" / "V0001.jpg")
    (root / "PALM-Training400" / "P0002.jpg").unlink()
    assert palm_splits(root, READING).problems == {
        "images whose name begins with neither P, N nor H": ("V0001.jpg",),
        "masks without an image": (f"{PALM_LESIONS}/Atrophy/P0002.bmp",),
    }


def test_no_images(root: Path) -> None:
    shutil.rmtree(root / "PALM-Training400")
    with pytest.raises(MissingOfficialFile, match=r"PALM-Training400.zip"):
        palm_splits(root, READING)
