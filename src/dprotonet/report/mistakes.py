"""All wrong answers at a glance, the surest first."""

from dprotonet.data.base import ImageData
from dprotonet.experiment.evaluation.evaluation import Evaluation
from dprotonet.report.content import Mistake, Mistakes
from dprotonet.report.embed import THUMB, embedded

SHOWN = 36


def mistakes(evaluation: Evaluation, data: ImageData, *, shown: int = SHOWN) -> Mistakes:
    """The first of them with pictures; the rest is counted."""
    probability, guess = evaluation.probabilities.max(1)
    wrong = (guess != evaluation.predictions.labels).nonzero().flatten().tolist()
    surest = sorted(wrong, key=lambda index: (-float(probability[index]), index))[:shown]
    return Mistakes(
        tuple(
            _mistake(data, index, evaluation.classes[int(guess[index])], float(probability[index]))
            for index in surest
        ),
        len(wrong),
    )


def _mistake(data: ImageData, index: int, said: str, probability: float) -> Mistake:
    sample = data[index]
    truth = data.classes[sample.label]
    picture = embedded(sample.image, f"Test image {sample.name} of {truth}.", longest=THUMB)
    return Mistake(sample.name, truth, said, probability, picture)
