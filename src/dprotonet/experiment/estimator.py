"""A scikit-learn classifier of images: `fit`, `predict`, `predict_proba`, `score`, in searches and pipelines.

X is a sequence of paths or arrays; a 2-D table of numbers is no image. Images are held in memory at the size
of the network. What `fit` trains is a run in a folder of its own, `out_` (temporary unless `out` is given),
and the model of it, `model_`, which explains as every other.
"""

import tempfile
import weakref
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from dprotonet.config import Config
from dprotonet.data.base import Sample, Splits
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import UNKNOWN_DATA
from dprotonet.experiment.model import Model
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.out_of_fold import trained_and_calibrated
from dprotonet.experiment.runs.trainer import Trainer
from dprotonet.experiment.settings.plain_settings import with_settings
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.experiment.trained.arrays import as_images
from dprotonet.experiment.trained.image_like import name_of, square
from dprotonet.extras import import_extra

_base = import_extra("sklearn.base", extra="sklearn", needed_for="dp.ImageClassifier")
_exceptions = import_extra("sklearn.exceptions", extra="sklearn", needed_for="dp.ImageClassifier")
_BLOCK = 32  # images predicted at a time
_NAMED = ("mode", "network", "backbone", "image_size", "prototypes_per_class", "epochs", "batch_size")


class ImageClassifier(_base.ClassifierMixin, _base.BaseEstimator):  # type: ignore[name-defined]
    """A prototype network as a scikit-learn estimator; a setting that is None is implied, as in `dp.train`.

    `settings` are any others by name, `random_state` the seed. `val_fraction` of each class is held out from
    training, to choose the best round and to calibrate.
    """

    def __init__(  # noqa: PLR0913  # scikit-learn's way: a parameter each
        self,
        *,
        mode: str = "frozen",
        network: str | None = None,
        backbone: str | None = None,
        image_size: int | None = None,
        prototypes_per_class: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        val_fraction: float = 0.1,
        random_state: int | None = None,
        settings: Mapping[str, Any] | None = None,
        out: str | None = None,
        device: str | None = None,
    ) -> None:
        self.mode = mode
        self.network = network
        self.backbone = backbone
        self.image_size = image_size
        self.prototypes_per_class = prototypes_per_class
        self.epochs = epochs
        self.batch_size = batch_size
        self.val_fraction = val_fraction
        self.random_state = random_state
        self.settings = settings
        self.out = out
        self.device = device

    def fit(self, X: object, y: Sequence[Any]) -> Self:
        """Train on images `X`, a sequence of paths or an array, of the classes `y`."""
        images, labels = as_images(X), np.asarray(y)
        if labels.ndim != 1 or len(labels) != len(images):
            raise ValueError(f"y has shape {labels.shape} for {len(images)} images; give a class for each")
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has {len(self.classes_)} class; a classifier needs two at least")
        config = self._config()
        splits = self._splits(images, numbers, config)
        self._begin()
        trainer = Trainer(config, self.out_, overwrite=self.out is None, splits=lambda data, scan: splits)
        finished(trained_and_calibrated(trainer, "validation"), lambda event: None)
        self.model_ = Model.load(self.out_, device=self.device)
        return self

    def predict_proba(self, X: object) -> np.ndarray:
        """Probabilities (N, C), calibrated where the images allowed it, in the order of `classes_`."""
        self._check_fitted()
        images, names, rows = as_images(X), self.model_.classes, []
        for start in range(0, len(images), _BLOCK):
            found = self.model_.predict_many(images[start : start + _BLOCK])
            rows += [[one.probabilities[name] for name in names] for one in found]
        return np.asarray(rows, dtype=np.float64).reshape(len(images), len(self.classes_))

    def predict(self, X: object) -> np.ndarray:
        """The likeliest class of each image."""
        probabilities = self.predict_proba(X)
        likeliest: np.ndarray = self.classes_[probabilities.argmax(axis=1)]
        return likeliest

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.input_tags.string = True
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """With the run's files, for the folder of a temporary run does not outlive its process."""
        state = dict(super().__getstate__())
        if "model_" in state:
            kept = {}
            with tempfile.TemporaryDirectory() as place:
                self.model_.save(Path(place))
                kept = {str(f.relative_to(place)): f.read_bytes() for f in _files(Path(place))}
            state["model_"] = kept
            state.pop("out_", None)
        state.pop("_tidy", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        kept = state.pop("model_", None)
        super().__setstate__(state)
        if kept is None:
            return
        self._begin(temporary=True)
        for name, content in kept.items():
            (self.out_ / name).parent.mkdir(parents=True, exist_ok=True)
            (self.out_ / name).write_bytes(content)
        self.model_ = Model.load(self.out_, device=self.device)

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise _exceptions.NotFittedError("this ImageClassifier is not fitted yet; call fit(X, y) first")

    def _config(self) -> Config:
        named = {name: value for name in _NAMED if (value := getattr(self, name)) is not None}
        seed = self.random_state
        seeds = {} if seed is None else {"seed": seed, "data_seed": seed}
        given = {**seeds, **named, **dict(self.settings or {}), "data": UNKNOWN_DATA}
        return final_config(with_settings(Config(), given))

    def _begin(self, *, temporary: bool = False) -> None:
        """A folder for the run; a temporary one goes with the estimator."""
        if self.out is not None and not temporary:
            self.out_ = Path(self.out).expanduser()
            return
        self.out_ = Path(tempfile.mkdtemp(prefix="dprotonet-"))
        self._tidy = weakref.finalize(self, rmtree, str(self.out_), ignore_errors=True)

    def _splits(self, images: Sequence[Any], numbers: np.ndarray, config: Config) -> Splits:
        if not 0 < self.val_fraction < 1:
            raise UserError(f"val_fraction is {self.val_fraction}; it must lie between 0 and 1")
        held = _held_out(numbers, self.val_fraction, self.random_state or 0)
        width = len(str(len(self.classes_) - 1))
        names = [f"{number:0{width}d} {label}" for number, label in enumerate(self.classes_)]
        size = config.data.image_size
        pixels = torch.stack([square(image, size=size) for image in images])
        titles = [name_of(image) or f"image {number}" for number, image in enumerate(images)]

        def part(chosen: np.ndarray) -> "ImagesInMemory":
            return ImagesInMemory(
                pixels[chosen], numbers[chosen].tolist(), names, [titles[number] for number in chosen]
            )

        nothing = np.zeros(0, dtype=np.int64)
        return Splits(part(np.flatnonzero(~held)), part(np.flatnonzero(held)), part(nothing))


class ImagesInMemory:
    """One split of images (N, 3, S, S) uint8 that somebody has already."""

    def __init__(
        self, images: Tensor, labels: Sequence[int], classes: Sequence[str], names: Sequence[str]
    ) -> None:
        self.images = images
        self.labels = tuple(labels)
        self.classes = tuple(classes)
        self.names = tuple(names)

    @property
    def fingerprint(self) -> str:
        content = blake2b(repr((self.labels, self.classes, self.images.shape)).encode(), digest_size=16)
        content.update(self.images.contiguous().numpy().tobytes())
        return content.hexdigest()

    def name(self, index: int) -> str:
        return self.names[index]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        return Sample(self.images[index], self.labels[index], self.names[index])

    def image(self, index: int) -> Tensor:
        return self.images[index]


def _held_out(numbers: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """A share of every class (N,) bool, one image at least of those that have two."""
    held = np.zeros(len(numbers), dtype=bool)
    random = np.random.default_rng(seed)
    for number in np.unique(numbers):
        own = random.permutation(np.flatnonzero(numbers == number))
        held[own[: min(len(own) - 1, max(1, round(fraction * len(own))))]] = True
    return held


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())
