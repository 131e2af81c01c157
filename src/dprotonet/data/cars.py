"""Stanford Cars: 196 models with boxes, from the original devkit or in the later form of class folders.

The original has all images of a split in one folder (cars_train/, cars_test/) and MATLAB files that say what
they show; the folder form has train/CLASS/ and test/CLASS/ and the boxes in anno_train.csv and anno_test.csv.
docs/data.md has both trees. MATLAB files are read by `matlab`.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from dprotonet.data.assemble import Listing, assembled
from dprotonet.data.base import Splits
from dprotonet.data.box import Box
from dprotonet.data.matlab import read_matlab
from dprotonet.data.problems import check_complete, check_root, finite_number, table_text
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile
from dprotonet.errors import UserError

_TRAIN_LABELS = "devkit/cars_train_annos.mat"
_OFFICIAL = {
    "cars_train": "cars_train.tgz",
    "cars_test": "cars_test.tgz",
    "devkit/cars_meta.mat": "car_devkit.tgz",
    _TRAIN_LABELS: "car_devkit.tgz",
}
_TEST_LABELS = "cars_test_annos_withlabels.mat"
_TEST_PLACES = (_TEST_LABELS, f"devkit/{_TEST_LABELS}")
_EDGES = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
_FOLDER_FORMS = ("", "car_data", "car_data/car_data")


def cars_splits(root: Path, reading: Reading) -> Splits:
    """The original if its files are there, else the form of class folders."""
    check_root(root, "cars_train/, cars_test/ and devkit/, or train/CLASS/ and test/CLASS/")
    for form in _FOLDER_FORMS:
        if all((root / form / split).is_dir() for split in ("train", "test")):
            return assembled(root, _from_folders(root, form), reading)
    return assembled(root, _from_devkit(root), reading)


# The original


def _from_devkit(root: Path) -> Listing:
    test = next((place for place in _TEST_PLACES if (root / place).is_file()), f"devkit/{_TEST_LABELS}")
    check_complete(root, {**_OFFICIAL, test: "its own download; cars_test_annos.mat has no classes"})
    classes = _class_names(root / "devkit" / "cars_meta.mat")
    folders = {split: _image_folder(root, split) for split in ("train", "test")}
    named = {
        file.name: file
        for split, place in (("train", _TRAIN_LABELS), ("test", test))
        for file in _cars(root / place, split, folders[split], classes)
    }
    present = {
        f"{folder}/{path.name}" for folder in folders.values() for path in (root / folder).glob("*.jpg")
    }
    problems = {
        "labels for missing images": sorted(named.keys() - present),
        "images without a label": sorted(present - named.keys()),
    }
    return Listing([file for name, file in named.items() if name in present], classes, problems)


def _image_folder(root: Path, split: str) -> str:
    """Some copies have the images in a folder of the same name within."""
    name = f"cars_{split}"
    return f"{name}/{name}" if (root / name / name).is_dir() else name


def _class_names(path: Path) -> list[str]:
    return [str(row["class_names"]) for row in read_matlab(path, "class_names", fields=("class_names",))]


def _cars(path: Path, split: str, folder: str, classes: Sequence[str]) -> Iterable[ImageFile]:
    for row in read_matlab(path, "annotations", fields=("fname", "class", *_EDGES)):
        number = int(row["class"])
        if not 1 <= number <= len(classes):
            known = f"cars_meta.mat names 1 to {len(classes)}"
            raise UserError(f"{path}: {row['fname']} has class {number}; {known}")
        box = _from_one([float(row[edge]) for edge in _EDGES])
        yield ImageFile(f"{folder}/{row['fname']}", split, classes[number - 1], boxes=(box,))


def _from_one(edges: Sequence[float]) -> Box:
    """MATLAB counts pixels from 1 and includes the last."""
    left, top, right, bottom = edges
    return Box(left - 1, top - 1, right, bottom)


# The folder form


def _from_folders(root: Path, form: str) -> Listing:
    files, problems, absent = [], {}, {}
    for split in ("train", "test"):
        boxes = _boxes(root / f"anno_{split}.csv")
        if boxes is None:
            absent[f"anno_{split}.csv"] = f"the boxes of {split}"
        paths = sorted((root / form / split).glob("*/*.jpg"))
        files += [_in_folder(root, path, split, boxes) for path in paths]
        if boxes is not None:
            names = {path.name for path in paths}
            problems[f"boxes for missing images ({split})"] = sorted(boxes.keys() - names)
            problems[f"images without a box ({split})"] = sorted(names - boxes.keys())
    return Listing(files, sorted({file.class_name for file in files}), problems, absent)


def _in_folder(root: Path, path: Path, split: str, boxes: Mapping[str, Box] | None) -> ImageFile:
    box = boxes.get(path.name) if boxes else None
    name = path.relative_to(root).as_posix()
    return ImageFile(name, split, path.parent.name, boxes=None if box is None else (box,))


def _boxes(path: Path) -> dict[str, Box] | None:
    if not path.is_file():
        return None
    with table_text(path) as file:
        return dict(_boxes_of(path, csv.reader(file)))


def _boxes_of(path: Path, rows: Iterable[Sequence[str]]) -> Iterable[tuple[str, Box]]:
    for row in rows:
        try:
            yield row[0], _from_one([finite_number(cell) for cell in row[1:5]])
        except (ValueError, IndexError):
            form = "NAME.jpg,x1,y1,x2,y2,class"
            raise UserError(f"{path}: the line {','.join(row)!r} is not {form}; unpack it anew") from None
