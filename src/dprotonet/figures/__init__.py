"""Tensors in, pictures out: what the network learned and why it decided, drawn for people.

Every public name takes tensors and plain numbers and gives a `PIL.Image` (`overlay` gives a tensor again).
Nothing here opens or saves a picture, and nothing here knows a network; matplotlib is imported only when
something is drawn.
"""

from dprotonet.figures.confusion import confusion_figure
from dprotonet.figures.curve import training_curve
from dprotonet.figures.evidence_sheet import EvidenceRow, evidence_sheet, stack
from dprotonet.figures.overlay import contact_sheet, overlay
from dprotonet.figures.prototype_sheet import prototype_sheet

__all__ = [
    "EvidenceRow",
    "confusion_figure",
    "contact_sheet",
    "evidence_sheet",
    "overlay",
    "prototype_sheet",
    "stack",
    "training_curve",
]
