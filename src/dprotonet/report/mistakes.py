"""All wrong answers at a glance, the surest first, each with what was missed."""

from dprotonet.data.base import ImageData
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.experiment.model import Model
from dprotonet.report.content import ComparedClasses, Mistake, Mistakes
from dprotonet.report.embed import THUMB, embedded
from dprotonet.report.side_by_side import Training, compared

SHOWN = 36
_TOGETHER = 12  # images looked at once more at a time


def mistakes(
    model: Model,
    evaluation: Evaluation,
    data: ImageData,
    *,
    training: Training | None = None,
    shown: int = SHOWN,
) -> Mistakes:
    """The first of them with pictures; the rest is counted."""
    probability, guess = evaluation.probabilities.max(1)
    wrong = (guess != evaluation.predictions.labels).nonzero().flatten().tolist()
    surest = sorted(wrong, key=lambda index: (-float(probability[index]), index))[:shown]
    blocks = [surest[start : start + _TOGETHER] for start in range(0, len(surest), _TOGETHER)]
    sides = [side for block in blocks for side in _sides(model, data, block, training)]
    return Mistakes(
        tuple(
            _mistake(data, index, evaluation.classes[int(guess[index])], float(probability[index]), side)
            for index, side in zip(surest, sides, strict=True)
        ),
        len(wrong),
    )


def _sides(
    model: Model, data: ImageData, indices: list[int], training: Training | None
) -> list[ComparedClasses | None]:
    samples = [data[index] for index in indices]
    answers = model.answers([sample.image for sample in samples])
    return [
        compared(model, sample.image, answer, sample.label, training)
        for answer, sample in zip(answers, samples, strict=True)
    ]


def _mistake(
    data: ImageData, index: int, said: str, probability: float, side: ComparedClasses | None
) -> Mistake:
    sample = data[index]
    truth = data.classes[sample.label]
    picture = embedded(sample.image, f"Test image {sample.name} of {truth}.", longest=THUMB)
    return Mistake(sample.name, truth, said, probability, picture, side)
