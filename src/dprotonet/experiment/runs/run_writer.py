"""What the main process of a training run writes into the run folder, event by event."""

from dataclasses import dataclass, fields
from typing import Any

from dprotonet.config import Config
from dprotonet.data.base import ImageData
from dprotonet.experiment.build.network import build_normalise
from dprotonet.experiment.build.trackers import log_record
from dprotonet.experiment.runs.calibration import calibration_of
from dprotonet.experiment.runs.measuring import Measuring
from dprotonet.experiment.runs.run_folder import PrototypeRecord, RunFolder, prototype_records
from dprotonet.network import BlackBox, Network
from dprotonet.training.checkpoint import save_checkpoint
from dprotonet.training.engine import Engine
from dprotonet.training.events import EpochDone, Event, RoundDone, StepDone


@dataclass
class RunWriter:
    """Puts events into the run folder."""

    config: Config
    folder: RunFolder
    network: Network
    train: ImageData
    engine: Engine
    measuring: Measuring
    data: list[str]

    def write(self, event: Event) -> None:
        if isinstance(event, StepDone):
            return
        record = event_record(event)
        self.folder.append_metrics(record)
        log_record(self.engine.accelerator, record, self.engine.position)
        if isinstance(event, RoundDone):
            self.folder.write_validation(event)
            if event.kept:
                self._keep()
                self._calibrate(event)
        if not (isinstance(event, EpochDone) and event.phase == "last"):
            extra = {"metrics_size": self.folder.metrics_size(), "data": self.data}
            save_checkpoint(self.folder.checkpoint, self.engine, extra)

    def _keep(self) -> None:
        """The best model so far: provenance and source images, then weights."""
        records: list[PrototypeRecord] = []
        if not isinstance(self.network, BlackBox):
            assert self.engine.projection is not None
            seed = self.config.data.data_seed
            normalise = build_normalise(self.network.encoder.backbone, self.config.network.channels)
            records = prototype_records(
                self.network, self.engine.projection, self.train, seed=seed, normalise=normalise
            )
        self.folder.keep(self.network, records, train=self.train)
        self._familiarise()

    def _calibrate(self, event: RoundDone) -> None:
        """What the logits of the model that was kept mean in per cent, from its validation images."""
        found = event.predictions
        if len(found.labels) and not found.several:
            calibration_of(found.logits, found.labels, self.network).write(self.folder.path)

    def _familiarise(self) -> None:
        """From when on an image is strange to the model that was kept."""
        found = self.measuring.familiarity(self.engine.network, self.engine.val_views)
        if found is not None:
            found.write(self.folder.path)


def event_record(event: Event) -> dict[str, Any]:
    """An event as a line of metrics.jsonl."""
    record: dict[str, Any] = {"event": type(event).__name__}
    for item in fields(event):
        value = getattr(event, item.name)
        if item.name == "terms":
            record.update(value)
        elif item.name == "predictions":
            continue  # of every validation image: in validation.json, those of the last round
        elif item.name == "projection":
            record.update(views=value.views, collapsed=int(value.collapsed.sum()))
        else:
            record[item.name] = value
    return record
