"""A folder with labels.csv: splits that keep frequencies and patients, and errors by file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from dprotonet.data.folder import folder_splits
from dprotonet.data.labelled import LabelledImages, labelled_splits, share_by_label
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile
from dprotonet.errors import UserError

READING = Reading(size=16)


def labelled_folder(root: Path, rows: list[str], header: str = "file,labels") -> Path:
    """Images of noise, every one another, for the rows of a table."""
    random = np.random.default_rng(0)
    for row in rows:
        path = root / row.split(",")[0]
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(path)
    (root / "labels.csv").write_text("\n".join([header, *rows]) + "\n")
    return root


def test_labels_are_rows_in_the_order_of_the_labels(tmp_path: Path) -> None:
    rows = ["a.png,x;y,train", "b.png,,train", "c.png,y,train", "d.png,x,val", "e.png,y,test"]
    splits = labelled_splits(labelled_folder(tmp_path, rows, "file,labels,split"), READING)
    assert splits.train.classes == ("x", "y")
    assert torch.as_tensor(splits.train.labels).tolist() == [[1, 1], [0, 0], [0, 1]]
    assert splits.train[0].findings == ("x", "y")
    assert splits.train[0].image.shape == (3, 16, 16)
    assert (len(splits.val), len(splits.test)) == (1, 1)
    assert dict(splits.problems) == {
        "labels without an image in val": ("y",),
        "labels without an image in test": ("x",),
    }


def test_other_labels_are_other_data(tmp_path: Path) -> None:
    rows = [f"{number}.png,{'x' * (number % 2)}" for number in range(20)]
    before = labelled_splits(labelled_folder(tmp_path, rows), READING).train
    assert isinstance(before, LabelledImages)
    having = {file.name: frozenset({"x"}) for file in before.files}
    after = LabelledImages(tmp_path, before.files, having=having, classes=("x",), size=16)
    assert before.fingerprint != after.fingerprint


def test_drawn_splits_keep_patients_together_and_frequencies(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = []
    for number in range(200):
        names = ";".join(name for name, share in (("x", 0.5), ("y", 0.1)) if random.random() < share)
        rows.append(f"{number}.png,{names},p{number // 2}")
    splits = labelled_splits(labelled_folder(tmp_path, rows, "file,labels,patient"), READING)
    patients = {}
    for name, data in (("train", splits.train), ("val", splits.val), ("test", splits.test)):
        assert isinstance(data, LabelledImages)
        for file in data.files:
            assert patients.setdefault(file.group, name) == name
        frequency = torch.as_tensor(data.labels).mean(dim=0)
        assert 0.35 < frequency[0] < 0.65
        assert 0 < frequency[1] < 0.25
    assert 30 <= len(splits.test) <= 50


def test_a_rare_label_is_in_every_split() -> None:
    files = [ImageFile(f"{number}.png", "", "", digest=str(number)) for number in range(50)]
    having = {file.name: frozenset({"rare"} if number < 3 else set()) for number, file in enumerate(files)}
    taken = {file.name for file in share_by_label(files, having, fraction=0.1, seed=(0,))}
    assert sum(f"{number}.png" in taken for number in range(3)) == 1
    assert len(taken) == 6


def test_missing_files_are_named_with_their_lines(tmp_path: Path) -> None:
    labelled_folder(tmp_path, ["a.png,x", "b.png,"])
    (tmp_path / "b.png").unlink()
    with pytest.raises(UserError, match=r"1 files that are not there: b\.png \(line 3\)"):
        labelled_splits(tmp_path, READING)


def test_no_image_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("file,labels\na.txt,x\nb.png,\n")
    with pytest.raises(UserError, match=r"line 2: a\.txt is no image"):
        labelled_splits(tmp_path, READING)


def test_a_label_that_no_training_image_has(tmp_path: Path) -> None:
    rows = ["a.png,,train", "b.png,y,train", "c.png,x,val", "d.png,y,test"]
    with pytest.raises(UserError, match="no training image has x"):
        labelled_splits(labelled_folder(tmp_path, rows, "file,labels,split"), READING)


def test_the_same_image_in_two_splits_is_a_leak(tmp_path: Path) -> None:
    rows = ["a.png,x,train", "b.png,,train", "c.png,x,val", "d.png,x,test"]
    labelled_folder(tmp_path, rows, "file,labels,split")
    (tmp_path / "d.png").write_bytes((tmp_path / "a.png").read_bytes())
    with pytest.raises(UserError, match="the same file in two splits"):
        labelled_splits(tmp_path, READING)


def test_a_folder_without_classes_is_told_what_its_table_is_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"use labels:"):
        folder_splits(labelled_folder(tmp_path, ["a.png,x"]), READING)
