"""RSNA pneumonia: radiographs as a viewer shows them, several boxes a patient, no patient in two splits."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dprotonet import extras
from dprotonet.data.base import Sample, Splits
from dprotonet.data.image import UnreadableImage, read_image
from dprotonet.data.problems import MissingOfficialFile
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from dprotonet.errors import UserError
from original_layouts import RSNA_BOXES, RSNA_HEADER, lines, make_rsna, noise, write_dicom

pydicom = pytest.importorskip("pydicom")

READING = Reading(size=64)
LABELS = "stage_2_train_labels.csv"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_rsna(tmp_path)


def everything(splits: Splits) -> list[Sample]:
    return [part[i] for part in (splits.train, splits.val, splits.test) for i in range(len(part))]


# The labels


@pytest.mark.parametrize("png", [False, True])
def test_all_boxes_of_a_patient_are_one_truth(tmp_path: Path, png: bool) -> None:
    expected = torch.zeros(64, 64, dtype=torch.bool)
    for box in RSNA_BOXES:
        x, y, width, height = (int(float(cell)) for cell in box.split(","))
        expected[y : y + height, x : x + width] = True
    for sample in everything(rsna_splits(make_rsna(tmp_path, png=png), READING)):
        assert sample.truth is not None
        assert torch.equal(sample.truth, expected if sample.label else torch.zeros_like(expected))
        assert len(sample.boxes) == (2 if sample.label else 0)


def test_shares_are_stratified_disjoint_and_seeded(root: Path) -> None:
    first, again, other = (rsna_splits(root, Reading(size=64, seed=seed)) for seed in (0, 0, 1))
    assert Counter(first.test.labels) == {0: 2, 1: 2}
    assert (len(first.train), len(first.val)) == (14, 2)
    names = [sample.name for sample in everything(first)]
    assert len(set(names)) == len(names) == 20
    assert names == [sample.name for sample in everything(again)]
    assert names != [sample.name for sample in everything(other)]
    assert list(first.train.classes) == ["normal", "opacity"]


def test_labels_without_image_images_without_label_and_opacity_without_box(root: Path) -> None:
    images = sorted((root / "stage_2_train_images").iterdir())
    images[0].rename(images[0].with_name("stray.dcm"))
    with (root / LABELS).open("a") as file:
        file.write(f"{images[2].stem},,,,,1\n")
    splits = rsna_splits(root, READING)
    assert splits.problems == {
        "labels for missing images": (images[0].stem,),
        "images without a label": ("stage_2_train_images/stray.dcm",),
        "patients with an opacity but no box": (images[2].stem,),
    }
    [unknown] = [sample for sample in everything(splits) if images[2].name in sample.name]
    assert (unknown.label, unknown.truth) == (1, None)


def test_boxes_beyond_the_image_are_named(root: Path) -> None:
    patient = sorted((root / "stage_2_train_images").iterdir())[1].stem
    with (root / LABELS).open("a") as file:
        file.write(f"{patient},50.0,50.0,100.0,5.0,1\n")
    problems = rsna_splits(root, READING).problems
    [named] = problems["boxes that reach outside the image, cut at its edge"]
    assert patient in named


@pytest.mark.parametrize("row", ["a,1,2,3,4,2", "a,1,2,x,4,1", "a,1,2,,4,1", "a,1"])
def test_a_damaged_row_is_named(root: Path, row: str) -> None:
    lines(root / LABELS, [RSNA_HEADER, "b,,,,,0", row])
    with pytest.raises(UserError, match="line 3 is not"):
        rsna_splits(root, READING)


def test_another_table(root: Path) -> None:
    lines(root / LABELS, ["patientId,class", "a,Normal"])
    with pytest.raises(UserError, match="lacks the columns x, y, width, height, Target"):
        rsna_splits(root, READING)


def test_missing_files_are_named(root: Path) -> None:
    (root / LABELS).unlink()
    with pytest.raises(MissingOfficialFile, match=LABELS):
        rsna_splits(root, READING)


def test_files_that_are_no_radiographs_are_skipped_with_a_reason(root: Path) -> None:
    images = sorted((root / "stage_2_train_images").iterdir())
    write_dicom(images[0], None)
    images[1].write_bytes(b"not DICOM" * 50)
    images[2].write_bytes(images[2].read_bytes()[:-500])
    skipped = rsna_splits(root, READING).skipped
    reasons = {Path(name).name: reason for name, reason in skipped.items()}
    assert reasons.keys() == {path.name for path in images[:3]}
    assert reasons[images[0].name] == "a DICOM file without pixels"
    assert reasons[images[1].name] == "not a DICOM file"


def test_without_pydicom_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", absent)
    with pytest.raises(UserError, match=r"needs the package pydicom: pip install 'dprotonet\[data\]'"):
        rsna_splits(root, READING)


# The pixels


def grey(path: Path, pixels: np.ndarray, **tags: Any) -> np.ndarray:
    """All three channels, which must be the same, as the reader gives them."""
    image = read_image(write_dicom(path, pixels, **tags), size=pixels.shape[0])
    assert torch.equal(image[0], image[1])
    assert torch.equal(image[0], image[2])
    return image[0].numpy()


def test_eight_bits_come_as_they_are(tmp_path: Path) -> None:
    pixels = noise((16, 16), channels=1)
    assert (grey(tmp_path / "a.dcm", pixels) == pixels).all()
    assert (grey(tmp_path / "a.dcm", pixels, PhotometricInterpretation="MONOCHROME1") == 255 - pixels).all()


def test_compressed_as_in_the_original(tmp_path: Path) -> None:
    smooth = np.add.outer(np.arange(16), np.arange(16)).astype(np.uint8) * 8
    assert np.abs(grey(tmp_path / "a.dcm", smooth, jpeg=True).astype(int) - smooth).max() <= 4


@pytest.mark.parametrize("representation", [np.uint16, np.int16])
def test_window_and_rescale_as_pydicom_has_them(tmp_path: Path, representation: type) -> None:
    from pydicom.pixels import apply_modality_lut, apply_voi_lut

    pixels = np.random.default_rng(0).integers(0, 4096, (16, 16)).astype(representation)
    tags = {"RescaleSlope": 2, "RescaleIntercept": -1024, "WindowCenter": [1500, 1], "WindowWidth": [3000, 2]}
    ours = grey(tmp_path / "a.dcm", pixels, **tags)
    dataset = pydicom.dcmread(tmp_path / "a.dcm")
    values = apply_voi_lut(apply_modality_lut(dataset.pixel_array, dataset), dataset)
    low, high = (
        -1024 + 2 * edge for edge in ((0, 65535) if representation is np.uint16 else (-32768, 32767))
    )
    assert np.abs(ours - (values - low) / (high - low) * 255).max() <= 0.51
    assert ours.std() > 40


def test_without_a_window_the_bits_in_use_count(tmp_path: Path) -> None:
    pixels = np.linspace(0, 4095, 256).reshape(16, 16).astype(np.uint16)
    assert (grey(tmp_path / "a.dcm", pixels) == (pixels / 4095 * 255).round()).all()


def test_an_empty_window_is_no_window(tmp_path: Path) -> None:
    pixels = noise((16, 16), channels=1)
    assert (grey(tmp_path / "a.dcm", pixels, WindowCenter=None, WindowWidth=None) == pixels).all()


def test_no_pixels_is_an_unreadable_image(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match=r"a.dcm: a DICOM file without pixels"):
        read_image(write_dicom(tmp_path / "a.dcm", None), size=8)
