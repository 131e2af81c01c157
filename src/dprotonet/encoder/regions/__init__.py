"""How a feature map becomes region vectors: one protocol, several answers (Section 3.2, appendix B)."""

from dprotonet.encoder.regions.base import Regions
from dprotonet.encoder.regions.masks import Masks, spatial_masks, uniform_masks
from dprotonet.encoder.regions.occurrence import Occurrence
from dprotonet.encoder.regions.parts import Parts
from dprotonet.encoder.regions.patches import Patches
from dprotonet.encoder.regions.points import Points

__all__ = ["Masks", "Occurrence", "Parts", "Patches", "Points", "Regions", "spatial_masks", "uniform_masks"]
