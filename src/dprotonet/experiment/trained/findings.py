"""What a network says of one image that may have several labels: of each how likely, and by what evidence."""

from dataclasses import dataclass

from dprotonet.errors import UserError
from dprotonet.experiment.runs.familiarity import is_familiar
from dprotonet.experiment.trained.answer import Answer
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.inference.several_labels import LabelHead

PRESENT = 0.5
"""From which probability on a label counts as present."""


@dataclass(frozen=True)
class Finding:
    """One label of an image: `bias` and the contributions of all evidence add up to `logit`."""

    name: str
    label: int
    probability: float
    logit: float
    bias: float
    evidence: tuple[EvidenceItem, ...]  # of the label's own prototypes, what speaks most for it first

    @property
    def present(self) -> bool:
        return self.probability >= PRESENT


@dataclass(frozen=True)
class Findings:
    """What the network says of the image `name`, label by label in their order."""

    name: str
    labels: tuple[Finding, ...]
    familiar: bool | None = None  # False: unlike the training images; None: nobody measured it
    distance: float | None = None  # from what the run knows; above 1 an image is not familiar

    @property
    def present(self) -> tuple[Finding, ...]:
        """The labels that it has, the likeliest first."""
        return tuple(sorted((one for one in self.labels if one.present), key=lambda one: -one.probability))

    @property
    def shown(self) -> tuple[Finding, ...]:
        """Those present, or where there is none the likeliest: what is worth an explanation."""
        return self.present or (max(self.labels, key=lambda one: one.probability),)

    def of(self, label: str) -> Finding:
        """One label, by its name."""
        for one in self.labels:
            if one.name == label:
                return one
        raise UserError(f"no label '{label}'; the labels are {', '.join(one.name for one in self.labels)}")


def findings_of(answer: Answer, name: str) -> Findings:
    """All labels of the image `name`."""
    head = answer.model.network.head
    assert isinstance(head, LabelHead)
    biases = head.bias.detach().cpu().double().tolist()
    return Findings(
        name,
        tuple(_finding(answer, label, bias) for label, bias in enumerate(biases)),
        is_familiar(answer.distance),
        answer.distance,
    )


def _finding(answer: Answer, label: int, bias: float) -> Finding:
    name = answer.model.classes[label]
    every = answer.evidence(label)
    logit = bias + sum(item.contribution for item in every)
    evidence = tuple(item for item in every if item.class_name == name or item.contribution != 0)
    probability = float(answer.plain[label].sigmoid())
    return Finding(name, label, probability, logit, bias, evidence)
