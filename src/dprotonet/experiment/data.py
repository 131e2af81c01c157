"""The data a run was trained on, where it is still there."""

from dataclasses import dataclass

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.build import build_splits
from dprotonet.experiment.model import Model


@dataclass(frozen=True)
class Data:
    """The three splits of a run's data."""

    train: ImageData
    val: ImageData
    test: ImageData

    def split(self, name: str) -> ImageData:
        images: ImageData = getattr(self, name)
        return images


def open_data(model: Model) -> Data:
    """The splits as training saw them; an error where they are gone or have other classes by now."""
    splits = build_splits(model.config.data)
    if tuple(splits.train.classes) != model.classes:
        raise UserError(f"{model.config.data.data} has other classes now than when the run was trained")
    return Data(splits.train, splits.val, splits.test)
