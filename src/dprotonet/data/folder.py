"""A folder of images as a data set: ROOT/train/CLASS/*, ROOT/test/CLASS/*, optionally val/ and masks/.

Every file is read once at the start: broken ones are skipped and reported by name, equal bytes in two splits
(a leak) are found; files that are no images by their ending are counted and told. Without val/ a seeded,
stratified share of train becomes the validation split; ROOT/masks/SPLIT/CLASS/NAME.png is the localisation
truth. Reading is left to `scan` and `image`.
"""

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from dprotonet.data.base import Splits
from dprotonet.data.duplicates import find_duplicates, report_duplicates
from dprotonet.data.label_table import NAME as TABLE
from dprotonet.data.listed import ListedImages
from dprotonet.data.problems import some
from dprotonet.data.reading import Reading
from dprotonet.data.scan import ImageFile, scan
from dprotonet.data.stratified_split import stratified_split
from dprotonet.data.suffixes import IMAGE_ENDINGS, check_dicom, counted_endings, ignored_words, is_image
from dprotonet.errors import UserError
from dprotonet.progress import Progress

SPLITS = ("train", "val", "test")
MASKS = "masks"  # the folder
UNKNOWN = "unknown"  # the class of images without classes
_LAYOUT = (
    "ROOT/train/CLASS/*.jpg and ROOT/test/CLASS/*.jpg (optional: ROOT/val, ROOT/masks/SPLIT/CLASS/NAME.png)"
)

_log = logging.getLogger(__name__)


def folder_splits(root: Path, reading: Reading) -> Splits:
    """Scan a folder and give its three splits, images fitted to (3, size, size).

    Raises UserError for a tree that cannot be used, and for equal files in two splits unless allowed.
    """
    everything = _listing(root)
    listing = _images(everything)
    mask_files = _mask_files(root)
    masks = _masks(mask_files)
    check_dicom(_names(listing))
    scanned = scan(root, _with_masks(listing, masks), on_progress=reading.on_progress)
    _refuse_broken_masks(root, scanned.broken_masks)
    classes = _agreed_classes(root, everything, scanned.files)
    found = find_duplicates(scanned.files)
    report_duplicates(found, allow_leaks=reading.allow_leaks)
    ignored = _ignored(everything, mask_files)
    _warn_of_ignored(ignored)
    members = {split: [file for file in scanned.files if file.split == split] for split in SPLITS}
    if "val" not in listing:
        _set_aside(members, reading)
    train, val, test = (
        ListedImages(root, members[split], classes=classes, size=reading.size, cache=reading.cache)
        for split in SPLITS
    )
    problems = {
        "the same image twice within a split": found.repeats,
        "masks that belong to no image": _lonely(listing, masks),
    }
    known = {what: names for what, names in problems.items() if names}
    return Splits(
        train, val, test, skipped=scanned.skipped, leaks=found.leaks, problems=known, ignored=ignored
    )


def _set_aside(members: dict[str, list[ImageFile]], reading: Reading) -> None:
    share = stratified_split(members["train"], fraction=reading.val_fraction, seed=(reading.seed,))
    for name, different in share.short.items():
        raise UserError(
            f"train/{name} has too few different images ({different}) to set one aside for validation; "
            "add images, or give a val/ folder"
        )
    members["val"] = share.files
    aside = set(members["val"])
    members["train"] = [file for file in members["train"] if file not in aside]


def loose_images(root: str | Path, *, size: int = 224, on_progress: Progress | None = None) -> ListedImages:
    """The images of a folder without classes, at its top level only, all of one unknown class."""
    root = Path(root)
    if not root.is_dir():
        state = "is a file, not a folder" if root.exists() else "does not exist"
        raise UserError(f"{root} {state}; give a folder of images")
    names = [path.name for path in _children(root) if path.is_file()]
    images = list(filter(is_image, names))
    check_dicom(images)
    ignored = counted_endings(name for name in names if not is_image(name))
    found = [ImageFile(name, split="", class_name=UNKNOWN) for name in images]
    files = scan(root, found, on_progress=on_progress).files
    if not files:
        raise UserError(
            f"{root} has no readable image{_beside(ignored)}; "
            f"give a folder of images ({', '.join(IMAGE_ENDINGS)})"
        )
    _warn_of_ignored(ignored)
    return ListedImages(root, files, classes=[UNKNOWN], size=size)


# Finding files

Listing = Mapping[str, Mapping[str, Sequence[str]]]  # split, class, names below the root


def _listing(root: Path) -> Listing:
    if not root.is_dir():
        state = "is a file, not a folder" if root.exists() else "does not exist"
        raise UserError(f"{root} {state}; give the folder that holds {_LAYOUT}")
    found = {split: root / split for split in SPLITS if (root / split).is_dir()}
    if not {"train", "test"} <= set(found):
        raise UserError(_layout_message(root))
    return {split: _classes_below(root, folder) for split, folder in found.items()}


def _layout_message(root: Path) -> str:
    children = _children(root)
    folders = [child for child in children if child.is_dir()]
    loose = [child for child in children if child.is_file() and is_image(child)]
    others = [child.name + "/" * child.is_dir() for child in children if child not in loose]
    images = [f"{len(loose)} images such as {loose[0].name}"] if loose else []
    message = f"{root} must hold {_LAYOUT}; found: {some([*others, *images]) or 'nothing'}."
    if loose and not folders:
        message += " Images need a folder for each class, in ROOT/train and in ROOT/test."
    if (root / TABLE).is_file():
        return f"{message} It has {TABLE}: for several labels per image use labels:{root}"
    if inner := [folder for folder in folders if (folder / "train").is_dir()]:
        return f"{message} The folder inside has train/: did you mean {inner[0]}?"
    bare = [f.name for f in folders if f.name not in SPLITS and any(map(is_image, _children(f)))]
    if bare:
        message += f" Class folders ({some(bare)}) lie directly in ROOT: move part of the images of each"
        message += " to ROOT/train/CLASS/ and the others to ROOT/test/CLASS/."
    return message


def _classes_below(root: Path, folder: Path) -> dict[str, list[str]]:
    classes = [child for child in _children(folder) if child.is_dir()]
    if not classes:
        loose = sum(map(is_image, _children(folder)))
        raise UserError(f"{folder} has no class folders ({loose} loose images); it must hold {_LAYOUT}")
    return {child.name: [_name(root, path) for path in _walk(child)] for child in classes}


def _images(everything: Listing) -> Listing:
    return {
        split: {name: list(filter(is_image, files)) for name, files in classes.items()}
        for split, classes in everything.items()
    }


def _children(folder: Path) -> list[Path]:
    return sorted(child for child in folder.iterdir() if not child.name.startswith("."))


def _walk(folder: Path, above: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Files at any depth, by name; linked folders are followed, except back to a folder above."""
    above = (*above, folder.resolve())
    for child in _children(folder):
        if not child.is_dir():
            yield child
        elif child.resolve() not in above:
            yield from _walk(child, above)


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _mask_files(root: Path) -> list[str]:
    folder = root / MASKS
    return [_name(root, path) for path in _walk(folder)] if folder.is_dir() else []


def _masks(files: Iterable[str]) -> dict[str, str]:
    """The masks by the name of their image without its ending."""
    return {_stem(name).removeprefix(f"{MASKS}/"): name for name in files if _is_mask(name)}


def _is_mask(name: str) -> bool:
    """PNG alone: truth is all that is not black, and what JPEG calls black is not."""
    return PurePosixPath(name).suffix.lower() == ".png"


def _ignored(everything: Listing, mask_files: Iterable[str]) -> dict[str, int]:
    """Files left out by their ending; masks are counted apart, since other endings are right for them."""
    images = counted_endings(name for name in _names(everything) if not is_image(name))
    masks = counted_endings(name for name in mask_files if not _is_mask(name))
    return images | {f"{ending} in {MASKS}/ (masks are .png)": count for ending, count in masks.items()}


def _warn_of_ignored(ignored: Mapping[str, int]) -> None:
    if ignored:
        _log.warning("%s", ignored_words(ignored))


def _beside(ignored: Mapping[str, int]) -> str:
    return f" ({ignored_words(ignored)})" if ignored else ""


def _with_masks(listing: Listing, masks: Mapping[str, str]) -> list[ImageFile]:
    if lonely := _lonely(listing, masks):
        _log.warning("%d masks belong to no image and are ignored: %s", len(lonely), some(lonely))
    return [_with_mask(name, masks.get(_stem(name))) for name in _names(listing)]


def _lonely(listing: Listing, masks: Mapping[str, str]) -> list[str]:
    return sorted(masks[stem] for stem in masks.keys() - set(map(_stem, _names(listing))))


def _names(listing: Listing) -> list[str]:
    return [name for classes in listing.values() for files in classes.values() for name in files]


def _stem(name: str) -> str:
    return str(PurePosixPath(name).with_suffix(""))


def _with_mask(name: str, mask: str | None) -> ImageFile:
    split, class_name = PurePosixPath(name).parts[:2]
    return ImageFile(name, split, class_name, masks=None if mask is None else (mask,))


def _refuse_broken_masks(root: Path, broken: Mapping[str, str]) -> None:
    for name, reason in broken.items():
        raise UserError(f"cannot read {root / name}: {reason}; replace or remove the file")


# Judging what was found


def _agreed_classes(root: Path, listing: Listing, files: Iterable[ImageFile]) -> list[str]:
    """The classes, the same in all splits; the listing has files of any ending."""
    usable = Counter((file.split, file.class_name) for file in files)
    for split, classes in listing.items():
        for name, found in classes.items():
            if not usable[split, name]:
                raise UserError(
                    f"class {root / split / name} is empty: {_why_empty(found)}; add images or remove it"
                )
    for split, other in [(a, b) for a in listing for b in listing if a != b]:
        if missing := sorted(listing[split].keys() - listing[other].keys()):
            raise UserError(_missing_class_message(missing, split, other, listing[other]))
    if len(listing["train"]) < 2:
        raise UserError(f"{root} has only one class, {some(listing['train'])}; a classifier needs two")
    return sorted(listing["train"])


def _why_empty(found: Sequence[str]) -> str:
    images = list(filter(is_image, found))
    why = f"all {len(images)} images are unreadable" if images else "it holds no images"
    return why + _beside(counted_endings(name for name in found if not is_image(name)))


def _missing_class_message(missing: Sequence[str], split: str, other: str, there: Iterable[str]) -> str:
    message = f"{other}/ lacks {len(missing)} classes that {split}/ has: {some(missing)}; "
    twins = {_plain(name): name for name in there}
    alike = [f"{name!r} and {twins[_plain(name)]!r}" for name in missing if _plain(name) in twins]
    if alike:
        return f"{message}names must be the same to the letter ({some(alike)} look alike): rename one"
    return f"{message}add {other}/{missing[0]}/ with images or remove {split}/{missing[0]}/"


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
