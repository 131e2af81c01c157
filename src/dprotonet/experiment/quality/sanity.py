"""Do the heatmaps depend on what the network has learned? Its weights are drawn anew, layer by layer.

For each of some images and methods: the map of the intact network, and those of copies that have forgotten
more and more, from the output to the input, compared by rank correlation. A method whose maps stay the same
draws the image, not the network (Adebayo et al., 2018).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from dprotonet.data.base import ImageData
from dprotonet.errors import UserError
from dprotonet.experiment.compare.method import Case, Method, method
from dprotonet.experiment.compare.run import Comparison, ComparisonStep, Failure, check_found
from dprotonet.experiment.explaining.pictures import save_picture
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.figures import forgetting_curves
from dprotonet.interpretation.randomised import cascade
from dprotonet.metrics.randomisation import rank_correlation

_STATISTICS = 16  # images from which the statistics of forgotten BatchNorm layers are measured
Place = tuple[str, int]  # a method and the row of an image


class Forgotten(NamedTuple):
    """One stage: the last layer that was forgotten, and the rank correlations (N,) of every method.

    NaN where a map is flat, and where there is none.
    """

    layer: str
    correlations: Mapping[str, Tensor]


@dataclass(frozen=True)
class SanityCheck:
    """Methods on at most `limit` images of a split, against `stages` states of forgetting.

    An image on which a method fails, be it at the last stage, is left out of all stages of that method: from
    stage to stage a mean must be over the same images.
    """

    classifier: Classifier
    data: ImageData
    methods: Sequence[str]
    limit: int = 4
    stages: int = 8
    seed: int = 0
    found: list[Forgotten] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    _lost: set[Place] = field(default_factory=set, init=False, repr=False)

    @property
    def images(self) -> int:
        """So many are looked at; the split may have fewer than `limit`."""
        return min(self.limit, len(self.data))

    @property
    def idle(self) -> list[str]:
        """Methods without a single image that they explained at every stage."""
        return [name for name in self.methods if not self._kept(name)]

    def run(self) -> Iterator[ComparisonStep]:
        """Fills `found` and `failures`; tells how many of all maps are made."""
        chosen = Comparison(self.classifier, self.data, [], Path(), limit=max(self.limit, _STATISTICS))
        cases = [chosen.case(index) for index in chosen.indices]
        if not cases:
            raise UserError("there is no image to check on")
        statistics, cases = torch.cat([case.inputs for case in cases]), cases[: self.limit]
        total, done = (self.stages + 1) * len(self.methods) * len(cases), count(1)
        intact: dict[Place, Tensor] = {}
        for what, failure in self._explain(self.classifier, cases, into=intact):
            yield ComparisonStep(next(done), total, what, failure)
        network = self.classifier.module
        for stage in cascade(network, seed=self.seed, images=statistics, stages=self.stages):
            forgetful, maps = replace(self.classifier, module=stage.model), dict[Place, Tensor]()
            for what, failure in self._explain(forgetful, cases, into=maps, forgotten=stage.name):
                yield ComparisonStep(next(done), total, what, failure)
            self.found.append(Forgotten(stage.name, self._correlations(intact, maps)))

    def curves(self) -> dict[str, Tensor]:
        """Rank correlations (N, S) of each method, of the images that it explained at every stage."""
        return {
            name: torch.stack([stage.correlations[name][self._kept(name)] for stage in self.found], dim=1)
            for name in self.methods
        }

    def summary(self) -> dict[str, Any]:
        """The mean rank correlation of every method after every stage; None where all maps were flat."""
        means = {name: values.nanmean(dim=0).tolist() for name, values in self.curves().items()}
        return {
            "network": self.classifier.name,
            "images": self.images,
            "explained": {name: len(self._kept(name)) for name in self.methods},
            "failures": [failure._asdict() for failure in self.failures],
            "seed": self.seed,
            "stages": [
                {
                    "layer": stage.layer,
                    "rank correlation": {name: _number(values[place]) for name, values in means.items()},
                }
                for place, stage in enumerate(self.found)
            ],
        }

    def save_picture(self, path: Path) -> None:
        layers = [stage.layer for stage in self.found]
        save_picture(forgetting_curves(self.curves(), layers=layers), path)

    def _explain(
        self,
        classifier: Classifier,
        cases: Sequence[Case],
        *,
        into: dict[Place, Tensor],
        forgotten: str = "",
    ) -> Iterator[tuple[str, Failure | None]]:
        """Raw maps (H, W) of the labels that the intact network predicts; those lost are not tried again."""
        for name in self.methods:
            asked = method(name, classifier)
            for row, case in enumerate(cases):
                failure = None
                if (name, row) not in self._lost:
                    try:
                        into[name, row] = _map(asked, case)
                    except Exception as error:  # as in a comparison: the others go on
                        reason = f"{type(error).__name__}: {error}"
                        reason += f" (random down to {forgotten})" if forgotten else ""
                        failure = Failure(name, case.sample.name, reason)
                        self.failures.append(failure)
                        self._lost.add((name, row))
                yield f"{name} on {row + 1}", failure

    def _correlations(
        self, intact: Mapping[Place, Tensor], maps: Mapping[Place, Tensor]
    ) -> dict[str, Tensor]:
        values = {name: torch.full((self.images,), torch.nan, dtype=torch.float64) for name in self.methods}
        for (name, row), found in maps.items():
            values[name][row] = rank_correlation(intact[name, row].unsqueeze(0), found.unsqueeze(0))[0]
        return values

    def _kept(self, name: str) -> list[int]:
        return [row for row in range(self.images) if (name, row) not in self._lost]


def _map(asked: Method, case: Case) -> Tensor:
    found = asked.explain(case)
    check_found(found, case)
    return found.raw


def _number(value: float) -> float | None:
    return None if math.isnan(value) else value
