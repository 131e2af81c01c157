"""The Python API in a few functions: `train` and `load` a model, open a `classifier` or a data set."""

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch

from dprotonet.config import Config, DataConfig
from dprotonet.data.base import Splits
from dprotonet.errors import UserError
from dprotonet.experiment.build.data import build_splits
from dprotonet.experiment.explaining.explainers import own_maps, prototyped
from dprotonet.experiment.model import Model
from dprotonet.experiment.progress_bar import ProgressBar
from dprotonet.experiment.runs.choose_mode import MODES, ModeTrials, Trial, with_mode
from dprotonet.experiment.runs.finished import finished
from dprotonet.experiment.runs.out_of_fold import CalibrationImages, trained_and_calibrated
from dprotonet.experiment.runs.run_folder import RunFolder
from dprotonet.experiment.runs.trainer import Preparing, Trainer
from dprotonet.experiment.settings.idle_settings import check_idle
from dprotonet.experiment.settings.plain_settings import absolute, names_of, with_settings
from dprotonet.experiment.settings.recipes import final_config
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.transfer.hub import model_folder
from dprotonet.interpretation.prototype_maps import PrototypeMaps
from dprotonet.training.events import Event

OnEvent = Callable[[Preparing | Event | Trial], bool | None]


def load(
    folder: str | PathLike[str],
    *,
    device: str | None = None,
    revision: str | None = None,
    cache_dir: str | PathLike[str] | None = None,
    local_files_only: bool = False,
    token: str | bool | None = None,
) -> Model:
    """A trained model from its run folder, or of the Hugging Face hub by its name `OWNER/NAME`.

    A folder of that name wins; `hub:OWNER/NAME` is always the hub's, and `revision` a branch, tag or commit
    of it. It comes on `device` (the CPU unless named). No code of a repository is run.
    """
    place = model_folder(
        folder,
        revision=revision,
        cache_dir=None if cache_dir is None else Path(cache_dir),
        local_files_only=local_files_only,
        token=token,
    )
    return Model.load(place, device=device, several_labels=True)


def classifier(name: str | PathLike[str], *, device: str | torch.device | None = None) -> Classifier:
    """A network to be explained: `timm:NAME[:WEIGHTS]` with its own classifier, or a run folder."""
    return Classifier.open(name, device=device)


def similarity_maps(model: Model | Classifier | str | PathLike[str]) -> PrototypeMaps:
    """How a prototype network explains itself, in one forward pass: where it is similar to its prototypes.

    An explainer like `MDM`, of classes and of prototypes: `similarity_maps(model).explain(images, node)`.
    """
    known = Classifier.of(model)
    return own_maps(prototyped(known, "similarity"), known.classes)


def open_data(data: str | DataConfig = "birds") -> Splits:
    """Training, validation and test images of a data set, by what `--data` calls it (docs/data.md)."""
    return build_splits(DataConfig(data=data) if isinstance(data, str) else data)


def train(
    config: Config | Mapping[str, Any] | None = None,
    out: str | PathLike[str] | None = None,
    *,
    overwrite: bool = False,
    resume: bool = False,
    on_event: OnEvent | None = None,
    progress: bool | None = None,
    calibration: CalibrationImages = "auto",
    **settings: Any,
) -> Model:
    """Train into the run folder `out`, and load the best model.

    Settings are a `Config`, or the names of the command line in a dict or as keywords, which change the
    config: `train(out="runs/photos", data="folder:photos", mode="frozen")`. `overwrite` replaces a run;
    `resume` goes on with one that was stopped, whose config need not be given again.

    `on_event` sees every event (`StepDone`, `EpochDone`, `PushDone`, `RoundDone`; `Preparing` before them,
    and with `mode="auto"` a `Trial` around each event of its trials) and stops training by returning True.
    What is returned then is the best model so far; before the first `RoundDone` there is none, which is a
    UserError. The run can be resumed either way; stopped trials go on when the same call is made again.

    `calibration` says on which images probabilities are calibrated: `validation`, or `folds` of the training
    images, each answered by a network trained without it; `auto` takes folds where they are cheap (frozen
    mode) and validation images few.

    `progress` shows a bar; None does so in a notebook or where stderr is a terminal.
    """
    if config is not None and not isinstance(config, Config | Mapping):
        raise UserError(
            f"settings are a Config or a dict, not {type(config).__name__}; the run folder is out=…"
        )
    if on_event is not None and not callable(on_event):
        raise UserError(f"on_event is a function of an event, not {type(on_event).__name__}")
    place = _place(out, overwrite=overwrite, resume=resume)
    given = ({} if config is None or isinstance(config, Config) else config, settings)
    asked = _asked(config if isinstance(config, Config) else None, given, place if resume else None)
    if not resume:  # which says itself what it cannot change
        _check_idle(asked, {name for some in given for name in names_of(some)})
    with ProgressBar(progress) as bar:
        run = _Run(asked, place, overwrite, resume and _begun(place), bar, on_event, calibration)
        stopped = run.to_the_end()
    if stopped and not (place / "model.safetensors").is_file():
        raise UserError(f"stopped before {place} had a model; train(out=…, resume=True) goes on")
    return load(place)


class _Stopped(Exception):
    """`on_event` has seen enough."""


@dataclass(frozen=True)
class _Run:
    """One training, watched."""

    asked: Config
    out: Path
    overwrite: bool
    resume: bool
    bar: ProgressBar
    on_event: OnEvent | None
    calibration: CalibrationImages

    def to_the_end(self) -> bool:
        """Whether it was stopped before."""
        try:
            with closing(trained_and_calibrated(self._trainer(), self.calibration)) as events:
                finished(events, self._watch)
        except _Stopped:
            return True
        return False

    def _watch(self, event: Preparing | Event | Trial) -> None:
        self.bar.show(event)
        if self.on_event is not None and self.on_event(event):
            raise _Stopped

    def _trainer(self) -> Trainer:
        if self.asked.training.mode == "auto":
            return self._of_better_mode()
        return Trainer(self.asked, self.out, self.resume, self.overwrite, on_scan=self.bar.scan)

    def _of_better_mode(self) -> Trainer:
        """In the mode that is better on folds of the training images."""
        RunFolder(self.out).check_free(overwrite=self.overwrite)
        trials = ModeTrials(self.asked, self.out, on_scan=self.bar.scan)
        try:
            with closing(trials.run()) as work:
                choice = finished(work, self._watch)
        except _Stopped:  # a model that is in the folder, to be overwritten, is not of this training
            told = "stopped in the trials of mode 'auto'; the same call goes on with them"
            raise UserError(told) from None
        return Trainer(
            with_mode(self.asked, choice.mode),
            self.out,
            overwrite=self.overwrite,
            on_scan=self.bar.scan,
            origins={"training.mode": "chosen by cross-validation"},
            on_open=lambda: trials.settle(choice),
        )


def _place(out: str | PathLike[str] | None, *, overwrite: bool, resume: bool) -> Path:
    if out is None:
        raise UserError("out is missing; name the run folder to make, such as out='runs/birds'")
    if overwrite and resume:
        raise UserError("resume goes on and overwrite starts anew; give one of them")
    return Path(out).expanduser()


def _begun(out: Path) -> bool:
    """Whether there is a run; trials of `mode="auto"` come before it."""
    return (out / "config.toml").is_file()


def _asked(config: Config | None, settings: tuple[Mapping[str, Any], ...], resumed: Path | None) -> Config:
    """What to train: the config, or that of the resumed run, with these settings, the later the stronger."""
    stored = RunFolder(resumed).read_config() if resumed is not None and _begun(resumed) else None
    asked = config or stored or Config()
    for some in filter(None, settings):
        asked = with_settings(asked, some)
    asked = replace(asked, data=absolute(asked.data))
    auto = asked.training.mode == "auto"
    if stored is not None and auto:  # the mode was chosen when the run began
        return replace(asked, training=replace(asked.training, mode=stored.training.mode))
    if resumed is not None and stored is None and not (auto and ModeTrials(asked, resumed).place.is_dir()):
        raise UserError(f"resume: {resumed} is not a run folder; start without resume")
    return asked


def _check_idle(asked: Config, names: set[str]) -> None:
    """Refuse settings that would have no effect, as the command line does."""
    auto = asked.training.mode == "auto"
    configs = [with_mode(asked, mode) for mode in MODES] if auto else [asked]
    check_idle([final_config(item) for item in configs], names - {"training.mode"} if auto else names)
