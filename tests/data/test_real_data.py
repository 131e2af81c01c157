"""The readers on real downloads, where DPROTONET_REAL_DATA names a folder that has them."""

import os
from pathlib import Path

import pytest

from dprotonet.data.cub import cub_splits
from dprotonet.data.matlab import read_matlab
from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import _patients


def real(name: str) -> Path:
    path = Path(os.environ.get("DPROTONET_REAL_DATA", "nowhere")) / name
    if not path.exists():
        pytest.skip(f"DPROTONET_REAL_DATA names no folder with {name}")
    return path


def test_cub() -> None:
    splits = cub_splits(real("CUB_200_2011"), Reading(size=32))
    assert splits.train.classes[0] == "Black footed Albatross"
    assert len(splits.train) + len(splits.val) == pytest.approx(30 * len(splits.train.classes), rel=0.05)
    assert splits.train[0].truth is not None
    assert (splits.skipped, splits.leaks) == ({}, ())


def test_palm() -> None:
    splits = palm_splits(real("PALM"), Reading(size=32))
    assert sum(map(len, (splits.train, splits.val, splits.test))) == 400
    assert sum(splits.train.labels) + sum(splits.val.labels) + sum(splits.test.labels) == 213


def test_cars_devkit() -> None:
    pytest.importorskip("scipy")
    root = real("stanford_cars_devkit")
    fields = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")
    rows = read_matlab(root / "cars_train_annos.mat", "annotations", fields=fields)
    assert len(rows) == 8144
    assert {name: rows[0][name] for name in fields} == {
        "bbox_x1": 39,
        "bbox_y1": 116,
        "bbox_x2": 569,
        "bbox_y2": 375,
        "class": 14,
        "fname": "00001.jpg",
    }
    assert len(read_matlab(root / "cars_meta.mat", "class_names", fields=("class_names",))) == 196


def test_rsna_labels() -> None:
    patients = _patients(real("rsna/stage_2_train_labels.head.csv"))
    several = patients["00436515-870c-4b36-a041-de91049b9ab4"]
    assert several.opacity
    assert several.boxes == [(264, 152, 477, 531), (562, 152, 818, 605)]
    assert not patients["0004cfab-14fd-4e49-80ba-63a80b6bddd6"].boxes
