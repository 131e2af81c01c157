"""The data set of a config, as train, validation and test images, and whether it is enough to train on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from dprotonet.config import DataConfig, NetworkConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.data.birds import bird_splits, finding_splits
from dprotonet.data.cars import cars_splits
from dprotonet.data.cub import cropped_cub_splits, cub_splits
from dprotonet.data.folder import folder_splits
from dprotonet.data.folds import fold_splits
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.labelled import labelled_splits
from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from dprotonet.errors import UserError
from dprotonet.progress import Progress
from dprotonet.training.views import label_tensor

READERS: Mapping[str, Callable[[Path, Reading], Splits]] = {
    "folder": folder_splits,
    "labels": labelled_splits,
    "cub": cub_splits,
    "cub-cropped": cropped_cub_splits,
    "cars": cars_splits,
    "rsna": rsna_splits,
    "palm": palm_splits,
}
"""The words before the colon of --data, and who reads such a folder."""


DRAWN: Mapping[str, Callable[..., Splits]] = {"birds": bird_splits, "birds-findings": finding_splits}
"""Data sets that are built in."""

_SEVERAL = ("labels", "birds-findings")  # images of these may have several labels


def has_several_labels(data: str) -> bool:
    """Whether images of a data set, as --data calls it, may have several labels, or none (docs/labels.md)."""
    return data.partition(":")[0] in _SEVERAL


UNKNOWN_DATA = "unknown"
"""What an imported run has in place of --data."""


def build_splits(config: DataConfig, on_progress: Progress | None = None) -> Splits:
    """`birds`, or a word of READERS and a path, as train, val and test; of a fold where one is named."""
    return _folded(_read_splits(config, on_progress), config)


class RememberedSplits:
    """`build_splits` that reads a data set once, however many runs and folds want it."""

    def __init__(self) -> None:
        self._known: dict[DataConfig, Splits] = {}

    def __call__(self, config: DataConfig, on_progress: Progress | None = None) -> Splits:
        base = replace(config, folds=0, fold=0)
        if base not in self._known:
            self._known[base] = _read_splits(base, on_progress)
        return _folded(self._known[base], config)


def _folded(splits: Splits, config: DataConfig) -> Splits:
    if not config.fold:
        return splits
    return fold_splits(splits, folds=config.folds, fold=config.fold, seed=config.data_seed)


def _read_splits(config: DataConfig, on_progress: Progress | None) -> Splits:
    kind, _, path = config.data.partition(":")
    if config.data in DRAWN:
        return DRAWN[config.data](
            species=config.species,
            train_per_species=config.train_per_species,
            val_per_species=config.val_per_species,
            test_per_species=config.test_per_species,
            seed=config.data_seed,
            size=config.image_size,
        )
    if kind in READERS and path:
        reading = Reading(
            size=config.image_size,
            val_fraction=config.val_fraction,
            seed=config.data_seed,
            allow_leaks=config.allow_leaks,
            cache=ImageCache(Path(config.image_cache).expanduser()) if config.image_cache else None,
            on_progress=on_progress,
        )
        return READERS[kind](Path(path).expanduser(), reading)
    if config.data == UNKNOWN_DATA:
        raise UserError("the run was imported and does not know its data; give --data, here or to import")
    if config.data in READERS:
        raise UserError(f"--data {kind}: where is it? use {kind}:PATH with the path of its folder")
    raise UserError(_unknown_data(config.data, kind))


def _unknown_data(data: str, kind: str) -> str:
    close = get_close_matches(kind, [*DRAWN, *READERS], n=1)
    hint = f"did you mean '{close[0]}'? " if close and close[0] != kind else ""
    forms = ", ".join([*DRAWN, *(f"{word}:PATH" for word in READERS)])
    return f"--data {data}: unknown data set; {hint}use {forms}"


def needed_images(config: NetworkConfig) -> int:
    """Of each class: one for every prototype, no more than one image being the source of each.

    Prototypes of parts may come from one image: they are different places of it. Those that classes share
    come from images of any of them.
    """
    alone = config.network == "blackbox" or config.regions == "parts" or config.ownership != "class"
    return 1 if alone else config.prototypes_per_class


def check_data(train: ImageData, prototypes_per_class: int) -> None:
    """Enough classes and enough images for the prototypes asked for."""
    if len(train.classes) < 2 and not has_rows(train):
        raise UserError(
            f"only one class, '{train.classes[0]}'; a classifier needs at least two class folders"
        )
    counts, what = class_counts(train), "label" if has_rows(train) else "class"
    fewest = min(range(len(counts)), key=counts.__getitem__)
    if counts[fewest] < prototypes_per_class:
        raise UserError(
            f"{what} '{train.classes[fewest]}' has {counts[fewest]} training images, fewer than its "
            f"{prototypes_per_class} prototypes; add images or use "
            f"--prototypes-per-class {max(counts[fewest], 1)}"
        )


def has_rows(data: ImageData) -> bool:
    """Whether labels are rows of 0 and 1: an image may have several."""
    return label_tensor(data.labels).ndim == 2


def class_counts(data: ImageData) -> list[int]:
    """How many images each class has, or each label."""
    if has_rows(data):
        return [int(count) for count in label_tensor(data.labels).sum(dim=0)]
    return np.bincount(np.asarray(data.labels), minlength=len(data.classes)).tolist()
