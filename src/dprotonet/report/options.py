"""What a report is asked to show, and what its maker has at hand already."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from dprotonet.data.base import Splits
from dprotonet.errors import UserError
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.interpretation.mdm import Preset

NO_DATA = "none"


@dataclass(frozen=True)
class ReportOptions:
    """How much of a run is shown; heatmaps are what takes time."""

    data: str | None = None  # as in `dprotonet evaluate`, or "none": only what the run folder has
    allow_leaks: bool = False
    compare: Path | None = None
    sure: int = 2  # images of each kind that are explained
    unsure: int = 2
    mistakes: int = 2
    top: int = 3  # prototypes of each explained class that get a row
    preset: str | Preset = "fast"
    heatmaps: Literal["stored", "shown", "all"] = "shown"
    """Make none, those of the explained images and their prototypes, or also those of all prototypes."""
    audience: Literal["general", "clinical"] = "general"

    def __post_init__(self) -> None:
        for name in ("sure", "unsure", "mistakes"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.top < 1:
            raise UserError(f"top is {self.top}; at least one prototype has to be shown")


@dataclass(frozen=True)
class AtHand:
    """What need not be done again: splits, an evaluation of their test images, heatmaps in test images."""

    splits: Splits | None = None
    evaluation: Evaluation | None = None
    places: Mapping[tuple[int, int], Tensor] = field(default_factory=dict)  # by image and prototype
