"""The data set of a config, as train, validation and test images, and whether it is enough to train on."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from dprotonet.config import DataConfig, NetworkConfig
from dprotonet.data.base import ImageData, Splits
from dprotonet.data.birds import bird_splits
from dprotonet.data.cars import cars_splits
from dprotonet.data.cub import cropped_cub_splits, cub_splits
from dprotonet.data.folder import folder_splits
from dprotonet.data.folds import fold_splits
from dprotonet.data.image_cache import ImageCache
from dprotonet.data.palm import palm_splits
from dprotonet.data.reading import Reading
from dprotonet.data.rsna import rsna_splits
from dprotonet.errors import UserError

Progress = Callable[[int, int], None]


READERS: Mapping[str, Callable[[Path, Reading], Splits]] = {
    "folder": folder_splits,
    "cub": cub_splits,
    "cub-cropped": cropped_cub_splits,
    "cars": cars_splits,
    "rsna": rsna_splits,
    "palm": palm_splits,
}
"""The words before the colon of --data, and who reads such a folder."""


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
    if kind == "birds" and not path:
        return bird_splits(
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
    close = get_close_matches(kind, ["birds", *READERS], n=1)
    hint = f"did you mean '{close[0]}'? " if close and close[0] != kind else ""
    forms = ", ".join(f"{word}:PATH" for word in READERS)
    return f"--data {data}: unknown data set; {hint}use birds, {forms}"


def needed_images(config: NetworkConfig) -> int:
    """Of each class: one for every prototype, no more than one image being the source of each.

    Prototypes of parts may come from one image: they are different places of it. Those that classes share
    come from images of any of them.
    """
    alone = config.network == "blackbox" or config.regions == "parts" or config.ownership != "class"
    return 1 if alone else config.prototypes_per_class


def check_data(train: ImageData, prototypes_per_class: int) -> None:
    """Enough classes and enough images for the prototypes asked for."""
    if len(train.classes) < 2:
        raise UserError(
            f"only one class, '{train.classes[0]}'; a classifier needs at least two class folders"
        )
    counts = class_counts(train)
    fewest = min(range(len(counts)), key=counts.__getitem__)
    if counts[fewest] < prototypes_per_class:
        raise UserError(
            f"class '{train.classes[fewest]}' has {counts[fewest]} training images, fewer than its "
            f"{prototypes_per_class} prototypes; add images or use "
            f"--prototypes-per-class {max(counts[fewest], 1)}"
        )


def class_counts(data: ImageData) -> list[int]:
    """How many images each class has."""
    return np.bincount(np.asarray(data.labels), minlength=len(data.classes)).tolist()
