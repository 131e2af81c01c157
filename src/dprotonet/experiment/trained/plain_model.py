"""A network from elsewhere, such as one of timm's, as the page asks it: in the place of a trained run.

It has no prototypes, no run folder and no data; its task says how its outputs are read.
"""

import copy
from collections.abc import Iterable
from dataclasses import replace

import torch
from torch import Tensor, nn

from dprotonet.config import Config, DataConfig
from dprotonet.data.transforms import Normalise
from dprotonet.encoder.encoder import Encoder
from dprotonet.errors import UserError
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.classifier import Classifier
from dprotonet.experiment.trained.image_like import ImageLike
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.interpretation.outputs import class_scores
from dprotonet.network import BlackBox


class PlainNetwork(BlackBox):
    """A black box whose encoder is the whole network; nothing is left for the head to do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(Encoder(module, nn.Identity(), nn.Identity()), nn.Identity())  # type: ignore[arg-type]

    def forward(self, images: Tensor) -> Tensor:
        return class_scores(self.encoder.backbone, images)


class PlainModel(TrainedModel):
    """A classifier that answers as a trained model without prototypes does."""

    def __init__(self, classifier: Classifier) -> None:
        if classifier.task.kind == "regression":
            raise UserError(f"{classifier.name} gives a value, and the page is about classes; use saliency")
        data = DataConfig(data="", image_size=classifier.size)
        network = PlainNetwork(classifier.module)
        super().__init__(network, config=Config(data=data), classes=classifier.classes, prototypes=())
        self.classifier, self.task = classifier, classifier.task

    @property
    def normalise(self) -> Normalise:
        return self.classifier.normalise

    def inputs(self, images: ImageLike | Iterable[ImageLike]) -> Tensor:
        return self.classifier.inputs(images)

    @torch.no_grad()
    def answers_to(self, inputs: Tensor) -> list[Answer]:
        """Scores and probabilities of all classes, without evidence."""
        raw = self.network(inputs)
        scores, stated = self.task.scores(raw.cpu().double()), self.classifier.watched(raw)
        nothing = torch.zeros(0, dtype=torch.float64)
        rows = zip(scores, stated, strict=True)
        return [Answer(self, nothing, nothing.long(), row, stated=shares) for row, shares in rows]

    def twin(self) -> "PlainModel":
        """The same with a network of its own."""
        return PlainModel(replace(self.classifier, module=copy.deepcopy(self.classifier.module)))
