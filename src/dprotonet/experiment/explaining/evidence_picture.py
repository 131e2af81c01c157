"""A prediction on one sheet, without heatmaps: the class, and the prototypes that decided."""

from collections.abc import Sequence

from PIL import Image
from torch import Tensor

from dprotonet.experiment.explaining.pictures import place_picture, source_image
from dprotonet.experiment.explaining.row_marks import RowMark, row_marks
from dprotonet.experiment.runs.familiarity import warning_of
from dprotonet.experiment.trained.evidence import EvidenceItem
from dprotonet.experiment.trained.image_like import ImageLike
from dprotonet.experiment.trained.prediction import Prediction
from dprotonet.experiment.trained.trained_model import TrainedModel
from dprotonet.figures import EvidenceSheetRow, evidence_sheet

_LIKELY = 4  # classes named


def evidence_picture(
    model: TrainedModel,
    image: ImageLike,
    prediction: Prediction,
    *,
    title: str = "",
    rows: int = 5,
    marks: bool = False,
) -> Image.Image:
    """The prototypes that decided, adding up to the logit.

    With `marks` each row says how reliable it is, at the cost of a pass for each of eight noisy copies (16
    where regions are masks) and for each source.
    """
    model.check_sources()
    pixels, shown = model.pixels(image), prediction.evidence[:rows]
    found: Sequence[RowMark | None] = [None] * len(shown)
    if marks:
        (found,) = row_marks(model, [pixels], [shown])
    likely = sorted(prediction.probabilities.items(), key=lambda pair: -pair[1])[:_LIKELY]
    return evidence_sheet(
        pixels,
        title=title or prediction.name,
        probabilities=likely,
        rows=[_row(model, pixels, *pair) for pair in zip(shown, found, strict=True)],
        rest=prediction.logit - sum(item.contribution for item in shown),
        logit=prediction.logit,
        notice=warning_of(prediction.distance),
    )


def _row(model: TrainedModel, pixels: Tensor, item: EvidenceItem, mark: RowMark | None) -> EvidenceSheetRow:
    return EvidenceSheetRow(
        place_picture(source_image(model, item.prototype), item.source_place),
        item.class_name,
        item.prototype,
        item.similarity,
        item.weight,
        item.contribution,
        None if item.place is None else place_picture(pixels, item.place),
        item.part,
        item.ahead,
        "" if mark is None else mark.said,
        "" if mark is None else mark.warning,
    )
