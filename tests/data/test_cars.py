"""Stanford Cars: MATLAB files of the devkit, class folders with CSV, and files of the wrong kind."""

import shutil
from pathlib import Path

import pytest
import torch

from dprotonet import extras
from dprotonet.data.cars import cars_splits
from dprotonet.data.problems import MissingOfficialFile
from dprotonet.data.reading import Reading
from dprotonet.errors import UserError
from original_layouts import CAR_CLASSES, CAR_EDGES, make_car_folders, make_cars, paint, save_annotations

pytest.importorskip("scipy")

READING = Reading(size=60)
TRAIN = "devkit/cars_train_annos.mat"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_cars(tmp_path / "stanford_cars")


@pytest.mark.parametrize("make", [make_cars, make_car_folders])
def test_box_of_both_forms_counts_from_one_and_includes_the_last(make: object, tmp_path: Path) -> None:
    sample = cars_splits(make(tmp_path / "cars"), READING).test[0]  # type: ignore[operator]
    expected = torch.zeros(60, 60, dtype=torch.bool)
    expected[12:36, 12:36] = True  # pixels 7 to 18 across and 5 to 12 down
    assert sample.boxes == ((12, 12, 36, 36),)
    assert torch.equal(sample.truth, expected)


def test_classes_and_split_of_the_devkit(root: Path) -> None:
    splits = cars_splits(root, READING)
    assert tuple(splits.train.classes) == CAR_CLASSES
    assert [splits.test.name(i) for i in range(6)] == [f"cars_test/{i:05d}.jpg" for i in range(1, 7)]
    assert list(splits.test.labels) == [0, 1, 0, 1, 0, 1]
    assert (len(splits.train), len(splits.val), splits.problems) == (4, 2, {})


def test_test_labels_may_lie_in_the_devkit(root: Path) -> None:
    name = "cars_test_annos_withlabels.mat"
    (root / name).rename(root / "devkit" / name)
    assert len(cars_splits(root, READING).test) == 6


def test_images_may_lie_one_folder_deeper(root: Path) -> None:
    shutil.move(root / "cars_test", root / "inner")
    (root / "cars_test").mkdir()
    shutil.move(root / "inner", root / "cars_test" / "cars_test")
    splits = cars_splits(root, READING)
    assert (splits.test.name(0), len(splits.test), splits.problems) == (
        "cars_test/cars_test/00001.jpg",
        6,
        {},
    )


def test_class_folders_without_boxes_have_no_truth(tmp_path: Path) -> None:
    root = make_car_folders(tmp_path)
    (root / "anno_test.csv").unlink()
    splits = cars_splits(root, READING)
    assert splits.test[0].truth is None
    assert splits.train[0].truth is not None
    assert list(splits.absent) == ["anno_test.csv"]
    assert list(splits.train.classes) == [name.replace("/", "-") for name in CAR_CLASSES]


def test_folders_may_lie_at_the_top(tmp_path: Path) -> None:
    root = make_car_folders(tmp_path)
    for split in ("train", "test"):
        shutil.move(root / "car_data" / "car_data" / split, root / split)
    assert cars_splits(root, READING).test.name(0).startswith("test/")


# What can be wrong


def test_without_test_labels_the_file_and_its_place_are_named(root: Path) -> None:
    (root / "cars_test_annos_withlabels.mat").unlink()
    with pytest.raises(MissingOfficialFile, match=r"devkit.cars_test_annos_withlabels.mat") as caught:
        cars_splits(root, READING)
    assert len(caught.value.files) == 1


def test_labels_without_image_and_images_without_label(root: Path) -> None:
    (root / "cars_train" / "00002.jpg").rename(root / "cars_train" / "99999.jpg")
    assert cars_splits(root, READING).problems == {
        "labels for missing images": ("cars_train/00002.jpg",),
        "images without a label": ("cars_train/99999.jpg",),
    }


def test_a_file_of_version_7_3(root: Path) -> None:
    head = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM"
    (root / TRAIN).write_bytes(head + bytes(384) + b"\x89HDF\r\n\x1a\n")
    with pytest.raises(UserError, match=r"cars_train_annos.mat is a MATLAB file of version 7.3"):
        cars_splits(root, READING)


@pytest.mark.parametrize("content", [b"", b"no MATLAB at all" * 20])
def test_a_file_that_is_not_matlab(root: Path, content: bytes) -> None:
    (root / TRAIN).write_bytes(content)
    with pytest.raises(UserError, match=r"cars_train_annos.mat cannot be read"):
        cars_splits(root, READING)


def test_annotations_without_classes(root: Path) -> None:
    save_annotations(root / TRAIN, [(*CAR_EDGES, 1, "00001.jpg")], without="class")
    with pytest.raises(UserError, match=r"lacks class \(it has bbox_x1.*fname\)"):
        cars_splits(root, READING)


def test_another_matlab_file_under_the_name(root: Path) -> None:
    shutil.copy(root / "devkit" / "cars_meta.mat", root / TRAIN)
    with pytest.raises(UserError, match="no variable 'annotations'"):
        cars_splits(root, READING)


def test_a_class_beyond_the_list(root: Path) -> None:
    save_annotations(root / TRAIN, [(*CAR_EDGES, 3, "00001.jpg")] * 2)
    with pytest.raises(UserError, match=r"class 3; cars_meta.mat names 1 to 2"):
        cars_splits(root, READING)


def test_a_damaged_csv(tmp_path: Path) -> None:
    root = make_car_folders(tmp_path)
    (root / "anno_train.csv").write_text("00001.jpg,7,5\n")
    with pytest.raises(UserError, match=r"anno_train.csv.*'00001.jpg,7,5'"):
        cars_splits(root, READING)


def test_without_scipy_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(UserError, match=r"needs the package scipy: pip install 'dprotonet\[data\]'"):
        cars_splits(root, READING)


def test_neither_form(tmp_path: Path) -> None:
    paint(tmp_path / "something" / "1.jpg")
    with pytest.raises(MissingOfficialFile, match=r"cars_train\.tgz"):
        cars_splits(tmp_path, READING)
