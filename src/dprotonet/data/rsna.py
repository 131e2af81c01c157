"""RSNA pneumonia detection (2018): chest X-rays, normal or with lung opacity, several boxes a patient.

Images are stage_2_train_images/PATIENT.dcm, or .png by the same name: a copy of another size than the
original's 1024 × 1024 gets its boxes scaled. A patient without opacity has a truth, an empty one.
docs/data.md has the whole tree. DICOM is read by `dicom`.

Unstated: the split. The official test images have no labels; 20 % of the patients are held out, seeded and
stratified.
Unstated: the classes. Target 1 is opacity, Target 0 (normal, and abnormal without opacity) is normal.
"""

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dprotonet.data.assemble import Listing, assembled
from dprotonet.data.base import Splits
from dprotonet.data.box import Box
from dprotonet.data.problems import check_complete, finite_number, table_text
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile
from dprotonet.errors import UserError

CLASSES = ("normal", "opacity")
TEST_FRACTION = 0.2

_IMAGES = "stage_2_train_images"
_LABELS = "stage_2_train_labels.csv"
_ARCHIVE = "rsna-pneumonia-detection-challenge.zip"
_COLUMNS = ("patientId", "x", "y", "width", "height", "Target")
_ORIGINAL = (1024, 1024)


def rsna_splits(root: Path, reading: Reading) -> Splits:
    """Train, val and test, no patient in two of them."""
    check_complete(root, {_IMAGES: _ARCHIVE, _LABELS: _ARCHIVE})
    patients = _patients(root / _LABELS)
    images = _images(root / _IMAGES)
    present = [patient for patient in patients if patient in images]
    problems = {
        "labels for missing images": [name for name in patients if name not in images],
        "images without a label": [path for name, path in images.items() if name not in patients],
        "patients with an opacity but no box": [
            name for name in present if patients[name].opacity and not patients[name].boxes
        ],
    }
    files = [_file(images[name], name, patients[name]) for name in present]
    return assembled(root, Listing(files, CLASSES, problems, test_fraction=TEST_FRACTION), reading)


@dataclass
class _Patient:
    opacity: bool = False
    boxes: list[Box] = field(default_factory=list)


def _patients(path: Path) -> dict[str, _Patient]:
    with table_text(path) as file:
        rows = csv.DictReader(file)
        if missing := [name for name in _COLUMNS if name not in (rows.fieldnames or ())]:
            columns = ",".join(_COLUMNS)
            raise UserError(
                f"{path} lacks the columns {', '.join(missing)}; its first line must be {columns}"
            )
        return _collected(path, rows)


def _collected(path: Path, rows: Iterable[Mapping[str, str]]) -> dict[str, _Patient]:
    patients: dict[str, _Patient] = {}
    for number, row in enumerate(rows, start=2):
        patient = patients.setdefault(row["patientId"], _Patient())
        try:
            patient.opacity |= {"0": False, "1": True}[row["Target"]]
            cells = [row[name] for name in ("x", "y", "width", "height")]
            if any(cells):
                left, top, width, height = map(finite_number, cells)
                patient.boxes.append(Box(left, top, left + width, top + height))
        except (KeyError, ValueError, TypeError):
            raise UserError(
                f"{path}: line {number} is not PATIENT,x,y,width,height,0 or 1; download it anew"
            ) from None
    return patients


def _images(folder: Path) -> dict[str, str]:
    """The image of each patient by name below the root; a DICOM comes before a PNG."""
    paths = [path for suffix in ("png", "dcm") for path in sorted(folder.glob(f"*.{suffix}"))]
    return {path.stem: f"{folder.name}/{path.name}" for path in paths}


def _file(name: str, patient: str, known: _Patient) -> ImageFile:
    unknown = known.opacity and not known.boxes
    return ImageFile(
        name,
        split="",
        class_name=CLASSES[known.opacity],
        boxes=None if unknown else tuple(known.boxes),
        drawn_on=_ORIGINAL if name.endswith(".png") else None,
        group=patient,
    )
