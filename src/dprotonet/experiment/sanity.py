"""Do the heatmaps depend on what the network has learned? Its weights are drawn anew, layer by layer.

For each of some images and methods: the map of the intact network, and those of copies that have forgotten
more and more, from the output to the input, compared by rank correlation. A method whose maps stay the same
draws the image, not the network (Adebayo et al., 2018).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.classifier import Classifier
from dprotonet.experiment.compare.method import Case, method
from dprotonet.experiment.compare.run import Comparison
from dprotonet.experiment.pictures import save_picture
from dprotonet.figures import forgetting_curves
from dprotonet.interpretation.randomised import cascade
from dprotonet.metrics.randomisation import rank_correlation

_STATISTICS = 16  # images from which the statistics of forgotten BatchNorm layers are measured


class Forgotten(NamedTuple):
    """One stage: the last layer that was forgotten, and the rank correlations (N,) of every method."""

    layer: str
    correlations: Mapping[str, Tensor]


@dataclass(frozen=True)
class SanityCheck:
    """Methods on `limit` images of a split, against `stages` states of forgetting."""

    classifier: Classifier
    data: ImageData
    methods: Sequence[str]
    limit: int = 4
    stages: int = 8
    seed: int = 0
    found: list[Forgotten] = field(default_factory=list)

    def run(self) -> Iterator[tuple[int, int]]:
        """Fills `found`; tells how many of all maps are made."""
        chosen = Comparison(self.classifier, self.data, [], Path(), limit=max(self.limit, _STATISTICS))
        cases = [chosen.case(index) for index in chosen.indices]
        if not cases:
            raise UserError("there is no image to check on")
        statistics, cases = torch.cat([case.inputs for case in cases]), cases[: self.limit]
        total, done = (self.stages + 1) * len(self.methods), 0
        intact: dict[str, Tensor] = {}
        for name in self.methods:
            intact[name] = _maps(name, self.classifier, cases)
            done += 1
            yield done, total
        network = self.classifier.module
        for stage in cascade(network, seed=self.seed, images=statistics, stages=self.stages):
            forgetful = replace(self.classifier, module=stage.model)
            correlations = {}
            for name in self.methods:
                correlations[name] = rank_correlation(intact[name], _maps(name, forgetful, cases))
                done += 1
                yield done, total
            self.found.append(Forgotten(stage.name, correlations))

    def summary(self) -> dict[str, Any]:
        """The mean rank correlation of every method after every stage; None where all maps were flat."""
        return {
            "network": self.classifier.name,
            "images": self.limit,
            "seed": self.seed,
            "stages": [
                {
                    "layer": stage.layer,
                    "rank correlation": {name: _mean(values) for name, values in stage.correlations.items()},
                }
                for stage in self.found
            ],
        }

    def save_picture(self, path: Path) -> None:
        curves = {
            name: torch.stack([stage.correlations[name] for stage in self.found], dim=1)
            for name in self.methods
        }
        save_picture(forgetting_curves(curves, layers=[stage.layer for stage in self.found]), path)


def _maps(name: str, classifier: Classifier, cases: Sequence[Case]) -> Tensor:
    """Raw maps (N, H, W) of the labels that the intact network predicts."""
    asked = method(name, classifier)
    return torch.stack([asked.explain(case).raw for case in cases])


def _mean(values: Tensor) -> float | None:
    mean = float(values.nanmean())
    return None if mean != mean else mean
