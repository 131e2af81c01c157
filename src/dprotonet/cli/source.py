"""Options that many commands share, each with its one help text, and the images that they stand for."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import tyro

from dprotonet.errors import UserError

if TYPE_CHECKING:
    from dprotonet.config import DataConfig
    from dprotonet.data.base import ImageData
    from dprotonet.experiment.trained.classifier import Classifier

RunFolderPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(help="The run folder.")]
RunOrTimm = Annotated[str, tyro.conf.Positional, tyro.conf.arg(help="A run folder, or timm:NAME[:WEIGHTS].")]
SameClasses = Annotated[
    str | None,
    tyro.conf.arg(help="Another data set with the same classes (default: the one the run was trained on)."),
]
AnyImages = Annotated[
    str | None,
    tyro.conf.arg(
        help="As in train, or images:PATH for a folder of images without classes (default: the run's own)."
    ),
]
Split = Literal["train", "val", "test"]
TaskName = Annotated[
    Literal["single", "binary", "multilabel", "regression"] | None,
    tyro.conf.arg(
        help="What the network's outputs mean: one class per image, one logit, several labels, or a value "
        "(default: found, but for a value)."
    ),
]
Json = Annotated[bool, tyro.conf.arg(help="Print one JSON object on stdout and nothing else there.")]
AllowLeaks = Annotated[bool, tyro.conf.arg(help="Go on even if the same image is in two splits of --data.")]
Device = Annotated[str | None, tyro.conf.arg(help="Where to compute, such as cuda (default: the CPU).")]


class DataSource(Protocol):
    """What a command says of its images, beyond what the run remembers."""

    @property
    def data(self) -> str | None: ...
    @property
    def allow_leaks(self) -> bool: ...


class NetworkSource(DataSource, Protocol):
    """What a command must say for its network and images to be found."""

    @property
    def model(self) -> str: ...
    @property
    def split(self) -> str: ...


def data_of(arguments: DataSource, stored: "DataConfig") -> "DataConfig":
    """The data of the run, or the other one that the command names."""
    leaks = stored.allow_leaks or arguments.allow_leaks
    return replace(stored, data=arguments.data or stored.data, allow_leaks=leaks)


def images_of(arguments: NetworkSource, classifier: "Classifier", on_scan: Any) -> "ImageData":
    """The split to look at, at the size that the network wants."""
    from dprotonet.config import DataConfig
    from dprotonet.experiment.build.data import build_splits, has_several_labels
    from dprotonet.experiment.evaluation.evaluation import choose_split
    from dprotonet.experiment.runs.run_folder import RunFolder

    timm = arguments.model.startswith("timm:")
    if timm and arguments.data is None:
        raise UserError("on which images? give --data birds, --data folder:PATH or --data images:PATH")
    stored = DataConfig() if timm else RunFolder(Path(arguments.model).expanduser()).read_config().data
    config = replace(data_of(arguments, stored), image_size=classifier.size)
    if has_several_labels(config.data):
        raise UserError(
            f"{config.data} has several labels per image; this command is for one class per image"
        )
    if config.data.startswith("images:"):
        from dprotonet.data.folder import loose_images

        root = Path(config.data.removeprefix("images:")).expanduser()
        return loose_images(root, size=classifier.size, on_progress=on_scan)
    return choose_split(build_splits(config, on_scan), arguments.split)
