"""Small data in exactly the layout of the originals, for tests of their readers.

Every image is unlike every other. Sizes, boxes and masks are known, so that tests can say what must come out.
"""

from io import BytesIO
from itertools import count
from pathlib import Path

import numpy as np
from PIL import Image

EXTENT = (30, 20)  # width, height of all images but the radiographs
_SHADES = count()


def noise(extent: tuple[int, int] = EXTENT, *, channels: int = 3) -> np.ndarray:
    shape = (extent[1], extent[0], channels) if channels > 1 else (extent[1], extent[0])
    return np.random.default_rng(next(_SHADES)).integers(0, 256, shape, dtype=np.uint8)


def paint(path: Path, pixels: np.ndarray | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(noise() if pixels is None else pixels).save(path)
    return path


# CUB-200-2011: box 6, 4 with 12 x 8 pixels; the segmentation is the left half of the box

CUB_CLASSES = ("001.Black_footed_Albatross", "002.Laysan_Albatross")
CUB_BOX = "6.0 4.0 12.0 8.0"


def make_cub(root: Path, *, per_class: int = 6, segmentations: bool = True, parts: bool = True) -> Path:
    names = [f"{kind}/{kind[4:]}_{i:04d}_{i}.jpg" for kind in CUB_CLASSES for i in range(per_class)]
    for name in names:
        paint(root / "images" / name)
        if segmentations:
            mask = np.zeros((EXTENT[1], EXTENT[0]), dtype=np.uint8)
            mask[4:12, 6:12], mask[:2, :2] = 204, 51  # four of five annotators, and one of five
            paint(root / "segmentations" / Path(name).with_suffix(".png"), mask)
    numbered = list(enumerate(names, start=1))
    lines(root / "images.txt", [f"{n} {name}" for n, name in numbered])
    lines(root / "classes.txt", [f"{n} {name}" for n, name in enumerate(CUB_CLASSES, start=1)])
    lines(root / "image_class_labels.txt", [f"{n} {1 + (n > per_class)}" for n, _ in numbered])
    lines(root / "train_test_split.txt", [f"{n} {int(n % 3 > 0)}" for n, _ in numbered])
    lines(root / "bounding_boxes.txt", [f"{n} {CUB_BOX}" for n, _ in numbered])
    if parts:
        lines(root / "parts" / "parts.txt", ["1 back", "2 left eye"])
        spots = [(f"{n} 1 9.0 6.0 1", f"{n} 2 0.0 0.0 0") for n, _ in numbered]
        lines(root / "parts" / "part_locs.txt", [line for pair in spots for line in pair])
    return root


def lines(path: Path, content: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in content))


# Stanford Cars: box from pixel 7 to 18 across and 5 to 12 down, counted from 1

CAR_CLASSES = ("AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012")
CAR_EDGES = (7, 5, 18, 12)
_CAR_FIELDS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2", "class", "fname")


def make_cars(root: Path, *, per_split: int = 6) -> Path:
    from scipy.io import savemat

    (root / "devkit").mkdir(parents=True)
    names = np.array([[*CAR_CLASSES]], dtype=object)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    for split, place in (
        ("train", "devkit/cars_train_annos.mat"),
        ("test", "cars_test_annos_withlabels.mat"),
    ):
        for number in range(per_split):
            paint(root / f"cars_{split}" / f"{number + 1:05d}.jpg")
        rows = [(*CAR_EDGES, 1 + number % 2, f"{number + 1:05d}.jpg") for number in range(per_split)]
        save_annotations(root / place, rows)
    return root


def save_annotations(path: Path, rows: list[tuple[object, ...]], *, without: str = "") -> None:
    from scipy.io import savemat

    kept = [place for place, name in enumerate(_CAR_FIELDS) if name != without]
    table = np.zeros((1, len(rows)), dtype=[(_CAR_FIELDS[place], object) for place in kept])
    for number, row in enumerate(rows):
        table[0, number] = tuple(row[place] for place in kept)
    savemat(path, {"annotations": table})


def make_car_folders(root: Path, *, per_class: int = 4) -> Path:
    number = count(1)
    for split in ("train", "test"):
        rows = []
        for label, kind in enumerate(CAR_CLASSES, start=1):
            for _ in range(per_class):
                name = f"{next(number):05d}.jpg"
                paint(root / "car_data" / "car_data" / split / kind.replace("/", "-") / name)
                rows.append(f"{name},{','.join(map(str, CAR_EDGES))},{label}")
        lines(root / f"anno_{split}.csv", rows)
    lines(root / "names.csv", list(CAR_CLASSES))
    return root


# RSNA: images of 64 x 64 with two boxes for every second patient

RSNA_EXTENT = (64, 64)
RSNA_BOXES = ("4.0,8.0,16.0,32.0", "40.0,8.0,20.0,24.0")
RSNA_HEADER = "patientId,x,y,width,height,Target"


def make_rsna(root: Path, *, patients: int = 20, png: bool = False) -> Path:
    """With DICOM the boxes are of the images themselves, with PNG of originals sixteen times as large."""
    rows = [RSNA_HEADER]
    for number in range(patients):
        patient = f"{number:08x}-14fd-4e49-80ba-63a80b6bddd6"
        path = root / "stage_2_train_images" / f"{patient}.{'png' if png else 'dcm'}"
        pixels = noise(RSNA_EXTENT, channels=1)
        paint(path, pixels) if png else write_dicom(path, pixels)
        boxes = [_enlarged(box, 16) if png else box for box in RSNA_BOXES]
        rows += [f"{patient},{box},1" for box in boxes] if number % 2 else [f"{patient},,,,,0"]
    lines(root / "stage_2_train_labels.csv", rows)
    return root


def _enlarged(box: str, times: int) -> str:
    return ",".join(str(float(cell) * times) for cell in box.split(","))


def write_dicom(path: Path, pixels: np.ndarray | None, *, jpeg: bool = False, **tags: object) -> Path:
    """A radiograph as in the original: 8 bits, MONOCHROME2, unless the tags say otherwise."""
    import pydicom
    from pydicom.encaps import encapsulate
    from pydicom.uid import ExplicitVRLittleEndian, JPEGBaseline8Bit

    dataset = pydicom.Dataset()
    dataset.file_meta = pydicom.dataset.FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit if jpeg else ExplicitVRLittleEndian
    dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = pydicom.uid.generate_uid()
    if pixels is not None:
        bits = pixels.dtype.itemsize * 8
        dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
        dataset.Rows, dataset.Columns = pixels.shape
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = bits, bits, bits - 1
        dataset.PixelRepresentation = int(pixels.dtype.kind == "i")
        dataset.PixelData = encapsulate([as_jpeg(pixels)]) if jpeg else pixels.tobytes()
        dataset["PixelData"].VR = "OB" if bits == 8 else "OW"
        dataset["PixelData"].is_undefined_length = jpeg
    for name, value in tags.items():
        setattr(dataset, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    dataset.save_as(path, enforce_file_format=True)
    return path


def as_jpeg(pixels: np.ndarray) -> bytes:
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, format="JPEG", quality=95)
    return buffer.getvalue()


# PALM: pathological images have atrophy in the left third, every second one detachment in the top half

PALM_LESIONS = "PALM-Training400-Annotation-Lession/Lesion_Masks"


def make_palm(root: Path, *, per_letter: int = 6, lesions: bool = True) -> Path:
    for letter in "PNH":
        for number in range(1, per_letter + 1):
            paint(root / "PALM-Training400" / f"{letter}{number:04d}.jpg")
    for number in range(1, per_letter + 1) if lesions else ():
        paint(root / PALM_LESIONS / "Atrophy" / f"P{number:04d}.bmp", bitmap(across=10))
        if number % 2:
            paint(root / PALM_LESIONS / "Detachment" / f"P{number:04d}.bmp", bitmap(down=10))
    return root


def bitmap(*, across: int = EXTENT[0], down: int = EXTENT[1]) -> np.ndarray:
    """White with a black lesion in the corner at the top left."""
    mask = np.full((EXTENT[1], EXTENT[0]), 255, dtype=np.uint8)
    mask[:down, :across] = 0
    return mask
