"""iChallenge-PM (PALM): 400 fundus images, pathological myopia or not, with masks of the lesions.

The label is the first letter of the file's name: P pathological myopia, N normal, H high myopia. The masks
of atrophy and of detachment are merged; they are black where the lesion is. docs/data.md has the whole tree.

Unstated: the class of H. High myopia without pathology is normal here, as in the challenge itself.
Unstated: the split, since only the 400 images of the training set have labels. 20 % are held out for the
test, seeded and stratified; the file names do not say which two eyes belong to one patient.
"""

from collections.abc import Mapping
from pathlib import Path

from dprotonet.data.assemble import Listing, assembled
from dprotonet.data.base import Splits
from dprotonet.data.image import dark
from dprotonet.data.problems import check_root, missing_files
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile

CLASSES = ("normal", "pathological myopia")
TEST_FRACTION = 0.2

_LABELS = {"N": CLASSES[0], "H": CLASSES[0], "P": CLASSES[1]}
_IMAGES = "PALM-Training400"
_LESIONS = "PALM-Training400-Annotation-Lession/Lesion_Masks"  # spelt as in the archive
_KINDS = ("Atrophy", "Detachment")


def palm_splits(root: Path, reading: Reading) -> Splits:
    """Train, val and test of the 400 labelled images."""
    check_root(root, f"{_IMAGES}/ and {_LESIONS}/")
    folder = _image_folder(root)
    lesions, absent = _lesions(root)
    paths = sorted(path for path in folder.iterdir() if path.suffix.lower() == ".jpg")
    known = {path.stem: path for path in paths if path.stem[:1].upper() in _LABELS}
    problems = {
        "images whose name begins with neither P, N nor H": [p.name for p in paths if p.stem not in known],
        "masks without an image": [m for stem, found in lesions.items() if stem not in known for m in found],
    }
    files = [
        ImageFile(
            path.relative_to(root).as_posix(),
            split="",
            class_name=_LABELS[stem[0].upper()],
            masks=None if absent else lesions.get(stem, ()),
        )
        for stem, path in known.items()
    ]
    listing = Listing(files, CLASSES, problems, absent, rule=dark, test_fraction=TEST_FRACTION)
    return assembled(root, listing, reading)


def _image_folder(root: Path) -> Path:
    """The archive may have been unpacked into a folder of its own name."""
    for folder in (root / _IMAGES / _IMAGES, root / _IMAGES):
        if folder.is_dir() and any(path.suffix.lower() == ".jpg" for path in folder.iterdir()):
            return folder
    raise missing_files({f"{root / _IMAGES}/*.jpg": f"{_IMAGES}.zip"})


def _lesions(root: Path) -> tuple[Mapping[str, tuple[str, ...]], dict[str, str]]:
    """The masks of each image by its stem; an image without one has no lesion."""
    for folder in (root / _LESIONS, root / _IMAGES / _LESIONS):
        if folder.is_dir():
            paths = [path for kind in _KINDS for path in sorted((folder / kind).glob("*.bmp"))]
            found: dict[str, tuple[str, ...]] = {}
            for path in paths:
                found[path.stem] = (*found.get(path.stem, ()), path.relative_to(root).as_posix())
            return found, {}
    return {}, {f"{_LESIONS}/": "where the lesions are (from PALM-Training400-Annotation-Lession.zip)"}
