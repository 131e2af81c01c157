"""The run under review: facts of each prototype, what if some were off, and which test images to look at.

What needs a pass over a split is made when it is first asked for, by a thread of its own.
"""

from collections.abc import Callable

from dprotonet.experiment.explaining.gallery import Gallery, gallery
from dprotonet.experiment.prototypes.facts import PrototypeFacts, stored_facts
from dprotonet.experiment.prototypes.nearest_images import TrainingScores
from dprotonet.experiment.prototypes.what_if import WhatIf
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.web.prepared import Prepared
from dprotonet.web.samples import Samples
from dprotonet.web.worker import Worker


class Reviewing:
    """Facts and what-ifs of one model."""

    def __init__(
        self, model: TrainedModel, samples: Samples, worker: Worker, *, say: Callable[[Exception], str]
    ) -> None:
        self.model = model
        self.facts: Prepared[tuple[PrototypeFacts, ...]] = Prepared(
            worker, lambda tell: stored_facts(model, on_progress=tell), say=say
        )
        self.test: Prepared[WhatIf] = Prepared(
            worker, lambda tell: WhatIf(model, samples.waited().test, on_progress=tell), say=say
        )
        self.training: Prepared[TrainingScores] = Prepared(
            worker, lambda tell: TrainingScores.of(model, samples.waited().train, on_progress=tell), say=say
        )
        self.gallery: Prepared[Gallery] = Prepared(
            worker, lambda tell: gallery(model, samples.waited().test, on_progress=tell), say=say
        )
