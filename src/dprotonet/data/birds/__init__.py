"""Built-in birds: species of invented birds, drawn on the fly, with part masks and the part that decides.

`species` is the table of kinds, `pose`, `backdrop`, `scenery` and `lens` the nuisance, `anatomy` the bird
itself, `canvas` and `outline` the rasteriser, `dataset` what the rest of the program sees, `findings` the
same birds with several labels.
"""

from dprotonet.data.birds.dataset import Birds, bird_splits
from dprotonet.data.birds.findings import BirdFindings, finding_splits

__all__ = ["BirdFindings", "Birds", "bird_splits", "finding_splits"]
