"""A folder of images as a data set: ROOT/train/CLASS/*, ROOT/test/CLASS/*, optionally val/ and masks/.

Every file is read once at the start, in threads: broken ones are skipped and reported by name, equal bytes in
two splits (a leak) are found, and the contents give the fingerprint. Later access is lazy. Without val/ a
seeded, stratified share of train becomes the validation split; ROOT/masks/SPLIT/CLASS/NAME.png is the
localisation truth. Reading a single file is left to `image`.
"""

import logging
import os
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path, PurePosixPath

import numpy as np

from dprotonet.data.base import Sample, Splits
from dprotonet.data.image import UnreadableImage, decode_image, read_image, read_mask
from dprotonet.errors import UserError

EXTENSIONS = frozenset(["jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp", "gif", "ppm", "pgm"])
SPLITS = ("train", "val", "test")
UNKNOWN = "unknown"  # the class of images without classes
_LAYOUT = (
    "ROOT/train/CLASS/*.jpg and ROOT/test/CLASS/*.jpg (optional: ROOT/val, ROOT/masks/SPLIT/CLASS/NAME.png)"
)
_SHOWN = 10  # names in a message
_SCAN_SIZE = 8  # pixels: enough to decode everything, and the fastest road through the JPEG decoder

_log = logging.getLogger(__name__)
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImageFile:
    """One file: its posix name below the root, and what the scan learnt of its content."""

    name: str
    mask: str | None = None
    digest: str = ""
    mask_digest: str = ""

    @property
    def split(self) -> str:
        return PurePosixPath(self.name).parts[0]

    @property
    def class_name(self) -> str:
        parts = PurePosixPath(self.name).parts
        return parts[1] if len(parts) > 2 else UNKNOWN


class FolderImages:
    """One split of a folder data set; images are opened when asked for."""

    def __init__(self, root: Path, files: Iterable[ImageFile], *, classes: Sequence[str], size: int) -> None:
        self.root, self.size = root, size
        self.files = tuple(files)
        self.classes = tuple(classes)
        numbers = {name: number for number, name in enumerate(self.classes)}
        self.labels = tuple(numbers[file.class_name] for file in self.files)

    @property
    def fingerprint(self) -> str:
        """Over names, contents of images and masks, and size; not over where the root lies."""
        content = blake2b(str(self.size).encode(), digest_size=16)
        for file in self.files:
            content.update(os.fsencode(f"\0{file.name}\0{file.digest}\0{file.mask_digest}"))
        return content.hexdigest()

    def name(self, index: int) -> str:
        return self.files[index].name

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Sample:
        file = self.files[index]
        image = read_image(self.root / file.name, size=self.size)
        truth = read_mask(self.root / file.mask, size=self.size) if file.mask else None
        return Sample(image=image, label=self.labels[index], name=file.name, truth=truth)


def folder_splits(
    root: str | Path,
    *,
    size: int = 224,
    val_fraction: float = 0.1,
    seed: int = 0,
    allow_leaks: bool = False,
    on_progress: Progress | None = None,
) -> Splits:
    """Scan a folder and give its three splits, images fitted to (3, size, size).

    Raises UserError for a tree that cannot be used, and for equal files in two splits unless `allow_leaks`.
    """
    root = Path(root)
    if size < 1 or not 0 < val_fraction < 1:
        raise UserError(f"size {size} must be at least 1, val_fraction {val_fraction} between 0 and 1")
    listing = _listing(root)
    files, skipped = _scan(root, _with_masks(root, listing), on_progress)
    classes = _agreed_classes(root, listing, files)
    _report_duplicates(files, allow_leaks=allow_leaks)
    members = {split: [file for file in files if file.split == split] for split in SPLITS}
    if "val" not in listing:
        members["val"] = _validation_share(members["train"], fraction=val_fraction, seed=seed)
        aside = set(members["val"])
        members["train"] = [file for file in members["train"] if file not in aside]
    parts = {split: FolderImages(root, members[split], classes=classes, size=size) for split in SPLITS}
    return Splits(train=parts["train"], val=parts["val"], test=parts["test"], skipped=skipped)


def loose_images(root: str | Path, *, size: int = 224, on_progress: Progress | None = None) -> FolderImages:
    """The images of a folder without classes, at its top level only, all of one unknown class."""
    root = Path(root)
    if not root.is_dir():
        state = "is a file, not a folder" if root.exists() else "does not exist"
        raise UserError(f"{root} {state}; give a folder of images")
    found = [ImageFile(_name(root, path)) for path in _children(root) if path.is_file() and _is_image(path)]
    files, _ = _scan(root, found, on_progress)
    if not files:
        raise UserError(
            f"{root} has no readable image; give a folder of images ({', '.join(sorted(EXTENSIONS))})"
        )
    return FolderImages(root, files, classes=[UNKNOWN], size=size)


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
    shown = ", ".join(child.name + "/" * child.is_dir() for child in children[:_SHOWN]) or "nothing"
    more = f" and {len(children) - _SHOWN} more" if len(children) > _SHOWN else ""
    message = f"{root} must hold {_LAYOUT}; found: {shown}{more}."
    if inner := [folder for folder in folders if (folder / "train").is_dir()]:
        return f"{message} The folder inside has train/: did you mean {inner[0]}?"
    bare = [f.name for f in folders if f.name not in SPLITS and any(map(_is_image, _children(f)))]
    if bare:
        message += f" Class folders ({_some(bare)}) lie directly in ROOT: move part of the images of each"
        message += " to ROOT/train/CLASS/ and the others to ROOT/test/CLASS/."
    return message


def _classes_below(root: Path, folder: Path) -> dict[str, list[str]]:
    classes = [child for child in _children(folder) if child.is_dir()]
    if not classes:
        loose = sum(map(_is_image, _children(folder)))
        raise UserError(f"{folder} has no class folders ({loose} loose images); it must hold {_LAYOUT}")
    return {child.name: [_name(root, path) for path in _walk(child) if _is_image(path)] for child in classes}


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


def _is_image(path: Path) -> bool:
    known = path.suffix[1:].lower() in EXTENSIONS
    if not known:
        _log.debug("ignored, not an image by its name: %s", path)
    return known


def _name(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _with_masks(root: Path, listing: Listing) -> list[ImageFile]:
    names = [name for classes in listing.values() for files in classes.values() for name in files]
    folder = root / "masks"
    paths = [path for path in _walk(folder) if path.suffix.lower() == ".png"] if folder.is_dir() else []
    masks = {_name(folder, path.with_suffix("")): _name(root, path) for path in paths}
    stems = {name: str(PurePosixPath(name).with_suffix("")) for name in names}
    if lonely := sorted(masks[stem] for stem in masks.keys() - set(stems.values())):
        _log.warning("%d masks belong to no image and are ignored: %s", len(lonely), _some(lonely))
    return [ImageFile(name, mask=masks.get(stems[name])) for name in names]


# Reading them


def _scan(
    root: Path, files: Sequence[ImageFile], on_progress: Progress | None
) -> tuple[list[ImageFile], dict[str, str]]:
    good: list[ImageFile] = []
    skipped: dict[str, str] = {}
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        results = pool.map(lambda file: _examined(root, file), files)
        for done, (file, result) in enumerate(zip(files, results, strict=True), start=1):
            if isinstance(result, ImageFile):
                good.append(result)
            else:
                skipped[file.name] = result
            if on_progress:
                on_progress(done, len(files))
    if skipped:
        _log.warning("skipped %d of %d images as unreadable: %s", len(skipped), len(files), _some(skipped))
    return good, skipped


def _examined(root: Path, file: ImageFile) -> ImageFile | str:
    """The file with its digests, or the reason why it cannot be used. A broken mask is an error."""
    try:
        data = (root / file.name).read_bytes()
        decode_image(data, name=file.name, size=_SCAN_SIZE)
    except OSError as error:
        return error.strerror or str(error)
    except UnreadableImage as error:
        return error.reason
    if file.mask is None:
        return replace(file, digest=_digest(data))
    read_mask(root / file.mask, size=_SCAN_SIZE)
    return replace(file, digest=_digest(data), mask_digest=_digest((root / file.mask).read_bytes()))


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


# Judging what was found


def _agreed_classes(root: Path, listing: Listing, files: Iterable[ImageFile]) -> list[str]:
    usable = Counter((file.split, file.class_name) for file in files)
    for split, classes in listing.items():
        for name, found in classes.items():
            if not usable[split, name]:
                broken = f"all {len(found)} images are unreadable" if found else "it holds no images"
                raise UserError(f"class {root / split / name} is empty: {broken}; add images or remove it")
    for split, other in [(a, b) for a in listing for b in listing if a != b]:
        if missing := sorted(listing[split].keys() - listing[other].keys()):
            raise UserError(_missing_class_message(missing, split, other, listing[other]))
    if len(listing["train"]) < 2:
        raise UserError(f"{root} has only one class, {_some(listing['train'])}; a classifier needs two")
    return sorted(listing["train"])


def _missing_class_message(missing: Sequence[str], split: str, other: str, there: Iterable[str]) -> str:
    message = f"{other}/ lacks {len(missing)} classes that {split}/ has: {_some(missing)}; "
    twins = {_plain(name): name for name in there}
    alike = [f"{name!r} and {twins[_plain(name)]!r}" for name in missing if _plain(name) in twins]
    if alike:
        return f"{message}names must be the same to the letter ({_some(alike)} look alike): rename one"
    return f"{message}add {other}/{missing[0]}/ with images or remove {split}/{missing[0]}/"


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


def _report_duplicates(files: Iterable[ImageFile], *, allow_leaks: bool) -> None:
    groups = [group for group in _same_bytes(files) if len(group) > 1]
    leaks = [
        f"{group[0].name} = {other.name}"
        for group in groups
        for other in group[1:]
        if other.split != group[0].split
    ]
    repeats = [f"{a.name} = {b.name}" for group in groups for a, b in pairwise(group) if a.split == b.split]
    if repeats:
        _log.warning("%d images occur twice within a split: %s", len(repeats), _some(repeats))
    if not leaks:
        return
    message = f"the same file in two splits, so that results would be too good (pairs: {len(leaks)}):\n  "
    message += "\n  ".join(leaks[:_SHOWN]) + "\n  ..." * (len(leaks) > _SHOWN)
    if not allow_leaks:
        raise UserError(f"{message}\nremove one file of each pair, or go on all the same with --allow-leaks")
    _log.warning("%s", message)


def _same_bytes(files: Iterable[ImageFile]) -> list[list[ImageFile]]:
    groups: dict[str, list[ImageFile]] = defaultdict(list)
    for file in files:
        groups[file.digest].append(file)
    return list(groups.values())


def _validation_share(train: Sequence[ImageFile], *, fraction: float, seed: int) -> list[ImageFile]:
    """A stratified share, at least one image a class; identical files stay together, so nothing leaks.

    Identical files under several classes stay in train: taking them could empty a class.
    """
    total = Counter(file.class_name for file in train)
    by_class: dict[str, list[list[ImageFile]]] = {name: [] for name in sorted(total)}
    for group in _same_bytes(train):
        if len({file.class_name for file in group}) == 1:
            by_class[group[0].class_name].append(group)
    chosen: list[ImageFile] = []
    for number, (name, groups) in enumerate(by_class.items()):
        random = np.random.default_rng([seed, number])
        chosen += _drawn(groups, name, random, of=total[name], wanted=max(1, round(fraction * total[name])))
    return sorted(chosen, key=lambda file: file.name)


def _drawn(
    groups: Sequence[list[ImageFile]], name: str, random: np.random.Generator, *, of: int, wanted: int
) -> list[ImageFile]:
    # Small groups first (the sort is stable), so that a crowd of copies never swells the share.
    shuffled = sorted((groups[i] for i in random.permutation(len(groups))), key=len)
    drawn: list[ImageFile] = []
    for group in shuffled:
        if len(drawn) >= wanted or len(drawn) + len(group) == of:
            break
        drawn += group
    if not drawn:
        raise UserError(
            f"train/{name} has too few different images ({len(groups)}) to set one aside for validation; "
            "add images, or give a val/ folder"
        )
    return drawn


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (", ..." if len(listed) > _SHOWN else "")
