"""The sheet of what was missed: a test image taken for its nearest relative, with both classes side by side.

The image is chosen among the test images for show only: the surest mistake between siblings, else the
surest mistake, and where there is none the right answer with the smallest margin to the sibling. The title
says which.
"""

from dataclasses import dataclass

from PIL import Image
from torch import Tensor

from dprotonet.data.base import ImageData, PartRenderer, Sample
from dprotonet.experiment.explaining.explain import OnStep
from dprotonet.experiment.explaining.explain_contrast import explain_contrast
from dprotonet.experiment.prototypes.nearest_images import TrainingScores
from dprotonet.experiment.trained.class_contrast import ClassContrast
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures.contrast_sheet import NearestPicture

ROWS = 4


@dataclass(frozen=True)
class Miss:
    """An image of a split, the class that it is compared with, and what happened to it."""

    index: int
    versus: int
    words: str
    siblings: bool  # whether its class and the other differ in one part only


def missed_sheet(
    model: TrainedModel, logits: Tensor, test: ImageData, train: ImageData, *, on_step: OnStep | None = None
) -> Image.Image:
    """From the logits (N, C) of all test images."""
    miss = chosen_miss(logits, test)
    sample = test[miss.index]
    (found,) = explain_contrast(model, [sample.image], miss.versus, top=ROWS, on_step=on_step)
    truth = test.classes[sample.label]
    part = sample.deciding_part if miss.siblings else None
    return found.picture(
        f"{sample.name}: {truth}, {miss.words}",
        roles=_roles(found.contrast, truth),
        nearest=_nearest(model, sample, (found.contrast.class_name, found.contrast.versus), train),
        missed="" if part is None else missed_words(found.contrast, part, truth),
    )


def chosen_miss(logits: Tensor, test: ImageData) -> Miss:
    """The surest confusion of siblings, or the next best thing."""
    best = logits.topk(2, dim=1)
    margins, said = (best.values[:, 0] - best.values[:, 1]).tolist(), best.indices.tolist()
    labels, relatives = test.labels, _siblings(test)
    wrong = [index for index, label in enumerate(labels) if said[index][0] != label]
    if not wrong:
        return _closest(logits, test, relatives)
    wrong.sort(key=lambda index: (-margins[index], index))
    confused = [index for index in wrong if relatives.get(labels[index]) == said[index][0]]
    index = (confused or wrong)[0]
    relative = "its sibling " if confused else ""
    taken = f"mistaken for {relative}{test.classes[said[index][0]]}"
    return Miss(index, labels[index], taken, bool(confused))


def missed_words(found: ClassContrast, part: str, truth: str) -> str:
    """What the part that tells siblings apart adds for either, and whether it was missed in a mistake."""
    apart = f"The two differ in the {part} alone"
    rows = [row for row in found.rows if part in row.name.split(" / ")]
    if not rows:
        return f"{apart}; the model compares no part of that name."
    own, other = sum(row.points for row in rows), sum(row.other_points for row in rows)
    told = f"{apart}: it adds {own:.2f} points for {found.class_name} and {other:.2f} for {found.versus}"
    told = told.replace("-", "−")
    if truth != found.versus:
        return f"{told}."
    return f"{told}, so it was {'missed' if own >= other else 'seen, but other parts outweighed it'}."


def _closest(logits: Tensor, test: ImageData, relatives: dict[int, int]) -> Miss:
    """Of right answers that with the smallest margin, to the sibling in data that has siblings."""
    labels, runners = test.labels, logits.topk(2, dim=1).indices[:, 1].tolist()
    others = [relatives.get(label, -1) if relatives else runners[index] for index, label in enumerate(labels)]
    margins = {
        index: float(logits[index, labels[index]] - logits[index, other])
        for index, other in enumerate(others)
        if other >= 0
    }
    index = min(margins, key=lambda index: margins[index])
    relative = f"its sibling {test.classes[others[index]]}" if relatives else test.classes[others[index]]
    words = f"recognised (no test image was mistaken; this one came nearest to {relative})"
    return Miss(index, others[index], words, bool(relatives))


def _siblings(test: ImageData) -> dict[int, int]:
    """The class that differs in one part only, by class; empty for data that does not know it."""
    if not isinstance(test, PartRenderer):
        return {}
    first = {label: index for index, label in reversed(list(enumerate(test.labels)))}
    drawn = {label: test.sibling(index) for label, index in first.items()}
    return {label: other.label for label, other in drawn.items() if other is not None}


def _nearest(
    model: TrainedModel, sample: Sample, names: tuple[str, str], train: ImageData
) -> list[NearestPicture]:
    """The training image of each class that the image is most like."""
    known, scores = TrainingScores.of(model, train), model.answer(sample.image).scores
    numbers = [(name, known.nearest(scores, train.classes.index(name))) for name in names]
    return [
        NearestPicture(name, train.name(number), train[number].image)
        for name, number in numbers
        if number is not None
    ]


def _roles(found: ClassContrast, truth: str) -> tuple[str, str]:
    if truth == found.versus:
        return "predicted", "the truth"
    return "right", ""
