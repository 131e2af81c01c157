"""Tensors in, pictures out: what the network learned and why it decided, drawn for people.

Every public name takes tensors and plain numbers and gives a `PIL.Image` (`overlay`, `heatmap_blend`,
`masked_image`, `binary_image`, `two_sided`, `outlined`, `cropped` and `placed` give a tensor again). Nothing
here opens or saves a picture, and nothing here knows a network; matplotlib is imported only when something is
drawn.
"""

from dprotonet.figures.canvas import picture
from dprotonet.figures.comparison_grid import GridAnswer, comparison_grid
from dprotonet.figures.confusion import confusion_figure
from dprotonet.figures.curve import training_curve
from dprotonet.figures.decision import Decision
from dprotonet.figures.decision_regions import DecisionRegion, decision_regions_sheet
from dprotonet.figures.evidence_sheet import EvidenceSheetRow, evidence_sheet, stack
from dprotonet.figures.explanation_sheet import ExplanationRow, decision_sheet, explanation_sheet
from dprotonet.figures.faithfulness_curves import faithfulness_curves
from dprotonet.figures.forgetting import forgetting_curves
from dprotonet.figures.network_curves import AccuracyCurve, network_curves
from dprotonet.figures.outline import outlined
from dprotonet.figures.overlap_sweep import overlap_sweep
from dprotonet.figures.overlay import (
    binary_image,
    contact_sheet,
    heatmap_blend,
    masked_image,
    overlay,
    two_sided,
)
from dprotonet.figures.part_sheet import PartRow, part_sheet
from dprotonet.figures.placed import cropped, placed
from dprotonet.figures.prototype_sheet import prototype_sheet
from dprotonet.figures.reliability import ReliabilityGroup, reliability_figure
from dprotonet.figures.saliency_sheet import method_sheet, saliency_sheet
from dprotonet.figures.slice_sheet import slice_sheet
from dprotonet.figures.style import HEAT

__all__ = [
    "HEAT",
    "AccuracyCurve",
    "Decision",
    "DecisionRegion",
    "EvidenceSheetRow",
    "ExplanationRow",
    "GridAnswer",
    "PartRow",
    "ReliabilityGroup",
    "binary_image",
    "comparison_grid",
    "confusion_figure",
    "contact_sheet",
    "cropped",
    "decision_regions_sheet",
    "decision_sheet",
    "evidence_sheet",
    "explanation_sheet",
    "faithfulness_curves",
    "forgetting_curves",
    "heatmap_blend",
    "masked_image",
    "method_sheet",
    "network_curves",
    "outlined",
    "overlap_sweep",
    "overlay",
    "part_sheet",
    "picture",
    "placed",
    "prototype_sheet",
    "reliability_figure",
    "saliency_sheet",
    "slice_sheet",
    "stack",
    "training_curve",
    "two_sided",
]
